"""Proves that silver equals its events: recomputes it from the beginning and compares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.backfill.digests import entry_digest, history_digest
from ingest.backfill.recomputing import recompute_tables
from ingest.backfill.source_readers import source_readers
from ingest.batches.deliveries import ReaderEvents, count_row_deliveries
from ingest.changelog.accounting import Account
from ingest.changelog.change import content_hash, quoted
from ingest.changelog.envelope import CHANGES, key_json
from ingest.config import Pipeline
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.catalog import Catalog, CatalogEntry
from ingest.lakehouse.silver import Silver
from ingest.merge.table_schema import TableSchema
from ingest.names import Lakehouse
from ingest.pipeline.composition import bronze_of, rules_of
from ingest.quality.digest import Digest
from ingest.reconcile.scd2 import row_history_of
from ingest.spark.local_rows import local_rows

_MAX_SHOWN = 10
_KEY_PART = T.StructType(
    [
        T.StructField("_number", T.LongType()),
        T.StructField("_name", T.StringType()),
        T.StructField("_value", T.StringType()),
    ]
)


@dataclass(frozen=True)
class Difference:
    """A key whose live row differs from the recomputed one. `live`, `folded`: hashes of their contents; None if there
    is no such row."""

    key: dict[str, str | None]
    live: str | None
    folded: str | None
    events: list[str] = field(default_factory=list)
    """The coordinates of the events with this key: topic, partition, offset and op."""


@dataclass(frozen=True)
class Proof:
    """`live`, `folded`: digests of the live and the recomputed table. `differences`: the first ones. `history`: True if
    the row versions equal the recomputed ones; None if the pipeline keeps none."""

    table: str
    upto_batch: int
    live: Digest | None
    folded: Digest | None
    differences: list[Difference]
    history: bool | None = None
    deliveries: int | None = None
    """For a table without a key: the number of distinct records, by their coordinates, that insert a row."""

    @property
    def equal(self) -> bool:
        """Returns True if rows and row history are equal and no record is counted twice."""
        return self.rows_equal and self.history is not False and not self.counted_twice

    @property
    def counted_twice(self) -> bool:
        """Returns True if the live or the recomputed table has more rows than records were delivered."""
        rows = max((digest.rows for digest in (self.live, self.folded) if digest is not None), default=0)
        return self.deliveries is not None and rows > self.deliveries

    @property
    def rows_equal(self) -> bool:
        """Returns True if both tables hold the same rows."""
        return _is_equal(self.live, self.folded)


def _is_equal(one: Digest | None, other: Digest | None) -> bool:
    """Returns True for equal digests, or if both tables are absent or empty: nothing is recomputed for a table whose
    events were all erased."""
    return one == other or not ((one and one.rows) or (other and other.rows))


def prove(
    spark: SparkSession,
    pipeline: Pipeline,
    scratch: Lakehouse,
    tables: Sequence[str] = (),
    report: Callable[[Sequence[Account]], None] = lambda _: None,
) -> list[Proof]:
    """Returns a proof for each table. `scratch`: an empty place for the recomputed tables. A stream may run
    meanwhile."""
    accounts = Accounts(spark, pipeline.layout.accounts, pipeline.name)
    # A table that is set aside is compared as of the last batch that it has merged.
    last_merged = {t: table.after for t, table in accounts.set_aside().items() if not tables or t in tables}
    found = _prove_tables(spark, pipeline, scratch, accounts.merged_through(), tables, report, last_merged)
    for number, (table, after) in enumerate(last_merged.items()):
        if after:
            own_scratch = scratch.scratch(f"set-aside-{number}")
            found += _prove_tables(spark, pipeline, own_scratch, after, (table,), report)
    return sorted(found, key=lambda proof: proof.table)


def _prove_tables(
    spark: SparkSession,
    pipeline: Pipeline,
    scratch: Lakehouse,
    through_batch: int,
    tables: Sequence[str],
    report: Callable[[Sequence[Account]], None],
    without: Collection[str] = (),
) -> list[Proof]:
    live = _table_sides(spark, pipeline, pipeline.layout, through_batch)
    rules = rules_of(pipeline)
    recompute_tables(
        spark,
        pipeline,
        scratch,
        tables,
        report=report,
        through_batch=through_batch,
        history=rules.history,
        without=without,
    )
    recomputed = _table_sides(spark, pipeline, scratch, through_batch)
    absent = _TableSide()
    found = []
    tables_found = (live.keys() | recomputed.keys()) - set(without)
    for table in sorted(tables_found & (set(tables) or tables_found)):
        one, other = live.get(table, absent), recomputed.get(table, absent)
        digests = (one.digest, other.digest)
        differences = (
            [] if _is_equal(*digests) else _differences_with_events(spark, pipeline, table, through_batch, one, other)
        )
        history = _is_equal(one.history, other.history) if table in rules.history else None
        entry = one.entry or other.entry
        is_keyless = entry is not None and not entry.table_schema.key
        count = count_row_deliveries(_captured_events(spark, pipeline, through_batch), table) if is_keyless else None
        found.append(Proof(table, through_batch, *digests, differences, history, count))
    return found


def _captured_events(spark: SparkSession, pipeline: Pipeline, through_batch: int) -> list[ReaderEvents]:
    """Returns the events that any reader has captured; those of the stream only up to its batch `through_batch`."""
    rules = rules_of(pipeline)
    found = []
    for reader in source_readers(spark, pipeline):
        bronze = reader.bronze(spark, rules)
        is_stream = reader.writer == pipeline.name
        found.append(ReaderEvents(bronze, bronze.between(0, through_batch) if is_stream else bronze.rows()))
    return found


@dataclass(frozen=True)
class _TableSide:
    """A table, live or recomputed."""

    entry: CatalogEntry | None = None
    rows: DataFrame | None = None
    versions: DataFrame | None = None

    @property
    def digest(self) -> Digest | None:
        return None if self.entry is None or self.rows is None else entry_digest(self.entry, self.rows)

    @property
    def history(self) -> Digest | None:
        return None if self.entry is None or self.versions is None else history_digest(self.entry, self.versions)


def _table_sides(
    spark: SparkSession, pipeline: Pipeline, layout: Lakehouse, through_batch: int
) -> dict[str, _TableSide]:
    """Returns table → its state in the lakehouse `layout` as of the pipeline's batch `through_batch`."""

    def as_of(table: Silver) -> DataFrame | None:
        return table.rows(str(table.version_at(pipeline.name, through_batch))) if table.exists() else None

    found = {}
    names = rules_of(pipeline).names
    for entry in Catalog(spark, layout.tables).entries(pipeline.name):
        if not names.is_named_by(entry.table_schema.table, entry.origin):
            continue
        versions = row_history_of(spark, layout, pipeline.name, entry.table_schema.table).versions
        silver = Silver(spark, layout.silver(pipeline.name, entry.table_schema.table))
        found[entry.table_schema.table] = _TableSide(entry, as_of(silver), as_of(versions))
    return found


