"""The keys that the events of a table name: in either image, in the record's key, and as the key that a row goes on
under."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.group_stats import CHANGE, Group, belongs_to
from ingest.batches.rules import Rules
from ingest.batches.schemas import Schemas
from ingest.batches.table_batch import TableBatch
from ingest.changelog.change import EVENT_ID, NEW_KEY
from ingest.changelog.image_reader import ImageChoice, ImageReader
from ingest.changelog.spelling import caseless
from ingest.changelog.values.columns import Column
from ingest.evolution.policies import TableColumn
from ingest.loop.table_schemas import TableSchemas
from ingest.merge.actions import tombstone_key, tombstone_key_of
from ingest.merge.images import TableSchema, changes
from ingest.suppression.key_references import OWN_KEYS, REFERENCES, foreign_keys, own_keys

GROUP = "_group"
"""The number of an event's group; `TOMBSTONES` of null tombstones."""
TOMBSTONES = -1
GRAVES = "_graves"
"""The surrogates under which tombstones remember the keys of the event's row."""


def key_references(
    events: DataFrame,
    tombstones: DataFrame | None,
    table: str,
    key: tuple[str, ...],
    incoming: Sequence[tuple[Group, tuple[Column, ...]]],
    known: tuple[Column, ...],
    rules: Rules,
) -> DataFrame:
    """A row per event: `EVENT_ID`, `GROUP`, `op`, `position`, `GRAVES`, and mentions in `OWN` and `NAMED`. `known`: the
    columns by which null tombstones are read."""
    frames = []
    for number, (group, arrived) in enumerate(incoming):
        mine = events.where(belongs_to(group))
        frames.append(_read(mine, table, key, arrived, rules, group.key_changes).withColumn(GROUP, F.lit(number)))
    if tombstones is not None and known:
        frames.append(_read(tombstones, table, key, known, rules, False).withColumn(GROUP, F.lit(TOMBSTONES)))
    return reduce(DataFrame.unionByName, frames)


def batch_key_references(
    batch: TableBatch, schemas: Schemas, table_schemas: TableSchemas, rules: Rules
) -> DataFrame | None:
    """Returns what `mentioned` says of a table's share of a slice; None where no event of it can be read yet. Raises
    ConfigError where the table turns out to be another than the rules say."""
    types = rules.columns.get(batch.table, {})
    incoming = [(g, schemas.columns(g, types)) for g in batch.groups if g.kind == CHANGE]
    key = table_schemas.key(batch)
    if key is not None and (settled := table_schemas.names(batch.table)):
        # Not of what this batch brings: deletes may bring nothing but keys.
        spelling = rules.spelling(batch.table)
        come = {
            own_keys
            for _, wire in incoming
            for own_keys in spelling.table_names([c.name for c in wire], settled).values()
        }
        rules.subjects.require_columns(batch.table, key, sorted(come | settled))
    known = table_schemas.columns(batch.table) or next((wire for _, wire in reversed(incoming)), ())
    if not incoming and not (batch.tombstones is not None and known):
        return None
    incoming = [(group, with_key(wire, key or (), known)) for group, wire in incoming]
    return key_references(batch.events, batch.tombstones, batch.table, key or (), incoming, known, rules)


def with_key(arrived: tuple[Column, ...], key: tuple[str, ...], known: tuple[Column, ...]) -> tuple[Column, ...]:
    """Returns the columns that events came with, and those of the key that they lack: of deletes that bring no image
    the record's key alone tells whose they are."""
    there, wanted = {caseless(c.name) for c in arrived}, {*map(caseless, key)}
    return (*arrived, *(c for c in known if caseless(c.name) in wanted - there))


def _read(
    events: DataFrame, table: str, key: tuple[str, ...], arrived: tuple[Column, ...], rules: Rules, key_changes: bool
) -> DataFrame:
    links = rules.subjects.links.get(table, {})
    names = rules.spelling(table).table_names([c.name for c in arrived], (*key, *links))
    wire = tuple(c for c in arrived if names[c.name] in (*key, *links))
    there = {names[c.name] for c in wire}
    columns = tuple(TableColumn(names[c.name], c.type) for c in wire)
    table_schema = TableSchema(table, tuple(k for k in key if k in there), columns)
    if len(table_schema.key) < len(key):
        table_schema = TableSchema(table, (), table_schema.columns)
    named = rules.column_names(table, wire, table_schema.names)
    found = []
    for image_choice in (ImageChoice.AFTER, ImageChoice.BEFORE):
        reader = ImageReader(wire, rules.placeholder, named, image_choice, key_changes and bool(table_schema.key))
        read = changes(events, table_schema, reader)
        mine, tombstones = own_keys(table_schema), F.array().cast("array<binary>")
        if table_schema.key:
            later = [F.col(NEW_KEY)[k].alias(k) for k in table_schema.key]
            mine = F.concat(mine, own_keys(table_schema, later))
            moved = F.when(F.col(NEW_KEY).isNotNull(), tombstone_key_of(later))
            tombstones = F.array_compact(F.array(tombstone_key(table_schema.key), moved))
        every = F.concat(mine, foreign_keys(table_schema, rules.subjects))
        found.append(read.select(EVENT_ID, mine.alias(OWN_KEYS), every.alias(REFERENCES), tombstones.alias(GRAVES)))
    both = reduce(DataFrame.unionByName, found)
    per_event = both.groupBy(EVENT_ID).agg(
        *(F.array_distinct(F.flatten(F.collect_list(c))).alias(c) for c in (OWN_KEYS, REFERENCES, GRAVES))
    )
    told = events.select(F.struct("topic", "partition", "offset").alias(EVENT_ID), "op", "position")
    return told.join(per_event, EVENT_ID)
