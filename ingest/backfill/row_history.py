"""The history of one row: each event with its key, when it was committed, and what it changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.backfill.recomputing import recompute_tables
from ingest.changelog.change import DELETED, POSITION_COLUMN, SOURCE_TS, quoted
from ingest.changelog.envelope import RESYNCED, key_json
from ingest.config import Pipeline
from ingest.errors import ConfigError
from ingest.lakehouse.catalog import Catalog, CatalogEntry
from ingest.lakehouse.row_history import ARRIVED
from ingest.lakehouse.schema_history import SchemaHistory
from ingest.merge.row_versions import UNTIL, VALID_FROM, VALID_TO
from ingest.merge.table_schema import TableSchema
from ingest.names import Lakehouse
from ingest.pipeline.composition import rules_of
from ingest.reconcile.scd2 import RowHistory, row_history_of
from ingest.spark.local_rows import local_rows
from ingest.values.render import json_object, rendered
from ingest.values.types import spark_type

APPEARS, CHANGES, VANISHES, REPEATED, INCOMPLETE = (
    "appears",
    "changes",
    "vanishes",
    "is sent again",
    "waits for columns",
)
_MAX_EVENTS = 10_000
"""The maximum number of events shown for a row."""

Values = Mapping[str, Any]
Position = tuple[int, ...]


@dataclass(frozen=True)
class RowEvent:
    """One event of a row. `at`: the time of the commit at the source. `position`: as in `changelog.position`, offset
    and partition last. `changed`: column → value before and after."""

    what: str
    at: datetime | None
    position: Position
    changed: dict[str, tuple[Any, Any]] = field(default_factory=dict)


def row_events(
    spark: SparkSession, pipeline: Pipeline, table: str, key: Mapping[str, str], scratch: Lakehouse
) -> list[RowEvent]:
    """Returns the events of a row in the source's order. Reads the row history that the pipeline keeps for the table;
    without one, recomputes it in `scratch`, an empty place, from the events in bronze with this key.

    Raises ConfigError for a table that the lakehouse doesn't have, or a key with other columns than the table's.
    """
    entry = Catalog(spark, pipeline.layout.tables).entry(pipeline.name, table)
    table_schema = entry.table_schema
    if not table_schema.key:
        raise ConfigError(f"table {table} has no key", "only rows of a table with a key have a history")
    if set(key) != set(table_schema.key):
        example = " ".join(f"{column}=…" for column in table_schema.key)
        raise ConfigError(
            f"the key of {table} is {', '.join(table_schema.key)}",
            f"name each of its columns once, such as: {table} {example}",
        )
    history = row_history_of(spark, pipeline.layout, pipeline.name, table)
    if table not in rules_of(pipeline).history or not history.versions.exists():
        entries = recompute_tables(
            spark,
            pipeline,
            scratch,
            (table,),
            lambda _: _events_of_key(entry, rules_of(pipeline).column_renames.get(table, {}), key),
            history=(table,),
            known_messages=SchemaHistory(spark, pipeline.layout.schemas, pipeline.name),
        )
        history = row_history_of(spark, scratch, pipeline.name, table)
        _evolve_to(history, entries, entry)
    return _stored_events(spark, history, table_schema, key) if history.changes.exists() else []


def _evolve_to(history: RowHistory, entries: Sequence[CatalogEntry], entry: CatalogEntry) -> None:
    """Gives a recomputed history the columns and types of the table's `entry`: the key's events may all be from before
    a column was added or widened."""
    for recomputed in entries:
        if recomputed.table_schema.table == entry.table_schema.table:
            altered = entry.altered_since(recomputed)
            if altered or recomputed.table_schema.columns != entry.table_schema.columns:
                after = replace(entry.table_schema, revision=recomputed.revision + 1)
                for table in history.tables:
                    if table.exists():
                        table.evolve(recomputed.table_schema, after, altered)


def _events_of_key(entry: CatalogEntry, renames: Mapping[str, str], key: Mapping[str, str]) -> Column:
    """Returns the filter of the events that may concern the key. Values are compared by their hashes, to keep personal
    values out of query plans. `renames`: column of the event → column of the table, as the pipeline's file declares."""
    record_key = F.from_json(key_json(F.col("key")), "map<string,string>")
    key_parts = (_holds(record_key, _names_in_events(entry, renames, name), value) for name, value in key.items())
    has_key = reduce(lambda one, other: one & other, key_parts)
    is_of_table = F.col("source_table") == entry.table_schema.table
    return F.coalesce(is_of_table & (F.col("op").isin("t", RESYNCED) | has_key), F.lit(False))