def _differences_with_events(
    spark: SparkSession, pipeline: Pipeline, table: str, through_batch: int, live: _TableSide, recomputed: _TableSide
) -> list[Difference]:
    """Returns the first differences with their events."""
    if live.entry is None or live.rows is None or recomputed.rows is None:
        return []
    found = _differences(live.rows, recomputed.rows, live.entry.table_schema)
    if not live.entry.table_schema.key or not found:
        return found
    events = events_of_keys(bronze_of(spark, pipeline).between(0, through_batch), table, [d.key for d in found])
    return [replace(d, events=e) for d, e in zip(found, events, strict=True)]


def _differences(live: DataFrame, recomputed: DataFrame, table_schema: TableSchema) -> list[Difference]:
    """Returns the first differences by key; for a table without a key, by whole rows."""
    columns = [c for c in table_schema.names if c in live.columns and c in recomputed.columns]
    key = [k for k in table_schema.key if k in columns] or columns
    sides = []
    for side, rows in (("live", live), ("folded", recomputed)):
        # One row per key; a table without a key may hold equal rows several times.
        contents = F.array_join(F.sort_array(F.collect_list(F.hex(content_hash(columns)))), ",")
        sides.append(rows.groupBy(*map(quoted, key)).agg(F.sha2(contents, 256).alias(side)))
    one, other = (
        side.toDF(*(f"{kind}_{n}" for n in range(len(key))), kind)
        for kind, side in zip(("live", "folded"), sides, strict=True)
    )
    numbers = range(len(key))
    same_key = reduce(lambda a, b: a & b, (F.col(f"live_{n}").eqNullSafe(F.col(f"folded_{n}")) for n in numbers))
    key_texts = [F.coalesce(f"live_{n}", f"folded_{n}").cast("string").alias(f"key_{n}") for n in numbers]
    differing = one.join(other, same_key, "full_outer").where(~F.col("live").eqNullSafe(F.col("folded")))
    first = differing.select(*key_texts, "live", "folded").orderBy(*(f"key_{n}" for n in numbers)).limit(_MAX_SHOWN)
    found = first.collect()  # at most _MAX_SHOWN rows
    return [Difference({k: r[f"key_{n}"] for n, k in enumerate(key)}, r["live"], r["folded"]) for r in found]


def events_of_keys(bronze: DataFrame, table: str, keys: Sequence[Mapping[str, str | None]]) -> list[list[str]]:
    """Returns for each key the coordinates of the events whose record key holds it."""
    spark = bronze.sparkSession
    key_parts = [{"_number": n, "_name": k, "_value": v} for n, key in enumerate(keys) for k, v in key.items()]
    searched = F.broadcast(local_rows(spark, key_parts, _KEY_PART))
    changes = bronze.where((F.col("source_table") == table) & F.col("op").isin(*CHANGES))
    changes = changes.withColumn("_key_json", key_json(F.col("key")))
    value = F.element_at(F.from_json("_key_json", "map<string,string>"), F.col("_name"))
    parts = changes.join(searched, value.eqNullSafe(F.col("_value")))
    matches = parts.groupBy("_number", "topic", "partition", "offset", "op").count()
    events = matches.where(F.col("count") == len(keys[0])).orderBy("_number", "topic", "partition", "offset")
    found: list[list[str]] = [[] for _ in keys]
    for r in events.limit(_MAX_SHOWN * _MAX_SHOWN).collect():  # bounded
        found[r["_number"]].append(f"{r['topic']} {r['partition']}@{r['offset']} {r['op']}")
    return found
