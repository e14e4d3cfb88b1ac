"""Other table formats, each fed and used by its own means.

None of them remembers a deleted row: what is older and comes later would bring it back. So each keeps a deleted row as
a mark (`gone`) with its position, and its readers leave marks out; otherwise its result would be wrong, and not count.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from tests.bench.contenders import Waiting, newest, parsed
from tests.bench.workload import COLUMNS, IMAGE

CATALOG = "peer"
_TABLE = f"{CATALOG}.race.orders"
_ROW = f"{IMAGE}, lsn bigint, gone boolean"


class _InSpark:
    """What the peers in Spark share."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._waiting = Waiting(spark, folder)

    def hand_over(self, batch: DataFrame) -> None:
        self._waiting.add(batch)


class _InCatalog(_InSpark):
    """Those whose tables lie in a catalogue: a folder here."""

    using: ClassVar[str]
    columns: ClassVar[str] = _ROW
    properties: ClassVar[dict[str, str]]

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        # Read when the catalogue is first used, which is now.
        spark.conf.set(f"spark.sql.catalog.{CATALOG}.warehouse", f"file:{folder}/warehouse")
        said = ", ".join(f"'{key}' = '{value}'" for key, value in self.properties.items())
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.race")
        spark.sql(f"CREATE TABLE {_TABLE} ({self.columns}) USING {self.using} TBLPROPERTIES ({said})")

    def rows(self) -> DataFrame:
        return self._spark.table(_TABLE).where("NOT gone").select(*COLUMNS)


class Iceberg(_InCatalog):
    """MERGE INTO a table that is merged on read."""

    using = "iceberg"
    properties: ClassVar = {
        "format-version": "2",
        "write.format.default": "parquet",
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.merge.mode": "merge-on-read",
    }

    def load(self, snapshot: DataFrame) -> None:
        parsed(snapshot).writeTo(_TABLE).append()

    def apply(self) -> None:
        newest(parsed(self._waiting.next())).createOrReplaceTempView("changes")
        self._spark.sql(
            f"MERGE INTO {_TABLE} t USING changes s ON t.id = s.id "
            "WHEN MATCHED AND s.lsn > t.lsn THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )


class Paimon(_InCatalog):
    """A table with a primary key: of a key the row with the highest lsn stays, whatever came last."""

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
        parsed(snapshot).write.insertInto(_TABLE)

    def apply(self) -> None:
        parsed(self._waiting.next()).write.insertInto(_TABLE)


class Hudi(_InSpark):
    """Upserts into a table that is merged on read; a hash tells the bucket of a key, and of two changes the one with
    the higher lsn stays."""

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
        # On local files a listing is cheaper than a table of files; a server within the driver serves nobody else.
        "hoodie.metadata.enable": "false",
        "hoodie.embed.timeline.server": "false",
    }

    def load(self, snapshot: DataFrame) -> None:
        self._upsert(parsed(snapshot))

    def apply(self) -> None:
        self._upsert(parsed(self._waiting.next()))

    def rows(self) -> DataFrame:
        return self._spark.read.format("hudi").load(self._path).where("NOT gone").select(*COLUMNS)

    @property
    def _path(self) -> str:
        return f"file:{self._folder}/table"

    def _upsert(self, changes: DataFrame) -> None:
        changes.write.format("hudi").options(**self._OPTIONS).mode("append").save(self._path)


class DeltaRs:
    """No Spark in it: DuckDB opens the records, delta-rs merges. Where no clock runs Spark is asked."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._path = str(folder / "table")
        self._waiting = Waiting(spark, folder)

    def load(self, snapshot: DataFrame) -> None:
        from deltalake import write_deltalake

        self._waiting.add(snapshot)
        write_deltalake(self._path, _newest_by_duckdb(self._waiting.next_path()), mode="append")

    def hand_over(self, batch: DataFrame) -> None:
        self._waiting.add(batch)

    def apply(self) -> None:
        from deltalake import DeltaTable

        changes = _newest_by_duckdb(self._waiting.next_path())
        values = {column: f"s.{column}" for column in (*COLUMNS, "lsn", "gone")}
        merge = DeltaTable(self._path).merge(changes, "t.id = s.id", "s", "t", streamed_exec=False)
        merge.when_matched_update(values, "s.lsn > t.lsn").when_not_matched_insert(values).execute()

    def rows(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._path).where("NOT gone").select(*COLUMNS)


def _newest_by_duckdb(folder: str) -> Any:
    """The newest change of each key in a batch, as an Arrow table."""
    import duckdb

    types = {"bigint": "BIGINT", "double": "DOUBLE", "string": "VARCHAR", "boolean": "BOOLEAN"}
    image = {name: types[kind] for name, kind in (column.split() for column in IMAGE.split(", "))}
    envelope = {"before": {"id": "BIGINT"}, "after": image, "op": "VARCHAR", "source": {"lsn": "BIGINT"}}
    opened = f"SELECT from_json(decode(value), '{json.dumps(envelope)}') AS e FROM '{folder}/*.parquet'"
    keyed = f"SELECT coalesce(e.after.id, e.before.id) AS id, e, e.source.lsn AS lsn FROM ({opened})"
    last = f"SELECT id, max(lsn) AS lsn, arg_max(e, lsn) AS e FROM ({keyed}) GROUP BY id"
    columns = ", ".join(f"e.after.{name} AS {name}" for name in COLUMNS[1:])
    return duckdb.sql(f"SELECT id, {columns}, lsn, e.op = 'd' AS gone FROM ({last})").to_arrow_table()
