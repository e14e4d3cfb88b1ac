"""Signals to Debezium and its notifications, for incremental snapshots of one table.

Source: Debezium's documentation, 3.7, "Sending signals to a Debezium connector" and "Receiving notifications"; the
statuses and the forms of names were seen on 3.7.0.Final.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SUCCEEDED, EMPTY = "SUCCEEDED", "EMPTY"
"""Statuses of a table that was read: to its end, or without a row."""
UNKNOWN, KEYLESS, FAILED = "UNKNOWN_SCHEMA", "NO_PRIMARY_KEY", "SQL_EXCEPTION"
"""Statuses of a table that was not read."""
STARTED, COLLECTIONS, CHUNK, TABLE_READ = (
    "STARTED",
    "DATA_COLLECTIONS_RESOLVED",
    "IN_PROGRESS",
    "TABLE_SCAN_COMPLETED",
)
COMPLETED, ABORTED = "COMPLETED", "ABORTED"
"""Types of notifications."""
_AGGREGATE = "Incremental Snapshot"


@dataclass(frozen=True)
class SnapshotNotice:
    """A notification of an incremental snapshot. `id`: that of its signal. `tables`: those that the signal names and
    the connector knows; None if it doesn't tell. `table`, `status`: of a `TABLE_READ`. `chunk`, `chunks`: of a `CHUNK`.
    `rows`: of the table, or those that were read."""

    id: str
    kind: str
    tables: str | None = None
    table: str | None = None
    status: str | None = None
    chunk: int | None = None
    chunks: int | None = None
    rows: int | None = None


def execute_snapshot(signal_id: str, schema: str, table: str, predicate: str | None = None) -> dict[str, Any]:
    """Returns the signal that starts an incremental snapshot of one table. `predicate`: SQL that its rows meet."""
    # Debezium takes both names for regular expressions of whole names. The condition of a quoted name is ignored.
    pattern = re.escape(f"{schema}.{table}")
    data: dict[str, Any] = {"type": "INCREMENTAL", "data-collections": [pattern]}
    if predicate is not None:
        data["additional-conditions"] = [{"data-collection": pattern, "filter": predicate}]
    return {"id": signal_id, "type": "execute-snapshot", "data": data}


def one_row(schema: str, table: str, predicate: str | None = None) -> str:
    """Returns a predicate that one row of the table meets, or one per partition of it, of those that meet
    `predicate`."""
    those = "" if predicate is None else f" WHERE ({predicate})"
    return f'ctid IN (SELECT ctid FROM "{schema}"."{table}"{those} LIMIT 1)'


def snapshot_notice(value: bytes | None) -> SnapshotNotice | None:
    """Returns the notification in a record's value; None if it is about something else than an incremental
    snapshot."""
    try:
        document = json.loads(value or b"null")
    except ValueError:
        return None
    found = document.get("payload", document) if isinstance(document, dict) else {}
    if found.get("aggregate_type") != _AGGREGATE:
        return None
    more: Mapping[str, str] = found.get("additional_data") or {}
    return SnapshotNotice(
        str(found.get("id")),
        str(found.get("type")),
        more.get("data_collections"),
        more.get("scanned_collection"),
        more.get("status"),
        _number(more.get("chunk_index")),
        _number(more.get("total_chunks")),
        _number(more.get("total_rows_scanned", more.get("total_rows"))),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def missing_properties(
    config: Mapping[str, str], servers: str, notifications: str, signal_table: str | None = None
) -> dict[str, str]:
    """Returns the properties that a connector lacks for a resync: name → value to set.

    `servers`: addresses of brokers. `notifications`: a topic for the connector's notifications. `signal_table`: the
    table to which signals are written, if not to Kafka."""
    wanted: dict[str, str] = {}
    channels, channel = _words(config.get("signal.enabled.channels", "source")), "source" if signal_table else "kafka"
    if channel not in channels:
        wanted["signal.enabled.channels"] = ",".join([*channels, channel])
    if signal_table is None and not config.get("signal.kafka.bootstrap.servers"):
        wanted["signal.kafka.bootstrap.servers"] = servers
    if signal_table is not None and config.get("signal.data.collection") != signal_table:
        wanted["signal.data.collection"] = signal_table
    if config.get("read.only", "false").lower() != "true" and not (
        signal_table or config.get("signal.data.collection")
    ):
        wanted["read.only"] = "true"
    sinks = _words(config.get("notification.enabled.channels", ""))
    if "sink" not in sinks:
        wanted["notification.enabled.channels"] = ",".join([*sinks, "sink"])
    if not config.get("notification.sink.topic.name"):
        wanted["notification.sink.topic.name"] = notifications
    return wanted


def signal_table_of(config: Mapping[str, str]) -> str | None:
    """Returns the one table from which a connector reads signals; None if it reads none from a table."""
    name = config.get("signal.data.collection", "").strip()
    is_read = "source" in _words(config.get("signal.enabled.channels", "source"))
    return name if name and "," not in name and is_read else None


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
