"""Notifications of a snapshot, in the orders in which Debezium 3.7.0.Final sent them, tell if one thread read the
table."""

from __future__ import annotations

import pytest

from ingest.connector.signals import SnapshotNotice
from ingest.connector.snapshot_watch import SnapshotEnd, SnapshotWatch
from ingest.errors import Contended

TABLE = "live.items"
PRIMERS = ("p1", "p2", "p3")


def started(signal: str) -> list[SnapshotNotice]:
    return [SnapshotNotice(signal, "STARTED", TABLE), SnapshotNotice(signal, "DATA_COLLECTIONS_RESOLVED", TABLE)]


def chunk(signal: str) -> SnapshotNotice:
    return SnapshotNotice(signal, "IN_PROGRESS", TABLE, chunk=1, chunks=1, rows=1)


def scanned(signal: str, status: str, rows: int, queued: int = 1) -> SnapshotNotice:
    """`queued`: how often the table is in Debezium's queue."""
    return SnapshotNotice(signal, "TABLE_SCAN_COMPLETED", ",".join([TABLE] * queued), TABLE, status, rows=rows)


def completed(signal: str) -> SnapshotNotice:
    return SnapshotNotice(signal, "COMPLETED")


def primed() -> list[SnapshotNotice]:
    """Returns the notifications of primers that hold the queue until the table is in it."""
    done = [scanned("s", "SUCCEEDED", 1, queued) for queued in (4, 3, 2)]
    return [*started("p1"), chunk("p1"), done[0], chunk("s"), done[1], chunk("s"), done[2]]


def end_of(notices: list[SnapshotNotice], *primers: str, by_log: bool = False) -> SnapshotEnd | None:
    watch = SnapshotWatch(TABLE, *primers, "s", by_log=by_log)
    ends = [watch.take(notice) for notice in notices]
    assert not any(ends[:-1]), "the end is the last notification"
    return ends[-1]


def test_table_that_was_queued_is_read_by_one_thread() -> None:
    notices = [*primed(), chunk("s"), chunk("s"), scanned("s", "SUCCEEDED", 100), completed("s")]
    assert end_of(notices, *PRIMERS) == SnapshotEnd("SUCCEEDED", 100, on_one_thread=True)


def test_table_that_was_asked_for_after_the_primers_ended_is_read_by_two_threads() -> None:
    notices = [
        *started("p1"),
        scanned("p1", "SQL_EXCEPTION", 1),
        completed("p1"),
        *started("p2"),
        chunk("p2"),
        scanned("p3", "SUCCEEDED", 2),
        completed("p3"),
        *started("s"),
        chunk("s"),
        scanned("s", "SUCCEEDED", 100),
        completed("s"),
    ]
    assert end_of(notices, *PRIMERS) == SnapshotEnd("SUCCEEDED", 100, on_one_thread=False)


def test_table_is_queued_if_any_primer_holds_the_queue() -> None:
    failed = [*started("p1"), scanned("p1", "SQL_EXCEPTION", 1), completed("p1")]
    held = [*started("p2"), chunk("p2"), scanned("s", "SUCCEEDED", 2, 3), scanned("s", "SUCCEEDED", 1, 2)]
    notices = [*failed, *held, chunk("s"), scanned("s", "SUCCEEDED", 100), completed("s")]
    assert end_of(notices, *PRIMERS) == SnapshotEnd("SUCCEEDED", 100, on_one_thread=True)


def test_rows_of_a_primer_that_failed_are_not_counted() -> None:
    notices = [*started("p1"), chunk("p1"), scanned("s", "SQL_EXCEPTION", 1002, 2), chunk("s")]
    notices += [scanned("s", "SUCCEEDED", 2002), completed("s")]
    assert end_of(notices, *PRIMERS) == SnapshotEnd("SUCCEEDED", 1000, on_one_thread=True)


def test_primer_is_not_taken_for_the_table() -> None:
    """The queue has lost the table."""
    notices = [*started("p1"), chunk("p1"), scanned("p1", "SUCCEEDED", 1), completed("s")]
    end = end_of(notices, *PRIMERS)
    assert end is not None
    assert end.status == "COMPLETED"


def test_table_without_rows_holds_no_queue() -> None:
    notices: list[SnapshotNotice] = []
    for signal in (*PRIMERS, "s"):
        notices += [*started(signal), scanned(signal, "EMPTY", 0), completed(signal)]
    assert end_of(notices, *PRIMERS) == SnapshotEnd("EMPTY", 0, on_one_thread=True)


def test_table_that_a_second_thread_has_read_to_its_end_is_not_empty() -> None:
    notices = [*started("s"), chunk("s"), scanned("s", "SUCCEEDED", 5), scanned("s", "EMPTY", 0), completed("s")]
    end = end_of([*started("p1"), scanned("p1", "SQL_EXCEPTION", 0), completed("p1"), *notices], *PRIMERS)
    assert end is not None
    assert not end.on_one_thread


def test_signal_in_the_log_starts_the_snapshot_itself() -> None:
    notices = [*started("s"), chunk("s"), scanned("s", "SUCCEEDED", 5), completed("s")]
    assert end_of(notices, by_log=True) == SnapshotEnd("SUCCEEDED", 5, on_one_thread=True)


def test_unknown_table_ends_at_once() -> None:
    notices = [SnapshotNotice("p1", "STARTED", ""), SnapshotNotice("p1", "DATA_COLLECTIONS_RESOLVED", "")]
    assert end_of(notices, *PRIMERS) == SnapshotEnd("UNKNOWN_SCHEMA", None, on_one_thread=True)


def test_query_that_the_database_refuses_fails_on_one_thread() -> None:
    notices = [*primed(), scanned("s", "SQL_EXCEPTION", 0), completed("s")]
    assert end_of(notices, *PRIMERS) == SnapshotEnd("SQL_EXCEPTION", 0, on_one_thread=True)


def test_table_that_the_connector_does_not_know_bears_the_pattern_of_its_name() -> None:
    read = SnapshotNotice("s", "TABLE_SCAN_COMPLETED", r"live\.items", r"live\.items", "UNKNOWN_SCHEMA", rows=0)
    end = end_of([*started("s"), read, completed("s")])
    assert end is not None
    assert end.status == "UNKNOWN_SCHEMA"


@pytest.mark.parametrize(
    "notices",
    [
        [scanned("s", "SUCCEEDED", 1, 5)],
        [*started("p1"), chunk("other")],
        [*primed(), chunk("s"), SnapshotNotice("other", "STARTED", TABLE)],
    ],
)
def test_another_snapshot_at_the_same_time_is_refused(notices: list[SnapshotNotice]) -> None:
    with pytest.raises(Contended, match="another snapshot"):
        end_of(notices, *PRIMERS)


def test_notifications_before_the_first_one_are_others() -> None:
    notices = [chunk("other"), completed("other"), *primed(), scanned("s", "SUCCEEDED", 7), completed("s")]
    assert end_of(notices, *PRIMERS) == SnapshotEnd("SUCCEEDED", 7, on_one_thread=True)
