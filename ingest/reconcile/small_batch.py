"""The states of a few changes, held against what is stored of their keys: by a plan that is made once."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame

from ingest.changelog.change import quoted
from ingest.lakehouse.tombstones import newest
from ingest.merge.actions import TOMBSTONE_KEY
from ingest.merge.key_join import joined_by_key
from ingest.reconcile.changeset import TableState
from ingest.reconcile.stored_state import row_facts, with_verdict
from ingest.spark.background import in_background
from ingest.spark.checkpoints import in_same_scope
from ingest.spark.prepared import asked

FEW = 25_000
"""About so many events one task takes through while Spark plans: of more, several tasks are done sooner."""
_IN_ONE_TASK = "shuffle_hash"


def held_against(states: DataFrame, stored: TableState, key: tuple[str, ...]) -> DataFrame:
    """The states `with_verdict`, computed once."""
    with in_background(in_same_scope(partial(_matching_tombstones, stored, states))) as looking:
        live = stored.silver.near(states, key, row_facts, (key,)) if stored.silver.exists() else None
    tombstones = looking.result()
    by = (key, stored.tombstones.horizon(), live is not None, tombstones is not None)
    return asked(_judged, by, states, *(rows for rows in (live, tombstones) if rows is not None), once=True)


def _matching_tombstones(stored: TableState, states: DataFrame) -> DataFrame | None:
    return stored.tombstones.near(states) if stored.tombstones.exists() else None


def _judged(
    key: tuple[str, ...],
    horizon: tuple[int, ...] | None,
    any_live: bool,
    any_buried: bool,
    states: DataFrame,
    *stored: DataFrame,
) -> DataFrame:
    """`stored`: rows and tombstones, where there are any, those of other keys among them."""
    there = iter(stored)
    live, tombstones = (next(there) if any_of_it else None for any_of_it in (any_live, any_buried))
    if live is not None:
        live = _of(states, live, key).hint(_IN_ONE_TASK)
    if tombstones is not None:
        tombstones = newest(_of(states, tombstones, (TOMBSTONE_KEY,))).hint(_IN_ONE_TASK)
    return with_verdict(key, horizon, states, live, tombstones)


def _of(states: DataFrame, stored: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """What is stored of the states' keys."""
    return joined_by_key(stored, states.select(*map(quoted, key)).hint(_IN_ONE_TASK), key, "left_semi")
