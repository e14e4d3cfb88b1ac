"""What a batch of changes does to one table, given what is stored of its keys.

Row by row where every image is whole: one position a row decides (`compaction`, `merge`). Column by column where one
is partial, or a row is stored whose columns have positions of their own (`joining`). Both give the same states. By
content where a table has no key (`bag`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.changelog.bag import CANCELLED, CONTENT, CREDIT, DEBT, SIDE, content, netted
from ingest.changelog.change import (
    CODE,
    COLUMN_POSITIONS,
    DELETED,
    EVENT_ID,
    MOVED,
    NEW_KEY,
    POSITION_COLUMN,
    SOURCE_TS,
    quoted,
)
from ingest.changelog.compaction import compacted
from ingest.changelog.images import Reading, Shape
from ingest.changelog.joining import (
    BURIES,
    DEAD,
    PENDING_ACTION,
    PENDING_ROW,
    ROW,
    TOMBSTONE,
    above,
    joined,
    remembered,
    with_actions,
)
from ingest.changelog.key_change import with_carried
from ingest.changelog.merge import ACTION, BURY, DELETE, INSERT, REFUSE, SURROGATE, effective, surrogate
from ingest.tables.silver import FILE, Silver
from ingest.tables.tombstones import Tombstones, literal


@dataclass(frozen=True)
class Stored:
    """Where a table is kept: live rows, rows that wait for columns not known yet, deleted keys."""

    silver: Silver
    pending: Silver
    graves: Tombstones
    owed_before: int | None = None
    """Of a slice that died between two commits: the version of `pending` that this slice wrote. Its commit stands;
    what silver has to do follows from what was owed before it."""


@dataclass(frozen=True)
class Truncated:
    """The position of the table's last truncate, and whether it came with this batch."""

    position: tuple[int, ...] | None
    now: bool = False


@dataclass(frozen=True)
class Writes:
    """States with their `_action`, and the names of the files that hold rows of their keys."""

    states: DataFrame
    actions: frozenset[str]
    files: frozenset[str]


@dataclass(frozen=True)
class Judged:
    """What is to be written; None: nothing. `refused`: changes with their `_code`. The numbers count events."""

    silver: Writes | None
    pending: Writes | None
    graves: DataFrame | None
    refused: DataFrame | None
    applied: int
    quarantined: int


Changes = Callable[[Reading], DataFrame]
"""The batch's changes, read for one image or the other."""


def judge(changes: Changes, shape: Shape, stored: Stored, truncated: Truncated, key_changes: bool = False) -> Judged:
    """Reads silver, pending rows and tombstones of the batch's keys; writes nothing. `key_changes`: some delete names
    the key under which its row goes on."""
    if not shape.key:
        return _by_content(changes, shape, stored, truncated)
    if not key_changes and not (truncated.now and stored.silver.exists()):
        judged = _by_row(changes(Reading.AFTER), shape, stored, truncated)
        if judged is not None:
            return judged
    return _by_column(changes(Reading.AFTER_OR_BEFORE), shape, stored, truncated, key_changes)


def _above(changes: DataFrame, truncated: Truncated) -> DataFrame:
    if truncated.position is None:
        return changes
    return changes.where(F.col(CODE).isNotNull() | (F.col(POSITION_COLUMN) > literal(truncated.position)))


