"""What a verdict by rows comes to, in numbers."""

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
from ingest.reconcile.stored_state import LAYERED
from ingest.spark import prepared

PARTIAL = "_partial"
"""Of a state: whether columns of it are older than itself, or unknown."""


def effect(sure: bool = True) -> Column:
    """Whether a state takes effect, if something comes of what is tied or, where that isn't `sure`, if nothing does."""
    taken = F.col(ACTION).isNotNull() & (F.col(ACTION) != REFUSE)
    return taken if sure else taken & ~F.col(TIED)


def file_of_row() -> Column:
    """The file of the row that a state takes away or replaces."""
    return F.when(effect(), F.col(LOCATION)["file"]).alias("_file")


@dataclass(frozen=True)
class Told:
    """What a verdict comes to. `states` by their action, and the file of the row that they take away; `tied`: those of
    them that stand where their row does. `gone`: the rows that the others take away, where states are few. The numbers
    count states: those that are one half of a move, ask for positions of single columns, whose key has moved before,
    and are both tied and one half of a move."""

    states: Counter[tuple[str, str | None]]
    tied: Counter[tuple[str, str | None]]
    gone: Mapping[str, RowNumbers] | None
    moves: int
    layered: int
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

    def without(self, states: Counter[tuple[str, str | None]], moves: int) -> Told:
        """The same where these take no effect, of which so many are one half of a move."""
        # What comes to nothing is no longer there.
        return replace(self, states=self.states - states, moves=self.moves - moves)


_ACTIONS = (INSERT, UPDATE, DELETE, WRITE_TOMBSTONE, REFUSE)
_COUNTED = ("moves", "layered", "moved", "tied_moves")


def told_of(judged: DataFrame, few: bool) -> Told:
    """`few`: so are the states."""
    rows = prepared.told(_counted_with_rows if few else _counted, (), judged, few=few)  # a row per file
    states = Counter({(action, row.get("_file")): row[action] for row in rows for action in _ACTIONS if row[action]})
    tied = Counter({(UPDATE, row.get("_file")): row["tied"] for row in rows if row["tied"]})
    gone = {row["_file"]: RowNumbers.from_json(**row["gone"]) for row in rows if row["gone"]["count"]} if few else None
    return Told(states, tied, gone, *(sum(row[name] for row in rows) for name in _COUNTED))


def _counted(judged: DataFrame, *more: Column) -> DataFrame:
    return judged.groupBy(file_of_row()).agg(*_counts(), *more)


def _counted_with_rows(judged: DataFrame) -> DataFrame:
    return _counted(judged, _gone(judged.sparkSession))


@cache
def _counts() -> tuple[Column, ...]:
    """Of the states of a file how many have each action, and what else `Told` counts of them."""
    taking_effect, tied = effect(), F.col(TIED)
    counted = {action: F.col(ACTION) == action for action in _ACTIONS}
    counted |= {
        "tied": tied,
        "moves": taking_effect & F.col(MOVED),
        "layered": (taking_effect & F.col(PARTIAL)) | F.col(LAYERED),
        "moved": F.col(MOVED_AT).isNotNull(),
        "tied_moves": tied & F.col(MOVED),
    }
    return tuple(F.count_if(those).alias(name) for name, those in counted.items())


@cache
def _gone(spark: SparkSession) -> Column:
    """The numbers of the rows that go from a file, if nothing comes of what is tied."""
    row = F.when(effect(sure=False), F.col(LOCATION)["row"])
    return row_numbers(spark, row).alias("gone")
