"""Files of secret keys, stored outside the lakehouse and readable by their owner alone; the keys of the ledger's
hashes."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from ingest.errors import ConfigError
from ingest.spark.local_rows import local_rows
from ingest.suppression.keyed_hash import INNER, OUTER, hmac_blocks, keyed_hash

_LINE = re.compile(r"(\d{1,9})\s+([0-9a-fA-F]{64,})")
_BLOCKS = T.StructType([T.StructField(INNER, T.BinaryType()), T.StructField(OUTER, T.BinaryType())])
_CHECK_TEXT = "ingest ledger"


@dataclass(frozen=True)
class LedgerKeys:
    """Secret keys by version. New requests use the highest version; an older one is needed as long as the ledger holds
    requests hashed by it."""

    path: str
    secrets: Mapping[int, bytes] = field(repr=False)

    @property
    def newest(self) -> int:
        return max(self.secrets)

    def hash(self, table: str, text: str, version: int | None = None) -> str:
        """Returns the keyed hash of a key of `table`. `version`: of the secret; the newest by default."""
        return keyed_hash(self.secrets[version or self.newest], table, text)

    def check(self, version: int) -> str:
        """Returns a check value that tells this secret from another one stored under the same version."""
        return keyed_hash(self.secrets[version], "", _CHECK_TEXT)

    def require(self, version: int, check: str) -> None:
        """Raises ConfigError if the secret that the ledger's rows were hashed by is missing or was replaced."""
        if version not in self.secrets:
            raise ConfigError(
                f"{self.path} lacks version {version}, by which keys in the ledger are hashed",
                "put its line back: keys of an older version have to stay",
            )
        if self.check(version) != check:
            raise ConfigError(
                f"version {version} in {self.path} is another key than the ledger was written with",
                "put the first one back, and give a new key a higher version",
            )

    def blocks(self, spark: SparkSession, version: int) -> DataFrame:
        """Returns the one-row frame that `keyed_hash_column` needs. It is a local relation, because a plan would show
        literals."""
        return local_rows(spark, [hmac_blocks(self.secrets[version])], _BLOCKS)


def read_keys(path: str) -> LedgerKeys:
    """Reads the ledger's keys. Raises ConfigError as `read_secrets` does."""
    return LedgerKeys(path, read_secrets(path))


def read_secrets(path: str) -> Mapping[int, bytes]:
    """Returns version → secret of at least 32 bytes. Raises ConfigError if the file is missing, is accessible to other
    users, or holds anything but keys."""
    file = Path(path)
    command = f'(umask 077; echo "1 $(openssl rand -hex 32)" > {path})'
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
        lines = file.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        raise ConfigError(f"there is no key file {path}", f"make one and keep it safe: {command}") from None
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"the key file {path} can't be read", "give a text file that this user may read") from None
    if mode & 0o077:
        raise ConfigError(f"others may read the key file {path} (its mode is {mode:04o})", f"chmod 600 {path}")
    matches = [_LINE.fullmatch(line.strip()) for line in lines if line.strip()]
    secrets = {int(line[1]): bytes.fromhex(line[2]) for line in matches if line is not None and len(line[2]) % 2 == 0}
    if not secrets or len(secrets) < len(matches) or min(secrets) < 1:
        raise ConfigError(
            f"the key file {path} holds something that is no key",
            f"write a line `VERSION HEX` for each, such as {command}",
        )
    return secrets
