"""Whole images: the change of the highest position per key, held against the one position that is stored of its row."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from ingest.changelog.change import (
    COLUMN_POSITIONS,
    EVENT_ID,
    LOCATION,
    LOCATION_TYPE,
    MOVED,
    POSITION_COLUMN,
    content,
    quoted,
)
from ingest.changelog.compaction import compacted
from ingest.changelog.images import Shape
from ingest.changelog.merge import ACTION, BURY, DELETE, REFUSE, SURROGATE, TIED, effective, surrogate
from ingest.changelog.position import POSITION, literal
from ingest.cut import cut
from ingest.run.judging.verdict import Judged, Stored, Truncated, above_truncate
from ingest.tables.silver import Writes
from ingest.tables.tombstones import MOVED_AT


def by_row(changes: DataFrame, shape: Shape, stored: Stored, truncated: Truncated) -> Judged | None:
    """None where positions of single columns are needed."""
    key = list(shape.identity)
    states = compacted(above_truncate(changes, truncated), key).withColumn(SURROGATE, surrogate(key))
    rows, graves, waiting = stored.silver.exists(), stored.graves.exists(), stored.pending.exists()
    if rows or graves or waiting:
        # A plan that decodes is large: cut here, what follows plans over plain rows.
        states = cut(states)
    if waiting and not stored.pending.matching(states, key).isEmpty():
        return None
    live = None
    if rows:
        # Of all that they hold a reader needs to open but the smallest part.
        layered = F.map_values(COLUMN_POSITIONS)["before"].isNotNull().alias("_layered")
        columns = [quoted(k) for k in dict.fromkeys([*key, POSITION_COLUMN])]
        live = stored.silver.matching(states, key).select(*columns, LOCATION, layered)
    buried, horizon = (stored.graves.matching(states), stored.graves.horizon()) if graves else (None, None)
    judged = effective(states, live, buried, key, None if horizon is None else literal(horizon))
    if live is None:
        judged = judged.withColumns({LOCATION: F.lit(None).cast(LOCATION_TYPE), "_layered": F.lit(False)})
    if buried is None:
        judged = judged.withColumn(MOVED_AT, F.lit(None).cast(POSITION))
    judged = cut(judged)
    told = _told(judged)
    if told.layered or (told.moved and _moved_later(changes, judged, key)):
        return None
    if told.tied:
        judged = cut(_without_doubled(judged, shape, stored))
        told = _told(judged)
    applied: int = told.effects
    if told.moves:  # An event that moves a row is one event with two effects.
        applied = judged.where(_effect()).select(EVENT_ID).distinct().count()
    actions = frozenset(told.actions)
    written = F.col(ACTION).isin(*(actions - {BURY, REFUSE}))
    dead = F.col(ACTION).isin(DELETE, BURY)
    return Judged(
        Writes(judged.where(written), actions, frozenset(told.files), told.effects)
        if actions - {BURY, REFUSE}
        else None,
        None,
        judged.where(dead).select(SURROGATE, POSITION_COLUMN) if actions & {DELETE, BURY} else None,
        judged.where(F.col(ACTION) == REFUSE) if told.refused else None,
        applied,
        told.refused,
    )


def _effect() -> Column:
    return F.col(ACTION).isNotNull() & (F.col(ACTION) != REFUSE)


def _told(judged: DataFrame) -> Row:
    effect = _effect()
    told = judged.agg(
        F.collect_set(ACTION).alias("actions"),
        F.collect_set(F.when(effect, F.col(LOCATION)["file"])).alias("files"),
        F.count_if(effect).alias("effects"),
        F.count_if(F.col(ACTION) == REFUSE).alias("refused"),
        F.count_if(effect & F.col(MOVED)).alias("moves"),
        F.count_if((effect & F.col(COLUMN_POSITIONS).isNotNull()) | F.col("_layered")).alias("layered"),
        F.count_if(TIED).alias("tied"),
        F.count(MOVED_AT).alias("moved"),
    ).first()
    assert told is not None
    return told


def _moved_later(changes: DataFrame, judged: DataFrame, key: list[str]) -> bool:
    """Whether an event is older than a move of its row to another key, which then may have to be told of it."""
    moved = judged.where(F.col(MOVED_AT).isNotNull()).select(*map(quoted, key), MOVED_AT)
    older = changes.join(F.broadcast(moved), key).where(F.col(POSITION_COLUMN) < F.col(MOVED_AT))
    return not older.isEmpty()


def _without_doubled(judged: DataFrame, shape: Shape, stored: Stored) -> DataFrame:
    """What stands where its row does and says the same was sent twice: it takes no effect."""
    columns, key = shape.names, list(shape.identity)
    there = stored.silver.matching(judged.where(TIED), key).select(*map(quoted, key), content(columns).alias("_there"))
    same = F.col(TIED) & F.coalesce(F.col("_there") == content(columns), F.lit(False))
    return judged.join(F.broadcast(there), key, "left").withColumn(ACTION, F.when(~same, F.col(ACTION))).drop("_there")
