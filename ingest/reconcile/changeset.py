"""What is known of a table when a batch of changes is judged, and what the verdict says is to be written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.change import CODE, POSITION_COLUMN
from ingest.changelog.position import position_literal
from ingest.lakehouse.row_changes import RowChanges
from ingest.lakehouse.silver import Silver
from ingest.lakehouse.tombstones import Tombstones
from ingest.names import Lakehouse
from ingest.reconcile.scd2 import RowHistory, row_history_of


@dataclass(frozen=True)
class TableState:
    """Where a table is kept: live rows, rows that wait for columns not known yet, deleted keys."""

    silver: Silver
    pending: Silver
    tombstones: Tombstones
    row_history: RowHistory | None = None
    owed_before: int | None = None
    """Of a slice that died between two commits: the version of `pending` that this slice wrote. Its commit stands;
    what silver has to do follows from what was owed before it."""

    @property
    def kept(self) -> list[Silver]:
        """Where rows are held, the live ones last."""
        return [self.pending, *(self.row_history.tables if self.row_history else ()), self.silver]

    @property
    def tables(self) -> list[Silver]:
        """Those of them that are there."""
        return [table for table in self.kept if table.exists()]


def table_state(
    spark: SparkSession,
    lakehouse: Lakehouse,
    pipeline: str,
    table: str,
    history: bool,
    personal: frozenset[str] = frozenset(),
) -> TableState:
    """Where a pipeline's table is kept. `history`: with all versions of its rows. `personal`: columns of which no
    statistics are written."""
    return TableState(
        Silver(spark, lakehouse.silver(pipeline, table), personal),
        Silver(spark, lakehouse.pending(pipeline, table), personal),
        Tombstones(spark, lakehouse.tombstones(pipeline, table)),
        row_history_of(spark, lakehouse, pipeline, table, personal) if history else None,
    )


@dataclass(frozen=True)
class Truncation:
    """The position below which everything of the table is gone, whether it came with this batch, and how many events
    of the batch said so."""

    position: tuple[int, ...] | None
    now: bool = False
    applied: int = 0


class DuplicateMismatch(Exception):
    """A verdict doesn't hold: an event that was taken for doubled says something else than the row where it stands.
    Named is the table. What was judged so has to be judged again, for sure."""


@dataclass(frozen=True)
class Changeset:
    """What is to be written; None: nothing. `refused`: changes with their `_code`. The numbers count events. `proof`:
    what raises Contradicted if the verdict doesn't hold, to be asked before silver says that it does. `few`: there is
    little to write, and it is in one part."""

    silver: RowChanges | None
    pending: RowChanges | None
    tombstones: DataFrame | None
    refused: DataFrame | None
    applied: int
    quarantined: int
    proof: Callable[[], None] | None = None
    few: bool = False


def above_truncate(changes: DataFrame, position: tuple[int, ...] | None) -> DataFrame:
    """The changes that a truncate at this position leaves; what can't be applied stays."""
    if position is None:
        return changes
    return changes.where(F.col(CODE).isNotNull() | (F.col(POSITION_COLUMN) > position_literal(position)))
