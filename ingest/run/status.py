"""Where a pipeline stands: how far it has come, and for each table what is live, what waits, what is remembered."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.changelog.change import POSITION_COLUMN
from ingest.changelog.envelope import BATCH
from ingest.names import Lakehouse
from ingest.tables.accounts import Accounts
from ingest.tables.bronze import Bronze
from ingest.tables.catalog import Catalog, Entry
from ingest.tables.quarantine import Quarantine
from ingest.tables.silver import Silver
from ingest.tables.tombstones import Tombstones


@dataclass(frozen=True)
class TableStatus:
    """Counts of rows. `pending`: never seen whole, so not shown. `quarantined`: events that wait for a decision."""

    table: str
    primary_key: tuple[str, ...]
    rows: int
    pending: int
    tombstones: int
    quarantined: int
    path: str


@dataclass(frozen=True)
class Status:
    """`captured`, `merged`: numbers of the last capture batch in bronze, and of the last one in silver. `quarantined`:
    code → events, of all tables and of none."""

    pipeline: str
    captured: int
    merged: int
    records: int
    quarantined: dict[str, int]
    tables: list[TableStatus]


def status(spark: SparkSession, pipeline: str, lakehouse: Lakehouse) -> Status:
    """Reads the pipeline's tables; writes nothing."""
    told = Bronze(spark, lakehouse.bronze(pipeline)).rows().agg(F.max(BATCH), F.count(F.lit(1))).first()
    assert told is not None
    found = Quarantine(spark, lakehouse.quarantine, pipeline).rows().groupBy("table", "code").count().collect()
    codes: dict[str, int] = {}
    of_table: dict[str, int] = {}
    for row in found:  # a row per table and code
        codes[row["code"]] = codes.get(row["code"], 0) + row["count"]
        of_table[row["table"]] = of_table.get(row["table"], 0) + row["count"]
    entries = Catalog(spark, lakehouse.tables).entries(pipeline)
    tables = [_table(spark, pipeline, lakehouse, entry, of_table.get(entry.shape.table, 0)) for entry in entries]
    merged = Accounts(spark, lakehouse.accounts, pipeline).merged_upto()
    return Status(pipeline, told[0] or 0, merged, told[1], dict(sorted(codes.items())), tables)


def _table(spark: SparkSession, pipeline: str, lakehouse: Lakehouse, entry: Entry, quarantined: int) -> TableStatus:
    name = entry.shape.table
    silver, pending = Silver(spark, entry.path), Silver(spark, lakehouse.pending(pipeline, name))
    graves = Tombstones(spark, lakehouse.tombstones(pipeline, name))
    # A state without a position was carried over from another key and is no row yet.
    waiting = pending.rows().where(F.col(POSITION_COLUMN).isNotNull()).count() if pending.exists() else 0
    rows = silver.rows().count() if silver.exists() else 0
    return TableStatus(name, entry.shape.key, rows, waiting, graves.count(), quarantined, entry.path)