def _by_row(changes: DataFrame, shape: Shape, stored: Stored, truncated: Truncated) -> Judged | None:
    """None where positions of single columns are needed."""
    key = list(shape.identity)
    states = compacted(_above(changes, truncated), key).withColumn(SURROGATE, surrogate(key))
    rows, graves, waiting = stored.silver.exists(), stored.graves.exists(), stored.pending.exists()
    if rows or graves or waiting:
        # A plan that decodes is large: cut here, what follows plans over plain rows.
        states = states.localCheckpoint()
    if waiting and not stored.pending.matching(states, key).isEmpty():
        return None
    live = None
    if rows:
        layered = F.col(COLUMN_POSITIONS).isNotNull().alias("_layered")
        columns = [quoted(k) for k in dict.fromkeys([*key, POSITION_COLUMN])]
        live = stored.silver.matching(states, key).select(*columns, F.col(FILE), layered)
    judged = effective(states, live, stored.graves.matching(states) if graves else None, key)
    if live is None:
        judged = judged.withColumns({FILE: F.lit(None).cast("string"), "_layered": F.lit(False)})
    judged = judged.localCheckpoint(eager=False)
    effect = F.col(ACTION).isNotNull() & (F.col(ACTION) != REFUSE)
    told = judged.agg(
        F.collect_set(ACTION).alias("actions"),
        F.collect_set(F.when(effect, F.col(FILE))).alias("files"),
        F.count_if(effect).alias("effects"),
        F.count_if(F.col(ACTION) == REFUSE).alias("refused"),
        F.count_if(effect & F.col(MOVED)).alias("moves"),
        F.count_if((effect & F.col(COLUMN_POSITIONS).isNotNull()) | F.col("_layered")).alias("layered"),
    ).first()
    assert told is not None
    if told.layered:
        return None
    applied: int = told.effects
    if told.moves:  # An event that moves a row is one event with two effects.
        applied = judged.where(effect).select(EVENT_ID).distinct().count()
    actions = frozenset(told.actions)
    written = F.col(ACTION).isin(*(actions - {BURY, REFUSE}))
    buried = F.col(ACTION).isin(DELETE, BURY)
    return Judged(
        Writes(judged.where(written), actions, frozenset(told.files)) if actions - {BURY, REFUSE} else None,
        None,
        judged.where(buried).select(SURROGATE, POSITION_COLUMN) if actions & {DELETE, BURY} else None,
        judged.where(F.col(ACTION) == REFUSE) if told.refused else None,
        applied,
        told.refused,
    )


def _by_column(changes: DataFrame, shape: Shape, stored: Stored, truncated: Truncated, key_changes: bool) -> Judged:
    key = list(shape.identity)
    everything = _above(changes, truncated).localCheckpoint()
    bad = F.col(CODE).isNotNull()
    facts = _facts(everything.where(~bad), shape, stored, truncated).localCheckpoint()
    columns = [c.name for c in shape.columns if c.name not in key]
    names = F.array_distinct(F.flatten(F.collect_set(F.map_keys(COLUMN_POSITIONS))))
    partial = facts.agg(names.alias("names"), F.bool_or(F.col(NEW_KEY).isNotNull()).alias("moves")).first()
    assert partial is not None
    layered = sorted(partial.names)
    # A delete that names a new key may have come before the new row; an update that moves a row is both in one.
    if partial.moves and (layered or key_changes):
        facts, layered = with_carried(facts, key, columns), columns
    states = with_actions(joined(facts, key, columns, layered))
    states = states.withColumn(SURROGATE, surrogate(key)).localCheckpoint(eager=False)
    changed = F.col(ACTION).isNotNull() | F.col(PENDING_ACTION).isNotNull() | F.col(BURIES)
    told = states.agg(
        F.collect_set(ACTION).alias("actions"),
        F.collect_set(PENDING_ACTION).alias("pending"),
        F.collect_set(F.col(ROW)["file"]).alias("files"),
        F.collect_set(F.col(PENDING_ROW)["file"]).alias("pending_files"),
        F.count_if(BURIES).alias("buries"),
        F.count_distinct(F.when(changed, F.col(EVENT_ID))).alias("applied"),
    ).first()
    assert told is not None
    refused = everything.where(bad)
    quarantined = refused.count()
    actions, pending = frozenset(told.actions) - {BURY}, frozenset(told.pending)
    waiting = states.where(F.col(PENDING_ACTION).isNotNull()).withColumn(ACTION, F.col(PENDING_ACTION))
    return Judged(
        Writes(states.where(F.col(ACTION).isin(*actions)), actions, frozenset(told.files)) if actions else None,
        Writes(waiting, pending, frozenset(told.pending_files)) if pending else None,
        states.where(BURIES).select(SURROGATE, F.col(DEAD).alias(POSITION_COLUMN)) if told.buries else None,
        refused if quarantined else None,
        told.applied,
        quarantined,
    )


