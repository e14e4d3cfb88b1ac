"""Follows the notifications of a snapshot that signals asked for, and tells if one thread of Debezium read the table.

Debezium 3.7 reads the first chunk that a signal from Kafka asks for on the thread that polls for signals, while its
streaming thread passes changes on. Both use the same buffer and the same connection, without a lock. Then

- a row that changes meanwhile may be sent as it was before, after its change. It needs no second failure: the streaming
  thread takes a row that has changed out of the buffer before the other thread has put it there;
- the streaming thread may begin to read as well, so that rows are lost, read twice, or the reading fails;
- rows of a reading that failed stay in the buffer, and the next one sends them.

A signal that arrives while a snapshot is in progress only puts its table at the end of the queue. The streaming thread
comes to it, alone. So signals by Kafka are sent in one batch: first those of `primers`, each of which reads one row,
then the one of the table. The signalling thread handles them one after another. It notifies `STARTED` before it reads,
and it reads before it handles the next signal. So if the last signal has no `STARTED` before its `COMPLETED`, then no
thread but the streaming one has read since the last signal was handled, and the table was read after that. The
streaming thread sends each row that it reads, or drops it for a change of the row that it sends instead. Hence each row
that the source holds throughout has an event that is newer than the signals, and its last one is up to date.

A row that a primer, or an attempt before, has read on the other thread may be sent after its delete, and the table's
reading does not mend that: `WholeRead` looks for a read that follows a delete.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingest.connector.signals import (
    ABORTED,
    CHUNK,
    COLLECTIONS,
    COMPLETED,
    EMPTY,
    STARTED,
    SUCCEEDED,
    TABLE_READ,
    UNKNOWN,
    SnapshotNotice,
)
from ingest.errors import Contended


@dataclass(frozen=True)
class SnapshotEnd:
    """How a snapshot of one table ended. `status`: of its reading, or the kind of the last notification. `rows`: their
    number, where the connector tells it. `on_one_thread`: no second thread has read meanwhile."""

    status: str
    rows: int | None
    on_one_thread: bool


class SnapshotWatch:
    """The snapshot of `table` (schema.table) that the last of the signals with the IDs `signals` asks for; the others
    came before it in the same batch. `by_log`: the signal came with the log, which one thread reads."""

    def __init__(self, table: str, *signals: str, by_log: bool = False) -> None:
        self._table, self._signals, self._by_log = table, signals, by_log
        self._begun = self._started_itself = False
        self._chunks = self._counted_before = 0
        self._reads: list[SnapshotNotice] = []

    def take(self, notice: SnapshotNotice) -> SnapshotEnd | None:
        """Takes the next notification. Returns the end of the snapshot, once it has come.

        Raises Contended where another snapshot was asked for at the same time."""
        is_own = notice.id in self._signals
        # A signal joins a snapshot that is in progress, whose later notifications bear its ID then.
        if (self._begun and not is_own) or (is_own and not self._begun and notice.kind != STARTED):
            raise Contended(
                f"another snapshot was asked for at the same time, so it isn't known when {self._table} was read whole",
                "run the same command again once the other snapshot has ended",
            )
        if not is_own:
            return None
        self._begun = True
        if notice.kind == COLLECTIONS and not notice.tables:
            return SnapshotEnd(UNKNOWN, None, True)
        is_of_last = notice.id == self._signals[-1]
        # The notification of a primer that ends after the table was queued names the table twice.
        if notice.kind == TABLE_READ and is_of_last and "," not in (notice.tables or ""):
            self._reads.append(notice)
        elif notice.kind == TABLE_READ:
            # Debezium goes on counting rows after a reading that failed.
            self._counted_before = (notice.rows or 0) if notice.status != SUCCEEDED else 0
        if not is_of_last:
            return None
        self._started_itself |= notice.kind == STARTED
        self._chunks += notice.kind == CHUNK
        return self._end(notice.kind) if notice.kind in (ABORTED, COMPLETED) else None

    def _end(self, kind: str) -> SnapshotEnd:
        if kind == ABORTED or not self._reads:
            return SnapshotEnd(kind, None, True)
        last = self._reads[-1]
        # Only a query of the database's, by either thread, finds a table empty that no thread has read from.
        is_empty = last.status == EMPTY and len(self._reads) == 1 and not self._chunks
        alone = self._by_log or not self._started_itself or is_empty
        rows = None if last.rows is None else max(last.rows - self._counted_before, 0)
        return SnapshotEnd(last.status or kind, 0 if is_empty else rows, alone)
