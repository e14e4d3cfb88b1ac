"""The history of one row: each event with its key, when it was committed, and what it changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.backfill.recomputing import recompute_tables
from ingest.changelog.change import DELETED, POSITION_COLUMN, SOURCE_TS, quoted
from ingest.changelog.envelope import key_json
from ingest.changelog.values.render import json_object, rendered
from ingest.changelog.values.types import spark_type
from ingest.config import Pipeline
from ingest.errors import ConfigError
from ingest.lakehouse.catalog import Catalog, CatalogEntry
from ingest.lakehouse.row_history import ARRIVED
from ingest.merge.images import TableSchema
from ingest.merge.row_versions import UNTIL, VALID_FROM, VALID_TO
from ingest.names import Lakehouse
from ingest.pipeline.composition import rules_of
from ingest.reconcile.scd2 import RowHistory, row_history_of
from ingest.spark.local_rows import local_rows

APPEARS, CHANGES, VANISHES, AGAIN, WAITS = "appears", "changes", "vanishes", "is sent again", "waits for columns"
_MOST = 10_000
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
    table_schema = Catalog(spark, pipeline.layout.tables).entry(pipeline.name, table).table_schema
    if not table_schema.key:
        raise ConfigError(f"the key of {table} is none", "its rows can't be told apart, so no single one has a history")
    if set(key) != set(table_schema.key):
        example = " ".join(f"{column}=…" for column in table_schema.key)
        raise ConfigError(
            f"the key of {table} is {', '.join(table_schema.key)}",
            f"name each of its columns once, such as: {table} {example}",
        )
    kept = row_history_of(spark, pipeline.layout, pipeline.name, table)
    if table not in rules_of(pipeline).history or not kept.versions.exists():
        entries = recompute_tables(spark, pipeline, scratch, (table,), lambda _: _names(table, key), history=(table,))
        kept = row_history_of(spark, scratch, pipeline.name, table)
        _complete(kept, entries, table_schema)
    return _steps(spark, kept, table_schema, key) if kept.changes.exists() else []


def _complete(kept: RowHistory, entries: Sequence[CatalogEntry], table_schema: TableSchema) -> None:
    """Gives a recomputed history the columns and types of `table_schema`: the key's events may all be from before a
    column was added or widened."""
    for entry in entries:
        if entry.table_schema.table == table_schema.table and entry.table_schema.columns != table_schema.columns:
            for table in kept.tables:
                if table.exists():
                    table.evolve(entry.table_schema, table_schema)


def _names(table: str, key: Mapping[str, str]) -> Column:
    """Returns the filter of the events that may concern the key. Values are compared by their hashes, to keep personal
    values out of query plans."""
    said = F.from_json(key_json(F.col("key")), "map<string,string>")
    same = (F.sha2(said[name], 256) == hashlib.sha256(value.encode()).hexdigest() for name, value in key.items())
    mine = reduce(lambda one, other: one & other, same)
    return F.coalesce((F.col("source_table") == table) & ((F.col("op") == "t") | mine), F.lit(False))


def _steps(spark: SparkSession, kept: RowHistory, table_schema: TableSchema, key: Mapping[str, str]) -> list[RowEvent]:
    types = {c.name: spark_type(c.type) for c in table_schema.columns}
    text = T.StructType([T.StructField(k, T.StringType()) for k in table_schema.key])
    mine = local_rows(spark, [key], text).select(*(quoted(k).cast(types[k]).alias(k) for k in table_schema.key))
    named = list(table_schema.key)
    facts = kept.changes.matching(mine, named).where(~F.col(ARRIVED)).select(DELETED, POSITION_COLUMN, SOURCE_TS)
    ordered = facts.orderBy(POSITION_COLUMN).limit(_MOST)
    values = {c.name: rendered(quoted(c.name), c.type) for c in table_schema.columns}
    versions: list[Row] = []
    if kept.versions.exists():
        told: DataFrame = kept.versions.matching(mine, named)
        span = (POSITION_COLUMN, UNTIL, VALID_FROM, VALID_TO)
        versions = told.select(*span, json_object(values).alias("row")).collect()  # of one row
    return row_events_from(ordered.collect(), {tuple(v[POSITION_COLUMN]): v for v in versions})  # of one row


def row_events_from(facts: Sequence[Row], versions: Mapping[Position, Row]) -> list[RowEvent]:
    """Returns the steps of a row from its `facts`, ordered by position, and its `versions`, by the position at which
    each began, with their `row` as JSON."""
    steps: list[RowEvent] = []
    before: Values | None = None
    for number, fact in enumerate(facts):
        at, following = tuple(fact[POSITION_COLUMN]), facts[number + 1] if number + 1 < len(facts) else None
        version = versions.get(at)
        if fact[DELETED]:
            if before is not None:
                steps.append(RowEvent(VANISHES, fact[SOURCE_TS], at))
            before = None
        elif version is None:
            again = following is not None and _place(following) == _place(fact)
            steps.append(RowEvent(AGAIN if again else WAITS, fact[SOURCE_TS], at))
        else:
            row = json.loads(version["row"])
            steps.append(RowEvent(CHANGES if before else APPEARS, fact[SOURCE_TS], at, _changed(before, row)))
            before = row
            end = version[UNTIL]
            if end is not None and (following is None or tuple(following[POSITION_COLUMN]) > tuple(end)):
                # The version ended without an event of its own: a truncate, or another row took its key.
                steps.append(RowEvent(VANISHES, version[VALID_TO], tuple(end)))
                before = None
    return steps


def _place(fact: Row) -> Position:
    return tuple(fact[POSITION_COLUMN])[:-2]


def _changed(before: Values | None, row: Values) -> dict[str, tuple[Any, Any]]:
    old = before or {}
    return {c: (old.get(c), value) for c, value in row.items() if before is None or old.get(c) != value}
