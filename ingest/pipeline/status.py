"""The status of a pipeline: its position, its schema changes, and for each table the counts of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from ingest.batches.rules import Rules
from ingest.changelog.accounting import CAUGHT_UP
from ingest.changelog.change import POSITION_COLUMN, column_position, quoted
from ingest.changelog.envelope import BATCH
from ingest.changelog.position import is_read_without_position, position_literal
from ingest.config import Pipeline
from ingest.evolution.definition import Place
from ingest.lakehouse.accounts import Accounts, SetAside
from ingest.lakehouse.backfills import Backfills
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.catalog import Catalog, CatalogEntry
from ingest.lakehouse.quarantine import Quarantine
from ingest.lakehouse.silver import Silver
from ingest.lakehouse.tombstones import Tombstones
from ingest.names import Lakehouse
from ingest.pipeline.composition import rules_of
from ingest.pipeline.lag import SourceLag, lag_of
from ingest.pipeline.ledger_guard import LedgerReport, ledger_report
from ingest.pipeline.schema_changes import SchemaChange, schema_changes
from ingest.suppression.personal_names import gone_columns


@dataclass(frozen=True)
class TableStatus:
    """Counts of rows. `pending`: rows never seen whole, which are not in silver. `quarantined`: events that wait for a
    decision. `refold`: why the table has to be folded from its events again; empty if it need not. `unknown`: column →
    number of rows that read null in it, where the source may have a value that no event shows. `assumed`: column →
    number of rows whose value in it follows from schemas of events alone. `gone`: (setting, column) pairs of columns
    that settings of personal data name and that newer events lack."""

    table: str
    primary_key: tuple[str, ...]
    rows: int
    pending: int
    tombstones: int
    quarantined: int
    path: str
    refold: str = ""
    unknown: Mapping[str, int] = field(default_factory=dict)
    assumed: Mapping[str, int] = field(default_factory=dict)
    gone: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class LastBatch:
    """The slice that was merged last. `upto`: its last capture batch. `events`: how many it read."""

    upto: int
    at: datetime
    events: int


@dataclass(frozen=True)
class Status:
    """`captured`, `merged`: the last capture batch in bronze and in silver. `quarantined`: code → events, with and
    without a table. `set_aside`: tables that can't be merged as they are, by name. `set_aside_by_backfills`: the same
    for each unfinished backfill, by its number. `lag`: None if the source was not asked. `ledger`: of erasures; None if
    the file has no `privacy`. `emptied`: number of events of erased subjects that bronze holds without their
    content."""

    pipeline: str
    captured: int
    merged: int
    records: int
    quarantined: dict[str, int]
    tables: list[TableStatus]
    last_batch: LastBatch | None
    schema_changes: list[SchemaChange]
    set_aside: dict[str, SetAside]
    set_aside_by_backfills: dict[int, dict[str, SetAside]]
    lag: SourceLag | None = None
    ledger: LedgerReport | None = None
    emptied: int = 0

    @property
    def waiting(self) -> int:
        """Returns the number of batches that are captured and not merged."""
        return max(0, self.captured - self.merged)


def status(spark: SparkSession, pipeline: str, lakehouse: Lakehouse, source: Pipeline | None = None) -> Status:
    """Returns the status from the pipeline's tables; writes nothing. `source`: the pipeline whose source is asked for
    the lag."""
    # Accounts are read before bronze: otherwise a running stream could have merged more than `captured` says.
    accounts = Accounts(spark, lakehouse.accounts, pipeline)
    last = _last_batch(accounts)
    merged = last.upto if last else 0
    bronze = Bronze(spark, lakehouse.bronze(pipeline))
    bronze_counts = bronze.rows().agg(F.max(BATCH), F.count(F.lit(1))).first()
    assert bronze_counts is not None
    found = Quarantine(spark, lakehouse.quarantine, pipeline).rows().groupBy("table", "code").count().collect()
    codes: dict[str, int] = {}
    of_table: dict[str, int] = {}
    for row in found:  # a row per table and code
        codes[row["code"]] = codes.get(row["code"], 0) + row["count"]
        of_table[row["table"]] = of_table.get(row["table"], 0) + row["count"]
    catalog = Catalog(spark, lakehouse.tables)
    entries = catalog.entries(pipeline)
    ledger = None if source is None else ledger_report(spark, source)
    rules = None if source is None else rules_of(source)
    return Status(
        pipeline=pipeline,
        captured=bronze_counts[0] or 0,
        merged=merged,
        records=bronze_counts[1],
        quarantined=dict(sorted(codes.items())),
        tables=[
            _table(spark, pipeline, lakehouse, entry, of_table.get(entry.table_schema.table, 0), rules)
            for entry in entries
        ],
        last_batch=last,
        schema_changes=schema_changes(catalog.revisions(pipeline)),
        set_aside=dict(sorted(accounts.set_aside().items())),
        set_aside_by_backfills=_set_aside_by_backfills(spark, pipeline, lakehouse),
        lag=None if source is None else lag_of(bronze, source, merged),
        ledger=ledger,
        emptied=_emptied(spark, pipeline, lakehouse) if ledger is not None and ledger.requests else 0,
    )


def _emptied(spark: SparkSession, pipeline: str, lakehouse: Lakehouse) -> int:
    backfills = Backfills(spark, lakehouse.backfills, pipeline).all()
    paths = [lakehouse.bronze(pipeline), *(lakehouse.backfilled(pipeline, one.number) for one in backfills)]
    return sum(Bronze(spark, path).emptied().count() for path in paths)


def _set_aside_by_backfills(spark: SparkSession, pipeline: str, lakehouse: Lakehouse) -> dict[int, dict[str, SetAside]]:
    unfinished = [one for one in Backfills(spark, lakehouse.backfills, pipeline).all() if one.ended_at is None]
    found = {one.number: Accounts(spark, lakehouse.accounts, one.writer).set_aside() for one in unfinished}
    return {number: dict(sorted(tables.items())) for number, tables in found.items() if tables}


def _last_batch(accounts: Accounts) -> LastBatch | None:
    slices = (
        accounts.rows()
        .where(~F.col("standing").eqNullSafe(CAUGHT_UP))
        .groupBy("upto_batch")
        .agg(F.max(F.unix_millis("committed_at")).alias("at"), F.sum("read").alias("events"))
    )
    row = slices.orderBy(F.desc("upto_batch")).first()
    return None if row is None else LastBatch(row.upto_batch, datetime.fromtimestamp(row["at"] / 1000, UTC), row.events)


def _table(
    spark: SparkSession,
    pipeline: str,
    lakehouse: Lakehouse,
    entry: CatalogEntry,
    quarantined: int,
    rules: Rules | None,
) -> TableStatus:
    name = entry.table_schema.table
    path = lakehouse.silver(pipeline, name)
    silver, pending = Silver(spark, path), Silver(spark, lakehouse.pending(pipeline, name))
    tombstones = Tombstones(spark, lakehouse.tombstones(pipeline, name))
    # A state without a position was carried over from another key and is no row yet.
    waiting = pending.rows().where(F.col(POSITION_COLUMN).isNotNull()).count() if pending.exists() else 0
    rows, unknown, assumed = _rows(silver, entry) if silver.exists() else (0, {}, {})
    counts = (rows, waiting, tombstones.count(), quarantined)
    gone = () if rules is None else gone_columns(rules.personal_columns(name), entry.lives)
    return TableStatus(name, entry.table_schema.key, *counts, path, entry.refold, unknown, assumed, gone)


def _rows(silver: Silver, entry: CatalogEntry) -> tuple[int, dict[str, int], dict[str, int]]:
    """Returns the number of rows, `TableStatus.unknown` and `TableStatus.assumed`. Once a resync has read a row again,
    its values are as new as the read."""
    rows = silver.rows()
    unknown, assumed = (
        {name: at for name, at in below.items() if name in rows.columns}
        for below in (entry.lives.unknown_below, entry.lives.assumed_below)
    )
    is_null = (quoted(name).isNull() & _is_older(name, at) for name, at in unknown.items())
    is_older = (_is_older(name, at) for name, at in assumed.items())
    counted = rows.agg(F.count(F.lit(1)), *map(F.count_if, is_null), *map(F.count_if, is_older)).first()
    assert counted is not None
    total, *numbers = counted
    return total, _counts(unknown, numbers[: len(unknown)]), _counts(assumed, numbers[len(unknown) :])


def _counts(names: Iterable[str], numbers: Iterable[int]) -> dict[str, int]:
    return {name: number for name, number in zip(names, numbers, strict=True) if number}


def _is_older(name: str, below: Place) -> Column:
    at = column_position(name)
    return F.coalesce((at < position_literal(below)) & ~is_read_without_position(at), F.lit(False))
