"""Whole images: the change of the highest position per key, held against the one position that is stored of its row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batches.decoding import Changes, Decoding
from ingest.changelog.change import (
    COLUMN_POSITIONS,
    COLUMN_POSITIONS_TYPE,
    EVENT_ID,
    MOVED,
    NEW_KEY,
    POSITION_COLUMN,
    content,
    quoted,
)
from ingest.changelog.image_reader import ImageChoice
from ingest.lakehouse.page_index import FEW_KEYS
from ingest.lakehouse.row_changes import RowChanges
from ingest.lakehouse.tombstones import MOVED_AT
from ingest.merge.actions import ACTION, DELETE, REFUSE, TIED, TOMBSTONE_KEY, WRITE_TOMBSTONE, tombstone_key
from ingest.merge.compaction import compacted
from ingest.merge.images import TableSchema
from ingest.merge.key_join import joined_by_key
from ingest.reconcile.changeset import Changeset, DuplicateMismatch, TableState, Truncation, above_truncate
from ingest.reconcile.prepared_lookup import PARTIAL, Told, effect, file_of_row, told_of
from ingest.reconcile.small_batch import FEW, held_against
from ingest.reconcile.stored_state import row_facts, with_verdict
from ingest.spark.background import in_background, submit_in_background
from ingest.spark.checkpoints import checkpoint, unpersist
from ingest.spark.prepared import asked

_WHOLE = 4
"""Of each event so many rows and tombstones: of more it is less work to send the keys to where these are."""
_SENT = 2_000_000
"""So many tombstones at most are sent to each task whole: a quarter of a gigabyte."""
_EVENTS_A_PART = 1_000_000
"""As rows that are sorted they take half a gigabyte."""


def by_row(
    changes: Changes,
    table_schema: TableSchema,
    stored: TableState,
    truncated: Truncation,
    events: int,
    sure: bool = False,
) -> Changeset | None:
    """None where positions of single columns are needed. `events`: about so many changes there are. `sure`: what stands
    where its row does is not taken for the same, but compared first."""
    key, few = table_schema.identity, events <= FEW
    whole = _most_is_wanted(stored, events)
    parts = None if few else _parts(changes.spark, events)
    states = _compacted(changes, truncated, key, parts, whole)
    if not whole and stored.pending.exists() and not stored.pending.matching(states, key).isEmpty():
        return None
    judged = held_against(states, stored, key) if few else checkpoint(_held_against(states, stored, key, whole))
    told = told_of(judged, few)
    if not whole and not few:
        unpersist(states)
    if told.layered or (told.moved and _moved_later(changes, judged, key)):
        return None
    proof = None
    if told.tied and sure:
        judged, told = _without_doubled(judged, told, table_schema, stored)
        few = False
    elif told.tied:
        # At once: of all that is left to do before a commit it takes longest.
        proof = submit_in_background(partial(_prove_doubled, judged.where(TIED), told, table_schema, stored))
        told = told.without(told.tied, told.tied_moves)
    applied = told.effects
    if told.moves:  # An event that moves a row is one event with two effects.
        applied = judged.where(effect(sure)).select(EVENT_ID).distinct().count()
    rows = asked(_taking_effect, (sure,), judged, few=few)
    dead = asked(_dead, (), judged, few=few)
    return Changeset(
        RowChanges(rows, told.actions, told.files, told.effects, parts, told.gone)
        if told.actions - {WRITE_TOMBSTONE, REFUSE}
        else None,
        None,
        dead if told.actions & {DELETE, WRITE_TOMBSTONE} else None,
        judged.where(F.col(ACTION) == REFUSE) if told.refused else None,
        applied,
        told.refused,
        proof,
        few,
    )


def _compacted(
    changes: Changes, truncated: Truncation, key: tuple[str, ...], parts: int | None, whole: bool
) -> DataFrame:
    """The states of the changes' keys. `parts`: into how many they are shared out; None: they are few."""
    by, few = (changes.decoding(ImageChoice.AFTER), truncated.position, key, parts), parts is None
    # A plan that decodes is large: cut here, what follows plans over plain rows.
    return asked(_states, by, *changes.events, once=few or not whole, few=few)


def _states(
    decoding: Decoding, truncated: tuple[int, ...] | None, key: tuple[str, ...], parts: int | None, *events: DataFrame
) -> DataFrame:
    brought = _lean(above_truncate(decoding.of(*events), truncated))
    if parts is None:
        brought = brought.coalesce(1)  # What is read in different ways lies apart.
    return compacted(brought, key, parts).withColumn(TOMBSTONE_KEY, tombstone_key(key))


def _taking_effect(sure: bool, judged: DataFrame) -> DataFrame:
    """What is written to silver, or taken away there."""
    states = judged.where(effect(sure) & (F.col(ACTION) != WRITE_TOMBSTONE))
    return states.withColumn(COLUMN_POSITIONS, F.lit(None).cast(COLUMN_POSITIONS_TYPE))