def _facts(events: DataFrame, shape: Shape, stored: Stored, truncated: Truncated) -> DataFrame:
    """The states of the batch's keys: events, rows, pending rows and tombstones in one form."""
    key = list(shape.identity)
    columns = [*(c.name for c in shape.columns), DELETED, POSITION_COLUMN, SOURCE_TS, COLUMN_POSITIONS]
    columns += [EVENT_ID, NEW_KEY]
    none = {c: F.lit(None).cast(events.schema[c].dataType) for c in (EVENT_ID, NEW_KEY)}
    facts = [events.select(*map(quoted, columns), *remembered(None))]
    targets = events.where(F.col(NEW_KEY).isNotNull()).select(*(F.col(NEW_KEY)[k].alias(k) for k in key))
    keys = events.select(*map(quoted, key)).unionByName(targets).distinct()
    for table, kind in ((stored.silver, ROW), (stored.pending, PENDING_ROW)):
        if not table.exists():
            continue
        rows = table.matching(keys, key)
        if truncated.now:
            # What a truncate leaves standing may stand on columns that it took away.
            rows = rows.unionByName(table.layered().join(F.broadcast(keys), key, "left_anti"))
        rows = above(rows, None if truncated.position is None else literal(truncated.position))
        rows = rows.withColumns({DELETED: F.lit(False), **none})
        facts.append(rows.select(*map(quoted, columns), *remembered(kind, F.col(FILE))))
    if stored.graves.exists():
        hashed = keys.withColumn(SURROGATE, surrogate(key))
        graves = stored.graves.matching(hashed).join(hashed, SURROGATE)
        empty = {f.name: F.lit(None).cast(f.dataType) for f in facts[0].schema.fields if f.name not in graves.columns}
        dead = graves.withColumns(empty | {DELETED: F.lit(True)})
        facts.append(dead.select(*map(quoted, columns), *remembered(TOMBSTONE)))
    return reduce(DataFrame.unionByName, facts)


def _by_content(changes: Changes, shape: Shape, stored: Stored, truncated: Truncated) -> Judged:
    sides = {CREDIT: _above(changes(Reading.AFTER), truncated), DEBT: _above(changes(Reading.BEFORE), truncated)}
    new = reduce(DataFrame.unionByName, (f.withColumn(SIDE, F.lit(side)) for side, f in sides.items()))
    new = new.withColumns({FILE: F.lit(None).cast("string"), CONTENT: content(shape)}).localCheckpoint()
    refused = new.where(F.col(CODE).isNotNull()).dropDuplicates([EVENT_ID])
    columns = [*(c.name for c in shape.columns), POSITION_COLUMN, SOURCE_TS, COLUMN_POSITIONS]
    columns += [EVENT_ID, SIDE, FILE, CONTENT]
    good = new.join(F.broadcast(refused.select(EVENT_ID)), EVENT_ID, "left_anti").select(*map(quoted, columns))
    debts = F.count_if(F.col(SIDE) == DEBT)
    counted = good.agg(debts.alias("debts"), F.count_distinct(EVENT_ID).alias("applied")).first()
    assert counted is not None
    entries = [good]
    wanted = F.broadcast(good.select(CONTENT).distinct())
    for side, located in ((CREDIT, _rows(stored) if counted.debts else None), (DEBT, _owed(stored))):
        if located is not None:
            there = located.withColumns({CONTENT: content(shape), SIDE: F.lit(side)})
            nobody = F.lit(None).cast(good.schema[EVENT_ID].dataType).alias(EVENT_ID)
            own = [c for c in columns if c != EVENT_ID]
            entries.append(there.join(wanted, CONTENT, "left_semi").select(*map(quoted, own), nobody))
    net = netted(reduce(DataFrame.unionByName, entries))
    known, cancelled = F.col(EVENT_ID).isNull(), F.col(CANCELLED)
    net = net.withColumn(ACTION, F.when(known & cancelled, DELETE).when(~known & ~cancelled, INSERT))
    net = net.where(F.col(ACTION).isNotNull()).localCheckpoint()
    quarantined = refused.count()
    return Judged(
        _of_side(net, CREDIT), _of_side(net, DEBT), None, refused if quarantined else None, counted.applied, quarantined
    )


def _rows(stored: Stored) -> DataFrame | None:
    return stored.silver.located() if stored.silver.exists() else None


def _owed(stored: Stored) -> DataFrame | None:
    if stored.owed_before is not None:
        return stored.pending.located_before(stored.owed_before)
    return stored.pending.located() if stored.pending.exists() else None


def _of_side(net: DataFrame, side: str) -> Writes | None:
    states = net.where(F.col(SIDE) == side)
    told = states.agg(F.collect_set(ACTION).alias("actions"), F.collect_set(FILE).alias("files")).first()
    assert told is not None
    return Writes(states, frozenset(told.actions), frozenset(told.files)) if told.actions else None