def _holds(record_key: Column, names: Iterable[str], value: str) -> Column:
    """Returns true for a key with this value in a column of one of these names, in any case."""
    digest, folded = hashlib.sha256(value.encode()).hexdigest(), sorted({name.lower() for name in names})
    parts = F.map_entries(record_key)
    return F.exists(parts, lambda one: F.lower(one["key"]).isin(folded) & (F.sha2(one["value"], 256) == digest))


def _names_in_events(entry: CatalogEntry, renames: Mapping[str, str], column: str) -> set[str]:
    """Returns the names that events may have for a column of the key."""
    life = entry.lives.shown.get(column)
    told = {step.name for step in life.names} if life is not None else set()
    return {column, *told, *(old for old, new in renames.items() if new == column)}


def _stored_events(
    spark: SparkSession, history: RowHistory, table_schema: TableSchema, key: Mapping[str, str]
) -> list[RowEvent]:
    types = {c.name: spark_type(c.type) for c in table_schema.columns}
    text = T.StructType([T.StructField(k, T.StringType()) for k in table_schema.key])
    searched = local_rows(spark, [key], text).select(*(quoted(k).cast(types[k]).alias(k) for k in table_schema.key))
    key_columns = list(table_schema.key)
    facts = (
        history.changes.matching(searched, key_columns)
        .where(~F.col(ARRIVED))
        .select(DELETED, POSITION_COLUMN, SOURCE_TS)
    )
    ordered = facts.orderBy(POSITION_COLUMN).limit(_MAX_EVENTS)
    values = {c.name: rendered(quoted(c.name), c.type) for c in table_schema.columns}
    versions: list[Row] = []
    if history.versions.exists():
        of_key: DataFrame = history.versions.matching(searched, key_columns)
        span = (POSITION_COLUMN, UNTIL, VALID_FROM, VALID_TO)
        versions = of_key.select(*span, json_object(values).alias("row")).collect()  # of one row
    return row_events_from(ordered.collect(), {tuple(v[POSITION_COLUMN]): v for v in versions})  # of one row


def row_events_from(facts: Sequence[Row], versions: Mapping[Position, Row]) -> list[RowEvent]:
    """Returns the events of a row from its `facts`, ordered by position, and its `versions`, by the position at which
    each began, with their `row` as JSON."""
    events: list[RowEvent] = []
    before: Values | None = None
    for number, fact in enumerate(facts):
        at, following = tuple(fact[POSITION_COLUMN]), facts[number + 1] if number + 1 < len(facts) else None
        version = versions.get(at)
        if fact[DELETED]:
            if before is not None:
                events.append(RowEvent(VANISHES, fact[SOURCE_TS], at))
            before = None
        elif version is None:
            is_repeated = following is not None and _source_position(following) == _source_position(fact)
            events.append(RowEvent(REPEATED if is_repeated else INCOMPLETE, fact[SOURCE_TS], at))
        else:
            row = json.loads(version["row"])
            events.append(RowEvent(CHANGES if before else APPEARS, fact[SOURCE_TS], at, _changed_values(before, row)))
            before = row
            end = version[UNTIL]
            if end is not None and (following is None or tuple(following[POSITION_COLUMN]) > tuple(end)):
                # The version ended without an event of its own: a truncate, or another row took its key.
                events.append(RowEvent(VANISHES, version[VALID_TO], tuple(end)))
                before = None
    return events


def _source_position(fact: Row) -> Position:
    return tuple(fact[POSITION_COLUMN])[:-2]


def _changed_values(before: Values | None, row: Values) -> dict[str, tuple[Any, Any]]:
    old = before or {}
    return {c: (old.get(c), value) for c, value in row.items() if before is None or old.get(c) != value}
