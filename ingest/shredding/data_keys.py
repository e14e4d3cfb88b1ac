"""Data keys as DataFrame columns: Spark tasks look them up in the key store and unwrap them where they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.errors import ConfigError
from ingest.shredding.cipher import unwrap
from ingest.spark.arrow_tasks import map_in_arrow
from ingest.spark.checkpoints import checkpoint
from ingest.spark.local_rows import local_rows
from ingest.suppression.key_file import LedgerKeys, read_secrets

if TYPE_CHECKING:
    from ingest.shredding.key_store import DataKey, KeyStore

OWNER, KEY_ID, KEY = "_ingest_owner", "_ingest_key_id", "_ingest_data_key"
_WRAPPED = "owner string, key_id string, master int, wrapped binary"
_MASTERS = T.StructType([T.StructField("master", T.IntegerType()), T.StructField("_ingest_secret", T.BinaryType())])
_MASTER_BYTES = 32
_MOST_BROADCAST = 100_000
"""Up to this number of keys, of 200 bytes each, are broadcast."""
_Lookup = Callable[["KeyStore", Iterable[str]], Iterator["DataKey"]]


@dataclass(frozen=True)
class DataKeys:
    """The data keys of one pipeline's subjects. `owners`: the ledger keys by which owners are hashed."""

    url: str = field(repr=False)
    pipeline: str
    masters: Mapping[int, bytes] = field(repr=False)
    owners: LedgerKeys

    def open_store(self) -> KeyStore:
        """Opens the key store. Raises ConfigError and Unreachable."""
        store = _store(self.url, self.pipeline, self.masters)
        store.initialise(self.owners.check(self.owners.newest))
        return store

    def with_hmac_blocks(self, rows: DataFrame) -> DataFrame:
        """Returns `rows` with the columns that `keyed_hash_column` needs."""
        return rows.crossJoin(F.broadcast(self.owners.blocks(rows.sparkSession, self.owners.newest)))

    def for_owners(self, owners: DataFrame) -> DataFrame:
        """Takes `OWNER` rows and returns each with its `KEY_ID` and `KEY`. Owners without a key get one."""
        return self._unwrapped(owners.select(OWNER), lambda store, values: store.ensure(values))

    def by_id(self, key_ids: DataFrame) -> DataFrame:
        """Takes `KEY_ID` rows and returns those with a `KEY`; destroyed keys are absent."""
        return self._unwrapped(key_ids.select(KEY_ID), lambda store, values: store.by_id(values))

    def _unwrapped(self, values: DataFrame, lookup: _Lookup) -> DataFrame:
        # Checkpointed while they are wrapped, because a checkpoint may spill to disk.
        wrapped = checkpoint(
            map_in_arrow(values, _lookup_batches(self.url, self.pipeline, self.masters, lookup), _WRAPPED)
        )
        with_masters = wrapped.join(F.broadcast(self._masters(values.sparkSession)), "master")
        key = unwrap(F.col("wrapped"), F.col("key_id"), F.col("_ingest_secret"))
        keys = with_masters.select(F.col("owner").alias(OWNER), F.col("key_id").alias(KEY_ID), key.alias(KEY))
        # Without the hint a join with the keys would shuffle all of its rows.
        return F.broadcast(keys) if wrapped.count() <= _MOST_BROADCAST else keys

    def _masters(self, spark: SparkSession) -> DataFrame:
        return local_rows(spark, [{"master": v, "_ingest_secret": s} for v, s in self.masters.items()], _MASTERS)


def read_master_keys(path: str) -> dict[int, bytes]:
    """Returns version → master key. Raises ConfigError if the file holds anything but keys of 32 bytes."""
    found = dict(read_secrets(path))
    if any(len(secret) != _MASTER_BYTES for secret in found.values()):
        raise ConfigError(
            f"{path} holds a master key that is not one of {_MASTER_BYTES} bytes",
            "make one with: openssl rand -hex 32",
        )
    return found


def _store(url: str, pipeline: str, masters: Mapping[int, bytes]) -> KeyStore:
    # Imported here because loading SQLAlchemy would slow every command that shreds nothing.
    from ingest.shredding.key_store import KeyStore

    return KeyStore(url, pipeline, masters)


def _lookup_batches(
    url: str, pipeline: str, masters: Mapping[int, bytes], lookup: _Lookup
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function over Arrow batches that looks keys up over one connection per task."""

    def data_keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = _store(url, pipeline, masters)
        try:
            for batch in batches:
                rows = [vars(key) for key in lookup(store, batch.column(0).to_pylist())]
                yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)
        finally:
            store.close()

    return data_keys


_ARROW = pa.schema([("owner", pa.string()), ("key_id", pa.string()), ("master", pa.int32()), ("wrapped", pa.binary())])
