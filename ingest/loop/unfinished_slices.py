"""Finds slices that a table holds and that are not accounted for: a run died, or another run is merging them now."""

from __future__ import annotations

from typing import NamedTuple

from ingest.batches.table_batch import TableBatch
from ingest.delta.commit_log import THROUGH_BATCH, WRITER, CommitSummary
from ingest.delta.conflict_retry import overtaken_by_another_run
from ingest.lakehouse.silver import Silver
from ingest.reconcile import TableState


class SliceCommits(NamedTuple):
    """The commits of one slice in silver and in the pending rows; None where there is none."""

    silver: CommitSummary | None = None
    pending: CommitSummary | None = None


class UnfinishedSlices:
    """The slices that one writer has committed and not accounted for, by table."""

    def __init__(self, writer: str) -> None:
        self._writer = writer
        self._found: dict[str, SliceCommits] = {}

    def find(self, table: str, stored: TableState, after: int) -> int | None:
        """Reads from the tables' logs what they hold of slices after the batch `after`. Returns the last batch of the
        newest one; None where there is none."""
        commits = SliceCommits(*(self._newest(part, after) for part in (stored.silver, stored.pending)))
        if any(commits):
            self._found[table] = commits
        return max((t.user_metadata[THROUGH_BATCH] for t in commits if t), default=None)

    def of(self, batch: TableBatch) -> SliceCommits:
        """Returns the commits of the slice of `batch`, as far as `find` has found them."""
        found = self._found.get(batch.table, SliceCommits())
        return SliceCommits(
            *(t if t is not None and t.user_metadata[THROUGH_BATCH] == batch.through_batch else None for t in found)
        )

    def require_same(self, batch: TableBatch, stored: TableState) -> None:
        """Finds what another run of the writer has committed to a keyless table. Raises Overtaken where that is another
        slice than the one of `batch`: events of both would count twice."""
        self._found.pop(batch.table, None)
        self.find(batch.table, stored, batch.after)
        committed = (part.txn_version(self._writer) for part in (stored.silver, stored.pending))
        if any(last > batch.after and last != batch.through_batch for last in committed):
            raise overtaken_by_another_run(f"table {batch.table}")

    def _newest(self, table: Silver, after: int) -> CommitSummary | None:
        """Returns the writer's newest commit in the table, if its slice ends after the batch `after`."""
        if table.txn_version(self._writer) <= after:
            return None
        return next((t for t in table.commits() if t.user_metadata.get(WRITER) == self._writer), None)
