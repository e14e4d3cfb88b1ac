"""Decides whether a table has lost its key, and which keys its events may still carry."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from pyspark.sql import functions as F

from ingest.batches.group_stats import CHANGE
from ingest.batches.key_split import last_positions_by_key
from ingest.batches.rules import Rules
from ingest.batches.table_batch import TableBatch
from ingest.changelog.position import position_literal
from ingest.evolution.definition import Place
from ingest.evolution.keys import Key, dropped_key
from ingest.lakehouse.catalog import CatalogEntry
from ingest.lakehouse.rekeying import newest_position
from ingest.reconcile.changeset import TableState

_UNSURE = "records with this key came after records without one, from before them and from after them"
_DECLARED = "the pipeline's file says that it has no key"
_BACKFILL = "newer records have no key, and a backfill can't count rows"


def told_loss(entry: CatalogEntry, stored: TableState) -> Place | None:
    """Returns the position at which a table has lost its key, as messages tell; None if it hasn't, or if rows from
    above that position have a key all the same."""
    end = _told_end(entry)
    return end if end is not None and newest_position(stored) < end else None


def _told_end(entry: CatalogEntry) -> Place | None:
    """Returns the position from which on a table has no key, as messages tell; None if they tell none such."""
    eras = entry.lives.keys
    return eras[-1].begin if entry.table_schema.key and len(eras) > 1 and not eras[-1].columns else None


def loss_of_key(
    batch: TableBatch, sent: Collection[str], entry: CatalogEntry, rules: Rules, stored: TableState
) -> Place | None:
    """Returns the position below which events of a table carry its key, if it has lost that; else None.

    A table has lost its key if messages tell so, or if changes of the batch that are newer than all stored ones carry
    none, though their images have its columns; it may have it again above that position. Others without a key are bad
    events, which are quarantined. `sent`: the names of their columns. Raises TableUnusable if the table can't go on."""
    table, key = batch.table, entry.table_schema.key
    declared = rules.primary_keys.get(table)
    if not key or batch.is_part or table in rules.append_only:
        return None
    if declared == ():
        raise dropped_key(table, key, _DECLARED)
    end, found = _told_end(entry) if declared is None else None, None
    has_others = any(() in (group.keys or ()) for group in batch.groups if group.kind == CHANGE)
    if declared is None and (has_others or end is not None):
        names = rules.spelling(table).table_names(sorted(sent), entry.table_schema.names)
        spelled = [(column, *(name for name in names if names[name] == column)) for column in key]
        with_key, without = last_positions_by_key(batch, spelled)
        if end is not None and with_key < end:
            found = told_loss(entry, stored)
        if found is None and without and without > newest_position(stored):
            found = without
    if found is not None and not rules.keyless:
        raise dropped_key(table, key, _BACKFILL)
    return found


def without_key(entry: CatalogEntry, since: Place) -> CatalogEntry:
    """Returns the entry of a table that has lost its key. `since`: as of `CatalogEntry.keyless_since`."""
    former = tuple(sorted({*entry.former_keys, entry.table_schema.key}))
    keyless = replace(entry.table_schema, key=())
    return replace(entry, table_schema=keyless, former_keys=former, keyless_since=max(entry.keyless_since, since))


def keys_before(entry: CatalogEntry) -> tuple[tuple[Key, ...], Place]:
    """Returns the keys that events of a table without one may carry, and the position below which they do; no keys if
    it never had one."""
    eras, names = entry.lives.keys, {*entry.table_schema.names}
    is_told = bool(eras) and not eras[-1].columns
    since = max(entry.keyless_since, (eras[-1].begin or ()) if is_told else ())
    if entry.table_schema.key or not since:
        return (), ()
    told = {era.columns for era in eras if is_told and era.columns and {*era.columns} <= names}
    known = {*map(frozenset, entry.former_keys)}
    return (*entry.former_keys, *sorted(key for key in told if frozenset(key) not in known)), since


def require_counted(batch: TableBatch, entry: CatalogEntry, key: Key, last: Place) -> None:
    """Raises TableUnusable if rows without a key were merged before the batch, of which some may have been removed that
    an event with a key, through the position `last`, would have made obsolete."""
    _, since = keys_before(entry)
    merged = batch.history().where(batch.changed & F.col("key").isNull())
    between = merged.where(F.col("position") < position_literal(last))
    if since:
        between = between.where(F.col("position") >= position_literal(since))
    if last > since and not between.isEmpty():
        raise dropped_key(batch.table, key, _UNSURE)
