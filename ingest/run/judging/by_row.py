"""Whole images: the change of the highest position per key, held against the one position that is stored of its row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import (
    COLUMN_POSITIONS,
    COLUMN_POSITIONS_TYPE,
    EVENT_ID,
    LOCATION,
    LOCATION_TYPE,
    MOVED,
    NEW_KEY,
    POSITION_COLUMN,
    content,
    quoted,
)
from ingest.changelog.compaction import compacted
from ingest.changelog.images import Shape
from ingest.changelog.merge import ACTION, BURY, DELETE, REFUSE, SURROGATE, TIED, effective, surrogate
from ingest.changelog.position import POSITION, literal
from ingest.cut import cut, let_go
from ingest.run.judging.verdict import Judged, Stored, Truncated, above_truncate
from ingest.tables.tombstones import MOVED_AT
from ingest.tables.writes import Writes

_PARTIAL = "_partial"
"""Of a state: whether columns of it are older than itself, or unknown."""
_LAYERED = "_layered"
"""Whether columns of the row are."""


def by_row(changes: DataFrame, shape: Shape, stored: Stored, truncated: Truncated, few: bool = False) -> Judged | None:
    """None where positions of single columns are needed. `few`: they come of few events."""
    key = list(shape.identity)
    states = compacted(_lean(above_truncate(changes, truncated)), key).withColumn(SURROGATE, surrogate(key))
    held = any(table.exists() for table in (stored.silver, stored.graves, stored.pending))
    if held:
        # A plan that decodes is large: cut here, what follows plans over plain rows.
        states = cut(states)
    if stored.pending.exists() and not stored.pending.matching(states, key, few).isEmpty():
        return None
    judged = cut(_held_against(states, stored, key, few))
    told = _told(judged)
    if held and not few:
        let_go(states)
    if told.layered or (told.moved and _moved_later(changes, judged, key)):
        return None
    if told.tied:
        judged = _without_doubled(judged, shape, stored, few)
        told = _told(judged)
    applied = told.effects
    if told.moves:  # An event that moves a row is one event with two effects.
        applied = judged.where(_effect()).select(EVENT_ID).distinct().count()
    written = told.actions - {BURY, REFUSE}
    states = judged.where(F.col(ACTION).isin(*written))
    whole = states.withColumn(COLUMN_POSITIONS, F.lit(None).cast(COLUMN_POSITIONS_TYPE))
    dead = judged.where(F.col(ACTION).isin(DELETE, BURY)).select(SURROGATE, POSITION_COLUMN)
    return Judged(
        Writes(whole, told.actions, told.files, told.effects) if written else None,
        None,
        dead if told.actions & {DELETE, BURY} else None,
        judged.where(F.col(ACTION) == REFUSE) if told.refused else None,
        applied,
        told.refused,
    )


def _held_against(states: DataFrame, stored: Stored, key: list[str], few: bool) -> DataFrame:
    """The states with what they do to the rows and tombstones of their keys, where these are, and when they moved."""
    live = buried = horizon = None
    if stored.silver.exists():
        # Of all that they hold a reader needs to open but the smallest part.
        layered = F.map_values(COLUMN_POSITIONS)["before"].isNotNull().alias(_LAYERED)
        columns = [quoted(k) for k in dict.fromkeys([*key, POSITION_COLUMN])]
        live = stored.silver.matching(states, key, few).select(*columns, LOCATION, layered)
    if stored.graves.exists():
        buried, horizon = stored.graves.matching(states, key, few), stored.graves.horizon()
    judged = effective(states, live, buried, key, None if horizon is None else literal(horizon))
    if live is None:
        judged = judged.withColumns({LOCATION: F.lit(None).cast(LOCATION_TYPE), _LAYERED: F.lit(False)})
    return judged if buried is not None else judged.withColumn(MOVED_AT, F.lit(None).cast(POSITION))


def _lean(changes: DataFrame) -> DataFrame:
    """Changes without what by now is null in each that can be judged here: every plan to come would write it down."""
    return changes.withColumn(_PARTIAL, F.col(COLUMN_POSITIONS).isNotNull()).drop(COLUMN_POSITIONS, NEW_KEY)


def _effect() -> Column:
    return F.col(ACTION).isNotNull() & (F.col(ACTION) != REFUSE)


@dataclass(frozen=True)
class _Told:
    """What a verdict comes to. `effects` to `moved` count states: those that take effect, can't be applied, are one
    half of a move, ask for positions of single columns, stand where their row does, and whose key has moved before."""

    actions: frozenset[str]
    files: frozenset[str]
    effects: int
    refused: int
    moves: int
    layered: int
    tied: int
    moved: int


def _told(judged: DataFrame) -> _Told:
    by, counts = _counts()
    told = judged.groupBy(*by).agg(*counts).collect()  # a row per action and file
    return _Told(
        frozenset(t[ACTION] for t in told if t[ACTION] is not None),
        frozenset(t.file for t in told if t.file is not None),
        *(sum(t[2 + number] for t in told) for number in range(len(counts))),
    )


@cache
def _counts() -> tuple[tuple[Column, Column], tuple[Column, ...]]:
    """Action and file of a state, and what `_Told` counts of them in its order."""
    effect = _effect()
    counts = (
        effect,
        F.col(ACTION) == REFUSE,
        effect & F.col(MOVED),
        (effect & F.col(_PARTIAL)) | F.col(_LAYERED),
        F.col(TIED),
        F.col(MOVED_AT).isNotNull(),
    )
    return (F.col(ACTION), F.when(effect, F.col(LOCATION)["file"]).alias("file")), tuple(map(F.count_if, counts))


def _moved_later(changes: DataFrame, judged: DataFrame, key: list[str]) -> bool:
    """Whether an event is older than a move of its row to another key, which then may have to be told of it."""
    moved = judged.where(F.col(MOVED_AT).isNotNull()).select(*map(quoted, key), MOVED_AT)
    older = changes.join(F.broadcast(moved), key).where(F.col(POSITION_COLUMN) < F.col(MOVED_AT))
    return not older.isEmpty()


def _without_doubled(judged: DataFrame, shape: Shape, stored: Stored, few: bool) -> DataFrame:
    """What stands where its row does and says the same was sent twice: it takes no effect."""
    columns, key = shape.names, list(shape.identity)
    there = stored.silver.matching(judged.where(TIED), key, few)
    there = there.select(*map(quoted, key), content(columns).alias("_there"))
    # Many rows are not kept once more for the few of them that are doubled: these alone are.
    there = there if few else cut(there)
    same = F.col(TIED) & F.coalesce(F.col("_there") == content(columns), F.lit(False))
    found = judged.join(F.broadcast(there), key, "left").withColumn(ACTION, F.when(~same, F.col(ACTION)))
    return cut(found.drop("_there")) if few else found.drop("_there")
