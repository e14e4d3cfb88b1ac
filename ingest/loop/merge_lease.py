"""Slices that a table holds and that are not accounted for yet: a run died, or another one goes on at the same time."""

from __future__ import annotations

from typing import NamedTuple

from ingest.batches.table_batch import TableBatch
from ingest.delta.commit_log import THROUGH_BATCH, WRITER, CommitSummary
from ingest.delta.conflict_retry import overtaken_by_another_run
from ingest.lakehouse.silver import Silver
from ingest.reconcile import TableState


class Begun(NamedTuple):
    """What the commits of a slice say, in the silver table and in the pending rows; None where there is none."""

    silver: CommitSummary | None = None
    pending: CommitSummary | None = None


class UnfinishedSlices:
    """Those of one writer, by table."""

    def __init__(self, writer: str) -> None:
        self._writer = writer
        self._begun: dict[str, Begun] = {}

    def find(self, table: str, stored: TableState, after: int) -> int | None:
        """Reads from the tables' logs what they hold of slices after the batch `after`. Returns the last batch of the
        newest one; None where there is none."""
        begun = Begun(*(self._newest(kept, after) for kept in (stored.silver, stored.pending)))
        if any(begun):
            self._begun[table] = begun
        return max((t.user_metadata[THROUGH_BATCH] for t in begun if t), default=None)

    def of(self, batch: TableBatch) -> Begun:
        """Returns what the table holds of the slice of `batch`, as far as it was found."""
        found = self._begun.get(batch.table, Begun())
        return Begun(*(t if t is not None and t.user_metadata[THROUGH_BATCH] == batch.upto else None for t in found))

    def require_same(self, batch: TableBatch, stored: TableState) -> None:
        """Finds what another run of the writer has done to a table without a key. Raises Overtaken where that is
        another slice than the one of `batch`: events of both would count twice."""
        self._begun.pop(batch.table, None)
        self.find(batch.table, stored, batch.after)
        reached = (kept.txn_version(self._writer) for kept in (stored.silver, stored.pending))
        if any(last > batch.after and last != batch.upto for last in reached):
            raise overtaken_by_another_run(f"table {batch.table}")

    def _newest(self, kept: Silver, after: int) -> CommitSummary | None:
        """What the writer's newest slice in the table says, if it came later."""
        if kept.txn_version(self._writer) <= after:
            return None
        return next((t for t in kept.commits() if t.user_metadata.get(WRITER) == self._writer), None)
