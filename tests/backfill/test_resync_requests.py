"""Which ends of a snapshot count as the reading of a table."""

from __future__ import annotations

import pytest

from ingest.backfill.resync import require_read
from ingest.connector.snapshot_watch import SnapshotEnd
from ingest.errors import EXIT_TRANSIENT, EXIT_USER, IngestError


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        (SnapshotEnd("SUCCEEDED", 100, on_one_thread=False), EXIT_USER, "two threads"),
        (SnapshotEnd("EMPTY", 0, on_one_thread=False), EXIT_USER, "two threads"),
        (SnapshotEnd("SQL_EXCEPTION", 0, on_one_thread=False), EXIT_USER, "two threads"),
        (SnapshotEnd("SQL_EXCEPTION", 0, on_one_thread=True), EXIT_USER, "query failed"),
        (SnapshotEnd("NO_PRIMARY_KEY", 0, on_one_thread=False), EXIT_USER, "no primary key"),
        (SnapshotEnd("COMPLETED", None, on_one_thread=True), EXIT_TRANSIENT, "ended before all was read"),
    ],
)
def test_table_that_one_thread_did_not_read_whole_is_not_read(end: SnapshotEnd, code: int, words: str) -> None:
    with pytest.raises(IngestError, match=words) as refused:
        require_read("public.orders", end, by_kafka=True)
    assert refused.value.exit_code == code
    if words in ("two threads", "query failed"):
        assert "--signal-table" in refused.value.remedy


@pytest.mark.parametrize("status", ["SUCCEEDED", "EMPTY"])
def test_table_that_one_thread_has_read_is_read(status: str) -> None:
    require_read("public.orders", SnapshotEnd(status, 1, on_one_thread=True), by_kafka=True)


def test_query_that_fails_by_a_signal_table_is_not_blamed_on_kafka() -> None:
    with pytest.raises(IngestError, match="query failed") as refused:
        require_read("public.orders", SnapshotEnd("SQL_EXCEPTION", 0, on_one_thread=True), by_kafka=False)
    assert "--signal-table" not in refused.value.remedy
