"""Other table formats, each used in its own way.

None of them keeps deleted keys: a late event would restore a deleted row, and the result would be wrong. So a delete is
written as a row with `gone` and its position, and readers leave such rows out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from tests.bench.contenders import BatchQueue, newest_per_key, parse
from tests.bench.workload import COLUMNS, IMAGE

CATALOG = "peer"
_TABLE = f"{CATALOG}.race.orders"
_ROW = f"{IMAGE}, lsn bigint, gone boolean"


class _InSpark:
    """Base of the contenders that use Spark."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._queue = BatchQueue(spark, folder)

    def enqueue(self, batch: DataFrame) -> None:
        self._queue.add(batch)


class _InCatalog(_InSpark):
    """Base of the contenders whose tables are in a catalog, here a folder."""

    using: ClassVar[str]
    columns: ClassVar[str] = _ROW
    properties: ClassVar[dict[str, str]]

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        # The catalog reads this when it is first used, below.
        spark.conf.set(f"spark.sql.catalog.{CATALOG}.warehouse", f"file:{folder}/warehouse")
        properties_sql = ", ".join(f"'{key}' = '{value}'" for key, value in self.properties.items())
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.race")
        spark.sql(f"CREATE TABLE {_TABLE} ({self.columns}) USING {self.using} TBLPROPERTIES ({properties_sql})")

    def rows(self) -> DataFrame:
        return self._spark.table(_TABLE).where("NOT gone").select(*COLUMNS)


class Iceberg(_InCatalog):
    """MERGE INTO a merge-on-read table."""

    using = "iceberg"
    properties: ClassVar = {
        "format-version": "2",
        "write.format.default": "parquet",
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.merge.mode": "merge-on-read",
    }

    def load(self, snapshot: DataFrame) -> None:
        parse(snapshot).writeTo(_TABLE).append()

    def apply(self) -> None:
        newest_per_key(parse(self._queue.next())).createOrReplaceTempView("changes")
        self._spark.sql(
            f"MERGE INTO {_TABLE} t USING changes s ON t.id = s.id "
            "WHEN MATCHED AND s.lsn > t.lsn THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )


class Paimon(_InCatalog):
    """A primary-key table that keeps the row with the highest lsn per key."""

    using = "paimon"
    columns = _ROW.replace("id bigint", "id bigint NOT NULL", 1)
    properties: ClassVar = {
        "primary-key": "id",
        "bucket": "2",
        "merge-engine": "deduplicate",
        "sequence.field": "lsn",
        "file.format": "parquet",
        "changelog-producer": "none",
    }

    def load(self, snapshot: DataFrame) -> None:
        parse(snapshot).write.insertInto(_TABLE)

    def apply(self) -> None:
        parse(self._queue.next()).write.insertInto(_TABLE)


class Hudi(_InSpark):
    """Upserts into a merge-on-read table with a bucket index; the change with the higher lsn wins."""

    _OPTIONS: ClassVar = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "lsn",
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "SIMPLE",
        "hoodie.bucket.index.num.buckets": "2",
        "hoodie.upsert.shuffle.parallelism": "2",
        # On local files a listing is cheaper than the metadata table. The timeline server would have no clients.
        "hoodie.metadata.enable": "false",
        "hoodie.embed.timeline.server": "false",
    }

    def load(self, snapshot: DataFrame) -> None:
        self._upsert(parse(snapshot))

    def apply(self) -> None:
        self._upsert(parse(self._queue.next()))

    def rows(self) -> DataFrame:
        return self._spark.read.format("hudi").load(self._path).where("NOT gone").select(*COLUMNS)

    @property
    def _path(self) -> str:
        return f"file:{self._folder}/table"

    def _upsert(self, changes: DataFrame) -> None:
        changes.write.format("hudi").options(**self._OPTIONS).mode("append").save(self._path)


class DeltaRs:
    """DuckDB reads the records, delta-rs merges. Spark is used only outside of the timed part."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._path = str(folder / "table")
        self._queue = BatchQueue(spark, folder)

    def load(self, snapshot: DataFrame) -> None:
        from deltalake import write_deltalake

        self._queue.add(snapshot)
        write_deltalake(self._path, _newest_by_duckdb(self._queue.next_path()), mode="append")

    def enqueue(self, batch: DataFrame) -> None:
        self._queue.add(batch)

    def apply(self) -> None:
        from deltalake import DeltaTable

        changes = _newest_by_duckdb(self._queue.next_path())
        values = {column: f"s.{column}" for column in (*COLUMNS, "lsn", "gone")}
        merge = DeltaTable(self._path).merge(changes, "t.id = s.id", "s", "t", streamed_exec=False)
        merge.when_matched_update(values, "s.lsn > t.lsn").when_not_matched_insert(values).execute()

    def rows(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._path).where("NOT gone").select(*COLUMNS)


def _newest_by_duckdb(folder: str) -> Any:
    """Returns the newest change per key of a batch, as an Arrow table."""
    import duckdb

    types = {"bigint": "BIGINT", "double": "DOUBLE", "string": "VARCHAR", "boolean": "BOOLEAN"}
    image = {name: types[kind] for name, kind in (column.split() for column in IMAGE.split(", "))}
    envelope = {"before": {"id": "BIGINT"}, "after": image, "op": "VARCHAR", "source": {"lsn": "BIGINT"}}
    opened = f"SELECT from_json(decode(value), '{json.dumps(envelope)}') AS e FROM '{folder}/*.parquet'"
    keyed = f"SELECT coalesce(e.after.id, e.before.id) AS id, e, e.source.lsn AS lsn FROM ({opened})"
    last = f"SELECT id, max(lsn) AS lsn, arg_max(e, lsn) AS e FROM ({keyed}) GROUP BY id"
    columns = ", ".join(f"e.after.{name} AS {name}" for name in COLUMNS[1:])
    return duckdb.sql(f"SELECT id, {columns}, lsn, e.op = 'd' AS gone FROM ({last})").to_arrow_table()
