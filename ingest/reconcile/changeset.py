"""The state that a batch is reconciled with (`TableState`, `Truncation`), and the result (`Changeset`)."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.change import CODE, DELETED, POSITION_COLUMN
from ingest.changelog.position import position_literal
from ingest.lakehouse.row_changes import RowChanges
from ingest.lakehouse.silver import Silver
from ingest.lakehouse.tombstones import Tombstones
from ingest.names import Lakehouse
from ingest.reconcile.scd2 import RowHistory, row_history_of
from ingest.tuning import DEFAULT_TUNING, Tuning


@dataclass(frozen=True)
class TableState:
    """The stored state of one source table: `silver`, the live rows; `pending`, rows that wait for unknown columns, or
    of a keyless table the deletes that wait for their rows; `tombstones`, the deleted keys; `row_history`, all versions
    of the rows, if they are kept.

    `pending_commit`: of a keyless table whose run died between its two commits, the version of `pending` that this
    slice has committed. The slice is then reconciled with `pending` as it was before that version."""

    silver: Silver
    pending: Silver
    tombstones: Tombstones
    row_history: RowHistory | None = None
    pending_commit: int | None = None

    @property
    def tuning(self) -> Tuning:
        """Returns the thresholds by which the tables were opened."""
        return self.silver.tuning

    @property
    def all_tables(self) -> list[Silver]:
        """Returns the tables that hold rows, whether they exist yet or not; silver last."""
        return [self.pending, *(self.row_history.tables if self.row_history else ()), self.silver]

    @property
    def tables(self) -> list[Silver]:
        """Returns the tables that hold rows and exist; silver last."""
        return [table for table in self.all_tables if table.exists()]


def table_state(
    spark: SparkSession,
    lakehouse: Lakehouse,
    pipeline: str,
    table: str,
    history: bool,
    personal: frozenset[str] = frozenset(),
    tuning: Tuning = DEFAULT_TUNING,
) -> TableState:
    """Returns the state of a pipeline's table. `history`: all versions of its rows are kept. `personal`: columns of
    which no statistics are written."""
    return TableState(
        Silver(spark, lakehouse.silver(pipeline, table), personal, tuning),
        Silver(spark, lakehouse.pending(pipeline, table), personal, tuning),
        Tombstones(spark, lakehouse.tombstones(pipeline, table), tuning),
        row_history_of(spark, lakehouse, pipeline, table, personal, tuning) if history else None,
    )


@dataclass(frozen=True)
class Truncation:
    """`position`: all that is known of the table at or below it is gone. `is_new`: it came with this batch. `applied`:
    number of events of the batch that it stands for. `resynced`: rows whose newest event is at or below it are gone;
    older values of the other rows stay."""

    position: tuple[int, ...] | None
    is_new: bool = False
    applied: int = 0
    resynced: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Changeset:
    """The rows to write; None: nothing. `tombstones`: new ones. `refused`: changes with their `CODE`. `applied`,
    `quarantined`: numbers of events. `is_small`: there is little to write, and it is in one partition.
    `removed_pending`: the `LOCATION` of pending rows to remove once silver is committed."""

    silver: RowChanges | None
    pending: RowChanges | None
    tombstones: DataFrame | None
    refused: DataFrame | None
    applied: int
    quarantined: int
    is_small: bool = False
    removed_pending: DataFrame | None = None


def above_truncate(changes: DataFrame, position: tuple[int, ...] | None) -> DataFrame:
    """Returns the changes above the truncate at `position`, and those that can't be applied."""
    if position is None:
        return changes
    return changes.where(F.col(CODE).isNotNull() | (F.col(POSITION_COLUMN) > position_literal(position)))


def above_resync(states: DataFrame, floor: tuple[int, ...] | None) -> DataFrame:
    """Returns the states of keys without rows that are gone by a resync with this `floor`."""
    if floor is None:
        return states
    # A state without a position is not a row: only values that a move carries over.
    is_above = F.coalesce(F.col(POSITION_COLUMN) > position_literal(floor), F.lit(True))
    return states.where(F.col(CODE).isNotNull() | F.col(DELETED) | is_above)
