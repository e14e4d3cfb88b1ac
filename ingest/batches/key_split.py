"""Splits a table's batch by the keys that its events carry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest.batches.group_stats import CHANGE, Group, groups_by_slice
from ingest.batches.key_names import Keys, key_names, keys_of
from ingest.batches.table_batch import TableBatch
from ingest.changelog.accounting import Account
from ingest.changelog.position import position_literal

Key = tuple[str, ...]


def split_by_key(batch: TableBatch, others: Mapping[Key, Key]) -> tuple[TableBatch, dict[Key, TableBatch]]:
    """Returns the share of a batch that carries none of the keys `others` (names in the events → columns), with all
    events that are no changes; and the share of each other key, by its columns."""
    names: dict[Key, list[Key]] = {}
    for carried, key in others.items():
        names.setdefault(key, []).append(carried)
    own = _share(batch, ~_carries(batch, others), groups=[g for g in batch.groups if g.kind != CHANGE])
    return own, {key: _share(batch, _carries(batch, found)) for key, found in names.items()}


def split_at(batch: TableBatch, at: tuple[int, ...]) -> tuple[TableBatch, TableBatch]:
    """Returns the share of a batch through the position `at`, with all events that are no changes; and the changes
    above it."""
    is_above = F.col("position") > position_literal(at)
    return _share(batch, ~is_above, [g for g in batch.groups if g.kind != CHANGE]), _share(batch, is_above)


def account_of_repeated(batch: TableBatch, shares: Sequence[TableBatch]) -> Account:
    """Returns the account of null tombstones that only repeat the delete before them: they are counted in the batch,
    and are in none of its shares."""
    repeated = batch.count - sum(share.count for share in shares)
    return Account(batch.table, repeated, superseded=repeated)


def tombstone_keys(batch: TableBatch) -> Keys:
    """Returns the distinct keys of the batch's null tombstones, by the names of their columns."""
    if batch.tombstones is None:
        return ()
    names = batch.tombstones.select(key_names(batch.events.sparkSession, F.col("key")).alias("names")).distinct()
    return keys_of([row["names"] for row in names.where("names IS NOT NULL").collect()])  # a row per form of a key


def have_schema(batch: TableBatch, names: Key) -> bool:
    """Returns True if a record whose key names these columns has the key's schema."""
    records = [batch.events.where(batch.changed).select("key")]
    records += [] if batch.tombstones is None else [batch.tombstones.select("key")]
    schema = F.get_json_object(F.col("key").cast("string"), "$.schema")
    return any(not keys.where(_carries(batch, [names]) & schema.isNotNull()).isEmpty() for keys in records)


def part_keys(batch: TableBatch, key: Key) -> set[Key]:
    """Returns the keys of changes without a schema that name only some columns of `key`: the others may be null."""
    untyped = (group for group in batch.groups if group.kind == CHANGE and group.schema_id is None)
    return {names for group in untyped for names in group.keys or () if {*names} < {*key} and names}


def last_position(batch: TableBatch) -> tuple[int, ...]:
    """Returns the highest position of a change; () if there is none."""
    return max((group.last_position for group in batch.groups if group.kind == CHANGE), default=())


def last_positions_by_key(batch: TableBatch, key: Iterable[Key]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the highest position of changes whose record has a key, and of those without one whose image has the
    columns of `key` all the same; () without any. `key`: the names that events may have for each of its columns."""
    has_key = F.col("key").isNotNull()
    images = [f"$.{envelope}{image}" for image in ("after", "before") for envelope in ("payload.", "")]
    text = F.col("value").cast("string")
    names = F.json_object_keys(F.coalesce(*(F.get_json_object(text, image) for image in images)))
    in_image = (F.arrays_overlap(names, F.array(*map(F.lit, column))) for column in key)
    loses_key = ~has_key & F.coalesce(reduce(lambda one, other: one & other, in_image), F.lit(False))
    highest = (F.max(F.when(found, F.col("position"))) for found in (has_key, loses_key))
    row = batch.events.where(batch.changed).agg(*(at.alias(f"_{n}") for n, at in enumerate(highest))).first()
    with_key, without = (tuple(at or ()) for at in row) if row is not None else ((), ())
    return with_key, without


def _carries(batch: TableBatch, keys: Iterable[Key]) -> Column:
    """Returns true for a record whose key names the columns of one of these keys."""
    carried = F.from_json(key_names(batch.events.sparkSession, F.col("key")), "array<string>")
    found = (F.coalesce(carried == F.array(*map(F.lit, key)), F.lit(False)) for key in keys)
    return reduce(lambda one, other: one | other, found)


def _share(batch: TableBatch, is_in: Column, groups: Iterable[Group] = ()) -> TableBatch:
    """Returns the events for which `is_in` is true, with statistics of their own. `groups`: more groups of theirs."""
    events = batch.events.where(is_in)
    changed = groups_by_slice(events.where(batch.changed), F.lit(0)).get(0, [])
    tombstones = None if batch.tombstones is None else batch.tombstones.where(is_in)
    count = 0 if tombstones is None else tombstones.count()
    return replace(
        batch,
        groups=[*groups, *changed],
        events=events,
        tombstones=tombstones if count else None,
        tombstone_count=count,
        has_moving_tombstones=batch.has_moving_tombstones and count > 0,
    )
