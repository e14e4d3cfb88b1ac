"""Finds the keys that the events of a table reference: in either image, in the record's key, and as the key to which a
row moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from types import MappingProxyType

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.group_stats import CHANGE, Group, belongs_to
from ingest.batches.rules import Rules
from ingest.batches.schemas import Schemas
from ingest.batches.table_batch import TableBatch
from ingest.changelog.change import EVENT_ID, NEW_KEY
from ingest.changelog.image_reader import ImageChoice, ImageReader
from ingest.evolution.declared_types import of_types
from ingest.evolution.life import Lives
from ingest.evolution.policies import TableColumn
from ingest.loop.table_schemas import TableSchemas
from ingest.loop.told_tables import names_of_group
from ingest.merge.actions import tombstone_key, tombstone_key_of
from ingest.merge.images import changes
from ingest.merge.table_schema import TableSchema
from ingest.names import caseless
from ingest.suppression.key_references import (
    LINKS,
    MOVED_FROM,
    OWN_KEYS,
    REFERENCES,
    foreign_keys,
    no_references,
    own_keys,
)
from ingest.values.columns import Column
from ingest.values.types import has_same_json

GROUP = "_ingest_group"
"""Number of the event's group; `TOMBSTONES` for null tombstones."""
TOMBSTONES = -1
TOMBSTONE_KEYS = "_ingest_tombstone_keys"
"""The key hashes by which tombstones know the event's row."""
_ARRAYS = (OWN_KEYS, REFERENCES, TOMBSTONE_KEYS, MOVED_FROM, LINKS)


def key_references(
    events: DataFrame,
    tombstones: DataFrame | None,
    table: str,
    key: tuple[str, ...],
    incoming: Sequence[tuple[Group, tuple[Column, ...]]],
    known: tuple[Column, ...],
    rules: Rules,
    stored: Sequence[TableColumn] = (),
    now: Lives | None = None,
) -> DataFrame:
    """Returns a row per event: `EVENT_ID`, `GROUP`, `op`, `position`, `TOMBSTONE_KEYS`, and references in `OWN_KEYS`,
    `REFERENCES`, `MOVED_FROM` and `LINKS`.

    `incoming`: groups with the columns that they came with. `known`: the columns by which null tombstones are read.
    `stored`: the table's columns, by which `TOMBSTONE_KEYS` are hashed. `now`: what messages tell of the table's
    columns, which may have other names now."""
    frames = []
    known_columns = {c.name: c for c in stored}
    for number, (group, arrived) in enumerate(incoming):
        of_group = events.where(belongs_to(group))
        told = {} if now is None else names_of_group(group, arrived, (), now, rules.spelling(table))
        wire = tuple(c for c in arrived if c.name in told or c.name not in told.values())
        references = _references(of_group, table, key, wire, rules, group.key_changes, known_columns, told)
        frames.append(references.withColumn(GROUP, F.lit(number)))
    if tombstones is not None and known:
        references = _references(tombstones, table, key, known, rules, True, known_columns)
        frames.append(references.withColumn(GROUP, F.lit(TOMBSTONES)))
    return reduce(DataFrame.unionByName, frames)


def batch_key_references(
    batch: TableBatch, schemas: Schemas, table_schemas: TableSchemas, rules: Rules
) -> DataFrame | None:
    """Returns `key_references` of a table's share of a slice; None where no event of it can be read yet. Raises
    ConfigError where the table lacks columns that the rules name."""
    types = rules.columns.get(batch.table, {})
    incoming = [
        (g, table_schemas.as_declared(batch.table, schemas.columns(g, types))) for g in batch.groups if g.kind == CHANGE
    ]
    key = table_schemas.key(batch)
    if key is not None and (table_columns := table_schemas.names(batch.table)):
        # The table's columns too: deletes may bring nothing but keys.
        spelling = rules.spelling(batch.table)
        brought = {
            name
            for _, wire in incoming
            for name in spelling.table_names([c.name for c in wire], table_columns).values()
        }
        rules.subjects.require_columns(batch.table, key, sorted(brought | table_columns))
    known = table_schemas.columns(batch.table) or next((wire for _, wire in reversed(incoming)), ())
    if not incoming and not (batch.tombstones is not None and known):
        return None
    incoming = [(group, with_key(wire, key or (), known)) for group, wire in incoming]
    stored, now = table_schemas.table_columns(batch.table), table_schemas.lives(batch.table)
    by = (batch.table, key or (), incoming, known, rules, stored, now if now.are_told else None)
    return key_references(batch.events, batch.tombstones, *by)


