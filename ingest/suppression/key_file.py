"""Files of secret keys, outside the lakehouse, readable by their owner alone; and the keys of the ledger's hashes."""

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
from ingest.suppression.keyed_hash import INNER, OUTER, blocks, keyed_hash

_LINE = re.compile(r"(\d{1,9})\s+([0-9a-fA-F]{64,})")
_BLOCKS = T.StructType([T.StructField(INNER, T.BinaryType()), T.StructField(OUTER, T.BinaryType())])
_CHECKED = "ingest ledger"


@dataclass(frozen=True)
class LedgerKeys:
    """Secret keys by their version. The highest one is for new requests; the others stay as long as any request of
    theirs counts."""

    path: str
    secrets: Mapping[int, bytes] = field(repr=False)

    @property
    def newest(self) -> int:
        return max(self.secrets)

    def hash(self, table: str, text: str, version: int | None = None) -> str:
        """The keyed hash of a key of `table`, under the newest secret unless said."""
        return keyed_hash(self.secrets[version or self.newest], table, text)

    def check(self, version: int) -> str:
        """What tells a secret from another one that was given its version."""
        return keyed_hash(self.secrets[version], "", _CHECKED)

    def require(self, version: int, check: str) -> None:
        """Raises ConfigError where the secret by which the ledger's rows were hashed is not there any more."""
        if version not in self.secrets:
            raise ConfigError(
                f"{self.path} lacks version {version}, by which the ledger knows whom to keep away",
                "put its line back: keys of an older version have to stay",
            )
        if self.check(version) != check:
            raise ConfigError(
                f"version {version} in {self.path} is another key than the ledger was written with",
                "put the first one back, and give a new key a higher version",
            )

    def blocks(self, spark: SparkSession, version: int) -> DataFrame:
        """One row for `keyed_hash.hashed`. Rows of the driver: a literal would be shown by a plan."""
        return local_rows(spark, [blocks(self.secrets[version])], _BLOCKS)


def read_keys(path: str) -> LedgerKeys:
    """The keys of the ledger. Raises ConfigError as `secrets_in` does."""
    return LedgerKeys(path, secrets_in(path))


def secrets_in(path: str) -> Mapping[int, bytes]:
    """Version → secret key, of 32 bytes or more. Raises ConfigError where the file is absent, can be read by others, or
    holds anything else than keys."""
    file = Path(path)
    make = f'(umask 077; echo "1 $(openssl rand -hex 32)" > {path})'
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
        lines = file.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        raise ConfigError(f"there is no key file {path}", f"make one and keep it safe: {make}") from None
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"the key file {path} can't be read", "give a text file that this user may read") from None
    if mode & 0o077:
        raise ConfigError(f"others may read the key file {path} (its mode is {mode:04o})", f"chmod 600 {path}")
    found = [_LINE.fullmatch(line.strip()) for line in lines if line.strip()]
    secrets = {int(line[1]): bytes.fromhex(line[2]) for line in found if line is not None and len(line[2]) % 2 == 0}
    if not secrets or len(secrets) < len(found) or min(secrets) < 1:
        raise ConfigError(
            f"the key file {path} holds something that is no key",
            f"write a line `VERSION HEX` for each, such as {make}",
        )
    return secrets
