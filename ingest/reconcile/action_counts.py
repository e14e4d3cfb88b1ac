"""Counts what the states of a batch of whole rows do, with one aggregation per batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.change import MOVED
from ingest.delta.deletion_vectors import row_numbers
from ingest.delta.vector_store import RowNumbers
from ingest.internal_columns import LOCATION
from ingest.lakehouse.tombstones import MOVED_AT
from ingest.merge.actions import ACTION, DELETE, INSERT, REFUSE, TIED, UPDATE, WRITE_TOMBSTONE
from ingest.reconcile.stored_state import HAS_COLUMN_VERSIONS
from ingest.spark import prepared

IS_PARTIAL = "_ingest_is_partial"
"""True where columns of a state are older than the state, or unknown."""


def takes_effect(include_tied: bool = True) -> Column:
    """Returns whether a state takes effect. `include_tied`: also where it stands at its row's own position, as if it
    were no duplicate."""
    applied = F.col(ACTION).isNotNull() & (F.col(ACTION) != REFUSE)
    return applied if include_tied else applied & ~F.col(TIED)


def replaced_file() -> Column:
    """Returns the name of the file whose row a state removes or replaces."""
    return F.when(takes_effect(), F.col(LOCATION)["file"]).alias("_ingest_file")


@dataclass(frozen=True)
class ActionCounts:
    """Numbers of states. `states`: by action and by file of the row that they remove. `tied`: those of them at their
    row's own position. `removed_rows`: the rows that the untied ones remove, by file; only of a small batch. `moves`:
    those that are one half of a move to another key. `column_versions`: those for which positions of single columns
    are needed. `moved`: those whose key's row has moved before. `tied_moves`: those both tied and half of a move."""

    states: Counter[tuple[str, str | None]]
    tied: Counter[tuple[str, str | None]]
    removed_rows: Mapping[str, RowNumbers] | None
    moves: int
    column_versions: int
    moved: int
    tied_moves: int

    @property
    def actions(self) -> frozenset[str]:
        return frozenset(action for action, _ in self.states)

    @property
    def files(self) -> frozenset[str]:
        return frozenset(file for _, file in self.states if file is not None)

    @property
    def refused(self) -> int:
        return self.states[REFUSE, None]

    @property
    def effects(self) -> int:
        return sum(count for (action, _), count in self.states.items() if action != REFUSE)

    def without(self, states: Counter[tuple[str, str | None]], moves: int) -> ActionCounts:
        """Returns the counts without these states, which take no effect; `moves` of them are half of a move."""
        # A Counter's subtraction drops what comes to zero, so `actions` and `files` follow.
        return replace(self, states=self.states - states, moves=self.moves - moves)


_ACTIONS = (INSERT, UPDATE, DELETE, WRITE_TOMBSTONE, REFUSE)
_COUNTED = ("moves", "column_versions", "moved", "tied_moves")


def count_actions(resolved: DataFrame, is_small: bool) -> ActionCounts:
    """Returns the counts of states with actions. `is_small`: there are few, and they lie in one partition."""
    query = _counted_with_rows if is_small else _counted
    rows = prepared.collect_prepared(query, (), resolved, is_small=is_small)  # a row per file
    states = Counter(
        {(action, row.get("_ingest_file")): row[action] for row in rows for action in _ACTIONS if row[action]}
    )
    tied = Counter({(UPDATE, row.get("_ingest_file")): row["tied"] for row in rows if row["tied"]})
    removed_rows = None
    if is_small:
        removed_rows = {
            row["_ingest_file"]: RowNumbers.from_json(**row["gone"]) for row in rows if row["gone"]["count"]
        }
    return ActionCounts(states, tied, removed_rows, *(sum(row[name] for row in rows) for name in _COUNTED))


def _counted(resolved: DataFrame, *more: Column) -> DataFrame:
    return resolved.groupBy(replaced_file()).agg(*_counts(), *more)


def _counted_with_rows(resolved: DataFrame) -> DataFrame:
    return _counted(resolved, _removed_rows(resolved.sparkSession))


@cache
def _counts() -> tuple[Column, ...]:
    """Returns the aggregates of one file's states: a count per action, and the other counts of `ActionCounts`."""
    effective, tied = takes_effect(), F.col(TIED)
    counted = {action: F.col(ACTION) == action for action in _ACTIONS}
    counted |= {
        "tied": tied,
        "moves": effective & F.col(MOVED),
        "column_versions": (effective & F.col(IS_PARTIAL)) | F.col(HAS_COLUMN_VERSIONS),
        "moved": F.col(MOVED_AT).isNotNull(),
        "tied_moves": tied & F.col(MOVED),
    }
    return tuple(F.count_if(those).alias(name) for name, those in counted.items())


@cache
def _removed_rows(spark: SparkSession) -> Column:
    """Returns the aggregate of the row numbers that leave a file, if no tied state takes effect."""
    row = F.when(takes_effect(include_tied=False), F.col(LOCATION)["row"])
    return row_numbers(spark, row).alias("gone")