def _hashed_alike(column: TableColumn, stored: TableColumn | None) -> TableColumn:
    """Returns a column whose values are hashed as those of the table's column. `stored`: None if it has none."""
    return replace(column, hashed_as=stored.hashed_as, hashed_name=stored.hashed_name) if stored else column


def with_key(arrived: tuple[Column, ...], key: tuple[str, ...], known: tuple[Column, ...]) -> tuple[Column, ...]:
    """Returns the columns that events came with, and those of the key that they lack: a delete without an image names
    its row only in the record's key."""
    present, wanted = {caseless(c.name) for c in arrived}, {*map(caseless, key)}
    return (*arrived, *(c for c in known if caseless(c.name) in wanted - present))


def _references(
    events: DataFrame,
    table: str,
    key: tuple[str, ...],
    arrived: tuple[Column, ...],
    rules: Rules,
    key_changes: bool,
    stored: Mapping[str, TableColumn],
    told: Mapping[str, str] = MappingProxyType({}),
) -> DataFrame:
    """Returns `key_references` of events with the columns `arrived`. `told`: column of the event → name in the table,
    of columns that have another one now."""
    links = rules.subjects.links.get(table, {})
    names = {**rules.spelling(table).table_names([c.name for c in arrived], (*key, *links)), **told}
    wire = tuple(c for c in arrived if names[c.name] in (*key, *links))
    # A key is written in another way once its column has another type, declared or altered.
    readings = dict.fromkeys((wire, _as_stored(wire, stored, names)))
    found = [
        references
        for columns in readings
        for references in _of_images(events, table, key, columns, names, rules, key_changes, stored)
    ]
    both = reduce(DataFrame.unionByName, found)
    per_event = both.groupBy(EVENT_ID).agg(*(F.array_distinct(F.flatten(F.collect_list(c))).alias(c) for c in _ARRAYS))
    coordinates = events.select(F.struct("topic", "partition", "offset").alias(EVENT_ID), "op", "position")
    return coordinates.join(per_event, EVENT_ID)


def _as_stored(
    wire: tuple[Column, ...], stored: Mapping[str, TableColumn], names: Mapping[str, str]
) -> tuple[Column, ...]:
    """Returns columns of events, their values as those of the table's types. `names`: column of the event → column of
    the table."""
    found: list[Column] = []
    for column in wire:
        known = stored.get(names[column.name])
        is_plain = known is not None and known.sealed is None and column.sealed is None
        is_same = known is None or not is_plain or has_same_json(known.type, column.type)
        found += [column] if known is None or is_same else of_types((column,), (known,), names)
    return tuple(found)


def _of_images(
    events: DataFrame,
    table: str,
    key: tuple[str, ...],
    wire: tuple[Column, ...],
    names: Mapping[str, str],
    rules: Rules,
    key_changes: bool,
    stored: Mapping[str, TableColumn],
) -> Iterator[DataFrame]:
    """Yields the references of either image of events, read by the columns `wire`."""
    present = {names[c.name] for c in wire}
    columns = tuple(_hashed_alike(TableColumn(names[c.name], c.type), stored.get(names[c.name])) for c in wire)
    table_schema = TableSchema(table, tuple(k for k in key if k in present), columns)
    if len(table_schema.key) < len(key):
        table_schema = TableSchema(table, (), table_schema.columns)
    column_names = tuple((c.name, names[c.name]) for c in wire if c.name != names[c.name])
    moves = key_changes and bool(table_schema.key)
    for image_choice in (ImageChoice.AFTER, ImageChoice.BEFORE):
        read = changes(events, table_schema, ImageReader(wire, rules.placeholder, column_names, image_choice, moves))
        own, tombstone_keys = own_keys(table_schema), F.array().cast("array<binary>")
        moved_from = no_references()
        if table_schema.key:
            new_key = [F.col(NEW_KEY)[k].alias(k) for k in table_schema.key]
            moved_from = F.when(F.col(NEW_KEY).isNotNull(), own).otherwise(moved_from)
            own = F.concat(own, own_keys(table_schema, new_key))
            types = table_schema.key_types
            moved = {k: F.col(NEW_KEY)[k] for k in table_schema.key}
            moved_to = F.when(F.col(NEW_KEY).isNotNull(), tombstone_key_of(moved, types))
            tombstone_keys = F.array_compact(F.array(tombstone_key(table_schema.key, types), moved_to))
        links = foreign_keys(table_schema, rules.subjects)
        references = F.concat(own, links)
        yield read.select(
            EVENT_ID,
            own.alias(OWN_KEYS),
            references.alias(REFERENCES),
            tombstone_keys.alias(TOMBSTONE_KEYS),
            moved_from.alias(MOVED_FROM),
            (links if image_choice is ImageChoice.AFTER else no_references()).alias(LINKS),
        )
