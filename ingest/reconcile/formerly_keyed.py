"""Reconciles a table that has no key any more, and of which events may come that still carry one.

As in `keyless`, rows are counted. Besides, an event with a former key makes every row and every removal below its
position obsolete that has its values of that key: the key was unique there. Its own image is a row like any other.
What such an event tells is kept as a tombstone.

A row and a removal that cancel each other are kept in `pending` if one of them lies below the end of the keys: an event
that comes late may make it obsolete, and the other one counts again. There `_column_positions` tells rows, where it is
empty, from removals, where it is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ingest.batches.decoding import BatchChanges
from ingest.changelog.change import (
    CODE,
    COLUMN_POSITIONS,
    COLUMN_POSITIONS_TYPE,
    DELETED,
    EVENT_ID,
    POSITION_COLUMN,
    REASON,
    quoted,
)
from ingest.changelog.image_reader import ImageChoice
from ingest.changelog.position import position_literal
from ingest.evolution.definition import Place
from ingest.evolution.life import Lives
from ingest.internal_columns import LOCATION, LOCATION_TYPE
from ingest.lakehouse.row_changes import RowChanges
from ingest.merge.actions import ACTION, DELETE, INSERT, TOMBSTONE_KEY
from ingest.merge.compaction import compacted
from ingest.merge.key_facts import facts, survivors
from ingest.merge.keyless import CANCELLED, CONTENT, CREDIT, DEBT, SIDE, Era, content, eras, with_cancelled
from ingest.merge.table_schema import TableSchema
from ingest.reconcile.changeset import Changeset, TableState, Truncation, above_resync, above_truncate
from ingest.reconcile.keyless import entry_columns, keyless_entries, waiting_rows
from ingest.reconcile.several_keys import (
    Key,
    SeveralKeys,
    located_changes,
    new_facts,
    stored_facts,
    with_refusals,
)
from ingest.spark.checkpoints import checkpoint

_ORIGIN, _PLACE = "_ingest_origin", "_ingest_place"
_BATCH, _SILVER, _PENDING, _NOWHERE = "batch", "silver", "pending", "nowhere"


@dataclass(frozen=True)
class FormerKeys:
    """The keys that a table without one has had. `since`: the position below which events carry them. `changes`: key →
    the changes of the batch's events that carry it."""

    keys: tuple[Key, ...]
    since: Place
    changes: Mapping[Key, BatchChanges]


def reconcile_formerly_keyed(
    changes: BatchChanges, table_schema: TableSchema, stored: TableState, truncation: Truncation, former: FormerKeys
) -> Changeset:
    """Returns the rows to add to and remove from silver and `pending`, and the new tombstones. Every event of
    `changes`, which carry no key, counts once. Writes nothing."""
    known = eras(table_schema.names, changes.lives.untold_below)
    own = checkpoint(keyless_entries(changes, table_schema, truncation, known))
    keys = {key: SeveralKeys(table_schema, key, former.keys) for key in former.changes}
    states = {key: _states(of, keys[key], stored, truncation) for key, of in former.changes.items()}
    refused = [frame.where(F.col(CODE).isNotNull()).select(EVENT_ID, CODE, REASON) for frame in (own, *states.values())]
    bad = checkpoint(reduce(DataFrame.unionByName, refused).dropDuplicates([EVENT_ID]))
    good = own.join(F.broadcast(bad.select(EVENT_ID)), EVENT_ID, "left_anti")
    good = good.select(*map(quoted, entry_columns(table_schema)))
    able = {key: frame.where(F.col(CODE).isNull()).drop(CODE, REASON) for key, frame in states.items()}
    new = [new_facts(of, keys[key].hashed(key), stored) for key, of in able.items()]
    tombstones = checkpoint(reduce(DataFrame.unionByName, new)) if new else None
    entries = checkpoint(_entries(good, able, table_schema, changes.lives, stored, known))
    placed = checkpoint(_placed(_left(entries, able, table_schema, stored, former), entries, former.since, known))
    told = 0 if tombstones is None else tombstones.select(EVENT_ID).distinct().count()
    quarantined = bad.count()
    return Changeset(
        _changes_of(placed, _SILVER),
        _changes_of(placed, _PENDING),
        tombstones.select(TOMBSTONE_KEY, POSITION_COLUMN) if tombstones is not None and told else None,
        bad if quarantined else None,
        good.select(EVENT_ID).distinct().count() + told,
        quarantined,
    )


def _states(changes: BatchChanges, keys: SeveralKeys, stored: TableState, truncation: Truncation) -> DataFrame:
    """Returns the newest change of each value of a former key, and those that can't be applied."""
    everything = above_truncate(changes(ImageChoice.AFTER), truncation.position)
    newest = above_resync(compacted(everything, keys.carried), truncation.resynced)
    return checkpoint(with_refusals(newest, keys, stored))


