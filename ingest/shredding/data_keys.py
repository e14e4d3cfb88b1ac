"""Data keys as a column: asked of the key store by the tasks that need them, unwrapped where they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.errors import ConfigError
from ingest.shredding.cipher import unwrapped
from ingest.spark.arrow_tasks import map_in_arrow
from ingest.spark.checkpoints import checkpoint
from ingest.spark.local_rows import local_rows
from ingest.suppression.key_file import LedgerKeys, read_secrets

if TYPE_CHECKING:
    from ingest.shredding.key_store import DataKey, KeyStore

OWNER, KEY_ID, KEY = "_owner", "_key_id", "_key"
_WRAPPED = "owner string, key_id string, master int, wrapped binary"
_MASTERS = T.StructType([T.StructField("master", T.IntegerType()), T.StructField("_secret", T.BinaryType())])
_MASTER_BYTES = 32
_BROADCAST = 100_000
"""So many keys, of 200 bytes each, go to every task."""
_Asked = Callable[["KeyStore", Iterable[str]], Iterator["DataKey"]]


@dataclass(frozen=True)
class DataKeys:
    """Of one pipeline's subjects. `owners`: by which they are hashed."""

    url: str = field(repr=False)
    pipeline: str
    masters: Mapping[int, bytes] = field(repr=False)
    owners: LedgerKeys

    def store(self) -> KeyStore:
        """Ready to be asked. Raises ConfigError and Unreachable."""
        store = _store(self.url, self.pipeline, self.masters)
        store.begin(self.owners.check(self.owners.newest))
        return store

    def secret(self, rows: DataFrame) -> DataFrame:
        """`rows`, with what `keyed_hash.hashed` needs."""
        return rows.crossJoin(F.broadcast(self.owners.blocks(rows.sparkSession, self.owners.newest)))

    def of(self, owners: DataFrame) -> DataFrame:
        """`OWNER` rows → each with its `KEY_ID` and `KEY`, made where there is none."""
        return self._unwrapped(owners.select(OWNER), lambda store, asked: store.ensured(asked))

    def by_id(self, key_ids: DataFrame) -> DataFrame:
        """`KEY_ID` rows → those with a `KEY`: of the ones that were destroyed there is none."""
        return self._unwrapped(key_ids.select(KEY_ID), lambda store, asked: store.by_id(asked))

    def _unwrapped(self, asked: DataFrame, how: _Asked) -> DataFrame:
        # Cut while they are wrapped: rows that are kept may go to disk.
        found = checkpoint(map_in_arrow(asked, _asking(self.url, self.pipeline, self.masters, how), _WRAPPED))
        opened = found.join(F.broadcast(self._masters(asked.sparkSession)), "master")
        key = unwrapped(F.col("wrapped"), F.col("key_id"), F.col("_secret"))
        keys = opened.select(F.col("owner").alias(OWNER), F.col("key_id").alias(KEY_ID), key.alias(KEY))
        # Else whoever joins them sends all of its rows about.
        return F.broadcast(keys) if found.count() <= _BROADCAST else keys

    def _masters(self, spark: SparkSession) -> DataFrame:
        return local_rows(spark, [{"master": v, "_secret": s} for v, s in self.masters.items()], _MASTERS)


def masters_in(path: str) -> dict[int, bytes]:
    """Version → master key. Raises ConfigError where the file holds anything else than keys of 32 bytes."""
    found = dict(read_secrets(path))
    if any(len(secret) != _MASTER_BYTES for secret in found.values()):
        raise ConfigError(
            f"{path} holds a master key that is not one of {_MASTER_BYTES} bytes",
            "make one with: openssl rand -hex 32",
        )
    return found


def _store(url: str, pipeline: str, masters: Mapping[int, bytes]) -> KeyStore:
    # Loading a database's library takes longer than all else of a command that shreds nothing.
    from ingest.shredding.key_store import KeyStore

    return KeyStore(url, pipeline, masters)


def _asking(
    url: str, pipeline: str, masters: Mapping[int, bytes], how: _Asked
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A connection per task."""

    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = _store(url, pipeline, masters)
        try:
            for batch in batches:
                rows = [vars(key) for key in how(store, batch.column(0).to_pylist())]
                yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)
        finally:
            store.close()

    return told


_ARROW = pa.schema([("owner", pa.string()), ("key_id", pa.string()), ("master", pa.int32()), ("wrapped", pa.binary())])
