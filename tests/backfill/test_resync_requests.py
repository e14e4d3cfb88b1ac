"""Which ends of a snapshot count as the reading of a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingest.backfill.resync import Resync, ResyncRequest
from ingest.config import load
from ingest.connector.snapshot_watch import SnapshotEnd
from ingest.errors import EXIT_TRANSIENT, EXIT_USER, IngestError
from ingest.sources.signal_table import SignalTable

SIGNAL_TABLE = SignalTable("public.signals", "host=nowhere")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    source = {"kafka": {"bootstrap.servers": "broker:9092"}, "topic_pattern": r"shop\.public\..*"}
    file = tmp_path / "shop.yaml"
    file.write_text(json.dumps({"source": source, "lakehouse": str(tmp_path)}), encoding="utf-8")
    return file


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
def test_table_that_one_thread_did_not_read_whole_is_not_read(
    file: Path, end: SnapshotEnd, code: int, words: str
) -> None:
    with pytest.raises(IngestError, match=words) as refused:
        Resync(load(file), ResyncRequest("public.orders"), 1).require_read(end)
    assert refused.value.exit_code == code
    if words in ("two threads", "query failed"):
        assert "--signal-table" in refused.value.remedy


@pytest.mark.parametrize("status", ["SUCCEEDED", "EMPTY"])
def test_table_that_one_thread_has_read_is_read(file: Path, status: str) -> None:
    Resync(load(file), ResyncRequest("public.orders"), 1).require_read(SnapshotEnd(status, 1, on_one_thread=True))


def test_query_that_fails_by_a_signal_table_is_not_blamed_on_kafka(file: Path) -> None:
    by_table = Resync(load(file), ResyncRequest("public.orders"), 1, SIGNAL_TABLE)
    with pytest.raises(IngestError, match="query failed") as refused:
        by_table.require_read(SnapshotEnd("SQL_EXCEPTION", 0, on_one_thread=True))
    assert "--signal-table" not in refused.value.remedy