def _dead(judged: DataFrame) -> DataFrame:
    """New tombstones."""
    return judged.where(F.col(ACTION).isin(DELETE, WRITE_TOMBSTONE)).select(TOMBSTONE_KEY, POSITION_COLUMN)


def _parts(spark: SparkSession, events: int) -> int:
    """As many as Spark is told to make, or several times as many, where no task could sort such a part in its
    memory."""
    told = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    return told * max(1, -(-events // (told * _EVENTS_A_PART)))


def _most_is_wanted(stored: TableState, events: int) -> bool:
    """Whether so many events may be about most of what is stored, or nothing is: then nobody has to know their keys
    before all is read."""
    if not any(table.exists() for table in (stored.silver, stored.tombstones, stored.pending)):
        return True
    if events <= FEW or stored.pending.exists():
        return False
    rows, tombstones = stored.silver.size(), stored.tombstones.size()
    return rows + tombstones <= _WHOLE * events and tombstones <= _SENT


def _held_against(states: DataFrame, stored: TableState, key: Sequence[str], whole: bool) -> DataFrame:
    """The states with what they do to the rows and tombstones of their keys, where these are, and when they moved.
    `whole`: these are sought among all that is stored."""
    with in_background(partial(_matching_tombstones, states, stored, key, whole)) as looking:
        live = _live(states, stored, key, whole)
    return with_verdict(key, stored.tombstones.horizon(), states, live, looking.result())


def _live(states: DataFrame, stored: TableState, key: Sequence[str], whole: bool) -> DataFrame | None:
    if not stored.silver.exists():
        return None
    live = stored.silver.located() if whole else stored.silver.matching(states, key)
    return row_facts(key, live)


def _matching_tombstones(states: DataFrame, stored: TableState, key: Sequence[str], whole: bool) -> DataFrame | None:
    if not stored.tombstones.exists():
        return None
    return F.broadcast(stored.tombstones.all()) if whole else stored.tombstones.matching(states, key)


def _lean(changes: DataFrame) -> DataFrame:
    """Changes without what by now is null in each that can be judged here: every plan to come would write it down."""
    return changes.withColumn(PARTIAL, F.col(COLUMN_POSITIONS).isNotNull()).drop(COLUMN_POSITIONS, NEW_KEY)


def _moved_later(changes: Changes, judged: DataFrame, key: Sequence[str]) -> bool:
    """Whether an event is older than a move of its row to another key, which then may have to be told of it."""
    moved = judged.where(F.col(MOVED_AT).isNotNull()).select(*map(quoted, key), MOVED_AT)
    older = joined_by_key(changes(ImageChoice.AFTER), F.broadcast(moved), key)
    older = older.where(F.col(POSITION_COLUMN) < F.col(MOVED_AT))
    return not older.isEmpty()


def _prove_doubled(tied: DataFrame, told: Told, table_schema: TableSchema, stored: TableState) -> None:
    """Raises Contradicted where one of these states says something else than the row where it stands."""
    key, said, count = list(table_schema.identity), content(table_schema.names), sum(told.tied.values())
    saying = tied.select(*map(quoted, key), said.alias("_said"))
    files = {file for _, file in told.tied if file is not None}
    there = stored.silver.matching_with(saying, key, ["_said"], files, few=count <= FEW_KEYS)
    (same,) = there.agg(F.count_if(F.col("_said") == said).alias("same")).collect()
    if same["same"] != count:
        raise DuplicateMismatch(table_schema.table)


def _without_doubled(
    judged: DataFrame, told: Told, table_schema: TableSchema, stored: TableState
) -> tuple[DataFrame, Told]:
    """What stands where its row does and says the same was sent twice: it takes no effect."""
    columns, key = table_schema.names, list(table_schema.identity)
    tied = judged.where(TIED)
    there = stored.silver.matching(tied, key).select(*map(quoted, key), content(columns).alias("_there"))
    saying = tied.select(*map(quoted, key), ACTION, file_of_row(), MOVED, content(columns).alias("_said"))
    same = checkpoint(
        joined_by_key(saying, there, key).where(F.col("_said") == F.col("_there")).drop("_said", "_there")
    )
    counts = (F.count(F.lit(1)).alias("states"), F.count_if(MOVED).alias("moves"))
    counted = same.groupBy(ACTION, "_file").agg(*counts).collect()  # a row per action and file
    doubled = Counter({(row[ACTION], row["_file"]): row["states"] for row in counted})
    # A change that can't be applied may have the same key.
    known = F.broadcast(same.select(*map(quoted, key), F.lit(True).alias("_same")))
    found = joined_by_key(judged, known, key, "left")
    found = found.withColumn(ACTION, F.when(~(F.col(TIED) & F.col("_same").isNotNull()), F.col(ACTION))).drop("_same")
    return found, replace(told, gone=None).without(doubled, sum(row["moves"] for row in counted))