def _entries(
    good: DataFrame,
    able: Mapping[Key, DataFrame],
    table_schema: TableSchema,
    lives: Lives,
    stored: TableState,
    known: Sequence[Era],
) -> DataFrame:
    """Returns the entries of the batch, and the stored ones that they may concern, with their `_ORIGIN`."""
    columns, name = entry_columns(table_schema), content(table_schema.names, known)
    no_event = F.lit(None).cast(good.schema[EVENT_ID].dataType)
    counted = good.agg(F.count_if(F.col(SIDE) == DEBT).alias("debts")).first()
    has_debts = bool(able) or (counted is not None and counted["debts"] > 0)
    contents = None if able or known else F.broadcast(good.select(CONTENT).distinct())
    is_row = F.when(F.col(COLUMN_POSITIONS).isNotNull(), CREDIT).otherwise(DEBT)
    silver = stored.silver.located() if has_debts and stored.silver.exists() else None
    found = []
    for origin, rows, side in ((_SILVER, silver, F.lit(CREDIT)), (_PENDING, waiting_rows(stored), is_row)):
        if rows is not None:
            part = rows.withColumns({CONTENT: name, SIDE: side, EVENT_ID: no_event}).select(*map(quoted, columns))
            part = part if contents is None else part.join(contents, CONTENT, "left_semi")
            found.append(part.withColumn(_ORIGIN, F.lit(origin)))
    nulls = {column: F.lit(None) for column, life in lives.shown.items() if life.end is not None}
    for states in able.values():
        location = F.lit(None).cast(LOCATION_TYPE)
        images = states.where(~F.col(DELETED))
        gone = {c: value.cast(images.schema[c].dataType) for c, value in nulls.items() if c in table_schema.names}
        images = images.withColumns({**gone, SIDE: F.lit(CREDIT), LOCATION: location})
        images = images.withColumn(CONTENT, name).select(*map(quoted, columns))
        for part in found:
            # What a run that died has written already.
            same = part.where(F.col(SIDE) == CREDIT).select(POSITION_COLUMN)
            images = images.join(same, POSITION_COLUMN, "left_anti").select(*map(quoted, columns))
        good = good.unionByName(images)
    return reduce(DataFrame.unionByName, found, good.withColumn(_ORIGIN, F.lit(_BATCH)))


def _left(
    entries: DataFrame,
    able: Mapping[Key, DataFrame],
    table_schema: TableSchema,
    stored: TableState,
    former: FormerKeys,
) -> DataFrame:
    """Returns the entries that no event with a former key makes obsolete."""
    types = table_schema.key_types
    if not able and entries.where(F.col(POSITION_COLUMN) < position_literal(former.since)).isEmpty():
        return entries
    known = {}
    for key in former.keys:
        known[key] = stored_facts(entries, SeveralKeys(table_schema, key, former.keys).hashed(key), stored)
        if key in able:
            known[key] = known[key].unionByName(facts(able[key], key, types))
    return survivors(entries, known, types)


def _placed(left: DataFrame, entries: DataFrame, since: Place, known: Sequence[Era]) -> DataFrame:
    """Returns all entries with the `_PLACE` where they belong. `left`: those that are not obsolete.

    Of a content's rows and removals that cancel each other, as many stay as lie below `since`, the oldest first."""
    is_old, cancelled, of_content = F.col(POSITION_COLUMN) < position_literal(since), F.col(CANCELLED), []
    paired = with_cancelled(left, known)
    both = Window.partitionBy(CONTENT)
    for counts in (cancelled, cancelled & is_old):
        of_content += [F.sum((counts & (F.col(SIDE) == side)).cast("long")).over(both) for side in (CREDIT, DEBT)]
    rows, removals, old_rows, old_removals = of_content
    number = F.row_number().over(Window.partitionBy(CONTENT, SIDE, CANCELLED).orderBy(POSITION_COLUMN, EVENT_ID))
    is_kept = number <= F.least(rows, removals, F.greatest(old_rows, old_removals))
    shown = F.when(F.col(SIDE) == CREDIT, _SILVER).otherwise(_PENDING)
    place = F.when(~cancelled, shown).when(is_kept, _PENDING).otherwise(_NOWHERE)
    placed = paired.withColumn(_PLACE, place).drop(CANCELLED)
    stays = F.broadcast(left.where(F.col(_ORIGIN) != _BATCH).select(LOCATION))
    gone = entries.where(F.col(_ORIGIN) != _BATCH).join(stays, LOCATION, "left_anti")
    return placed.unionByName(gone.withColumn(_PLACE, F.lit(_NOWHERE)))


def _changes_of(placed: DataFrame, part: str) -> RowChanges | None:
    """Returns the changes of one of the stored tables."""
    is_here, belongs = F.col(_ORIGIN) == part, F.col(_PLACE) == part
    is_new = belongs & ~is_here
    states = placed.where(is_here != belongs)
    cancelled_row = (F.col(SIDE) == CREDIT) & F.lit(part == _PENDING)
    marks = F.create_map().cast(COLUMN_POSITIONS_TYPE)
    values = {
        ACTION: F.when(is_new, INSERT).otherwise(DELETE),
        LOCATION: F.when(~is_new, F.col(LOCATION)),
        COLUMN_POSITIONS: F.when(cancelled_row, marks).otherwise(F.lit(None).cast(COLUMN_POSITIONS_TYPE)),
    }
    return located_changes(checkpoint(states.withColumns(values)))
