"""Looks up the stored state of a small batch's keys with prepared plans, in one task."""

from __future__ import annotations

from pyspark.sql import DataFrame

from ingest.changelog.change import quoted
from ingest.lakehouse.tombstones import newest
from ingest.merge.actions import TOMBSTONE_KEY
from ingest.merge.key_join import joined_by_key
from ingest.reconcile.changeset import TableState
from ingest.reconcile.stored_state import lookup_columns, with_row_actions
from ingest.spark.prepared import run_prepared

_IN_ONE_TASK = "shuffle_hash"


def with_stored_actions(states: DataFrame, stored: TableState, key: tuple[str, ...]) -> DataFrame:
    """Returns the states as `with_row_actions` does, checkpointed."""
    rows = stored.silver.near(states, key, lookup_columns, (key,)) if stored.silver.exists() else None
    tombstones = stored.tombstones.near(states) if stored.tombstones.exists() else None
    by = (key, stored.tombstones.horizon(), rows is not None, tombstones is not None)
    found = (frame for frame in (rows, tombstones) if frame is not None)
    return run_prepared(_with_row_actions, by, states, *found, once=True)


def _with_row_actions(
    key: tuple[str, ...],
    horizon: tuple[int, ...] | None,
    has_rows: bool,
    has_tombstones: bool,
    states: DataFrame,
    *stored: DataFrame,
) -> DataFrame:
    """Returns the states as `with_row_actions` does. `stored`: rows, then tombstones, as far as there are any; those of
    other keys are among them."""
    frames = iter(stored)
    rows, tombstones = (next(frames) if exists else None for exists in (has_rows, has_tombstones))
    if rows is not None:
        rows = _of_keys(states, rows, key).hint(_IN_ONE_TASK)
    if tombstones is not None:
        tombstones = newest(_of_keys(states, tombstones, (TOMBSTONE_KEY,))).hint(_IN_ONE_TASK)
    return with_row_actions(key, horizon, states, rows, tombstones)


def _of_keys(states: DataFrame, stored: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Returns the stored rows whose key is in `states`."""
    return joined_by_key(stored, states.select(*map(quoted, key)).hint(_IN_ONE_TASK), key, "left_semi")
