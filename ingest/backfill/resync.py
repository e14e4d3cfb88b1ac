"""Reads a table at its source again: signals Debezium to take an incremental snapshot, and watches its notifications.

The connector answers over topics, so neither the database nor the lakehouse is opened here. The reads come to the
table's own topic; the pipeline merges them as any other events.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ingest.config import Pipeline
from ingest.config.control_topics import ControlTopics
from ingest.connector import Connectors
from ingest.connector.recipe import POSTGRES_CLASS
from ingest.connector.signals import (
    EMPTY,
    FAILED,
    KEYLESS,
    SUCCEEDED,
    UNKNOWN,
    SnapshotNotice,
    execute_snapshot,
    missing_properties,
    one_row,
    signal_table_of,
    snapshot_notice,
)
from ingest.connector.snapshot_watch import SnapshotEnd, SnapshotWatch
from ingest.errors import ConfigError, SourceRefused, Unreachable
from ingest.sources.signal_table import SignalTable
from ingest.sources.signal_topics import TopicTail, create_topics, send

_UNSAFE = re.compile(r"""[\s."'`,]""")
_POLL_SECONDS = 1.0
_STATUS_SECONDS = 5.0
_PAUSE_SECONDS = 1.0
_PRIMERS = 3
"""Signals by Kafka before the one of the table: how many threads read while a signal is taken depends on chance."""
_TWO_THREADS = (
    "have the connector read signals from a table (--signal-table), or send a signal of type blocking; Debezium begins "
    "a read that is asked for by Kafka on a second thread"
)
_OLD_VALUES = "rows that changed meanwhile may have older values than the source until it is read again"
_SIGNAL_TOPIC = {"cleanup.policy": "delete", "retention.ms": "604800000"}
_REFUSALS = {
    KEYLESS: (
        "has no primary key, by which Debezium reads a table in chunks",
        "give it a primary key; or take a new snapshot of it with a signal of type blocking",
    ),
    UNKNOWN: (
        "is not among the tables of the connector",
        "add it to the connector's table.include.list, or correct the name (schema.table, as the source spells it)",
    ),
    FAILED: (
        "could not be read: Debezium's query failed",
        "check --where, and that the connector's user may SELECT the table (the connector's log has the reason); then "
        "restart the connector: it keeps the rows that it has read, and would send them with its next read",
    ),
}
"""Status → problem and remedy."""


@dataclass(frozen=True)
class ResyncRequest:
    """`table`: its name in the pipeline. `predicate`: SQL that the rows to read meet; may hold personal values."""

    table: str
    predicate: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class TableRead:
    """A table that was read again. `table`: schema and name at the source. `rows`: their number, where the connector
    tells it."""

    table: tuple[str, str]
    signal: str
    rows: int | None


class Resync:
    """One resync of a pipeline's table. `patience_seconds`: how long to wait for the connector's next notification.
    `signal_table`: gets the signal in place of the Kafka topic. `database`: the connection to the source; with it, the
    table from which the connector reads signals gets it."""

    def __init__(
        self,
        pipeline: Pipeline,
        request: ResyncRequest,
        patience_seconds: float,
        signal_table: SignalTable | None = None,
        database: str | None = None,
    ) -> None:
        self._pipeline, self._request, self._patience = pipeline, request, patience_seconds
        self._signal_table, self._database = signal_table, database
        parts = pipeline.source.table_names.count(".") - 1
        self._schema, _, self._name = request.table.split(".", parts)[-1].partition(".")
        if not self._name:
            raise ConfigError(f"table {request.table!r} has no schema", "name it as `ingest status` does: schema.table")
        if _UNSAFE.search(self._schema + self._name):
            # Debezium stores the names unquoted with its offsets, and its task fails as soon as it reads them.
            raise ConfigError(
                f"Debezium can't read {request.table} again: a name with a space, a quote or a dot makes it fail",
                "rename the table, or read it with a connector of its own",
            )
        self._connectors, self._topics = self._connector()

    def _connector(self) -> tuple[Connectors | None, ControlTopics]:
        """Returns the connector's worker, if the file names it, and the topics, as the connector's configuration names
        them. Raises ConfigError where it lacks a property."""
        source = self._pipeline.source
        topics = source.control_topics
        if topics is None:
            raise ConfigError(
                f"the topics of pipeline {self._pipeline.name!r} don't tell the connector's topic.prefix",
                "set source: {debezium: {topic.prefix: …}} in its file",
            )
        if source.connect is None:
            return None, topics
        connectors = Connectors(source.connect.url, source.connect.login, source.connect.ca_file)
        config = connectors.configuration(source.connect.connector)
        if config.get("connector.class") != POSTGRES_CLASS:
            raise ConfigError(
                f"connector {source.connect.connector!r} is not Debezium's for Postgres",
                "take a new snapshot of the table as Debezium's documentation of the connector describes it",
            )
        if self._signal_table is None and self._database is not None and (name := signal_table_of(config)):
            self._signal_table = SignalTable(name, self._database)
        missing = missing_properties(config, *self._wanted(topics))
        if missing:
            lines = ", ".join(f"{name}={value}" for name, value in missing.items())
            raise ConfigError(
                f"connector {source.connect.connector!r} is not set up for a resync",
                f"add to its configuration: {lines}",
            )
        prefix = config["topic.prefix"]
        signals = config.get("signal.kafka.topic", f"{prefix}-signal")
        return connectors, ControlTopics(prefix, signals, config["notification.sink.topic.name"], topics.resyncs)

    def read(self, report: Callable[[SnapshotNotice], None], *, is_known: bool = False) -> TableRead:
        """Asks for the snapshot and waits until the table is read. `report`: takes each notification of it.
        `is_known`: the connector has sent events of the table.

        Raises SourceRefused and ConfigError where the connector can't read the table, Contended where another snapshot
        was asked for at the same time, Unreachable where the connector does not answer.
        """
        topics = self._topics
        used = [topics.notifications] if self._signal_table else [topics.signals, topics.notifications]
        create_topics(self._pipeline.source.kafka, dict.fromkeys(used, _SIGNAL_TOPIC))
        if self._signal_table is None and not is_known and (signal := self._try_one_row(report)) is not None:
            return TableRead((self._schema, self._name), signal, 0)
        primers = [] if self._signal_table else [one_row(self._schema, self._name)] * _PRIMERS
        signal, end = self._snapshot([*primers, self._request.predicate], report)
        require_read(self._request.table, end, self._signal_table is None)
        return TableRead((self._schema, self._name), signal, end.rows)

    def _try_one_row(self, report: Callable[[SnapshotNotice], None]) -> str | None:
        """Asks for one row. Returns the ID of the signal if there is none.

        A query that fails on the streaming thread stops the connector; on the signalling thread it doesn't, and that
        one handles a signal by Kafka that comes alone. Raises as `require_read` does."""
        row = one_row(self._schema, self._name, self._request.predicate)
        signal, end = self._snapshot([row], report)
        for number in range(_PRIMERS - 1):
            if end.status != FAILED:
                break
            # The database refuses the query, or the streaming thread has read at the same time.
            time.sleep(_PAUSE_SECONDS * 2**number)
            signal, end = self._snapshot([row], report)
        if end.status in _REFUSALS:
            require_read(self._request.table, replace(end, on_one_thread=True), self._signal_table is None)
        return signal if end.status == EMPTY and end.on_one_thread else None

    def _snapshot(
        self, predicates: Sequence[str | None], report: Callable[[SnapshotNotice], None]
    ) -> tuple[str, SnapshotEnd]:
        """Sends a batch of signals, one for the rows that meet each predicate. Returns the ID of the last one, and the
        end of its snapshot."""
        signals = {f"ingest-{self._pipeline.name}-{uuid.uuid4()}": predicate for predicate in predicates}
        by_log = self._signal_table is not None
        watch = SnapshotWatch(f"{self._schema}.{self._name}", *signals, by_log=by_log)
        with TopicTail(self._pipeline.source.kafka, self._topics.notifications) as tail:
            self._send([execute_snapshot(i, self._schema, self._name, wanted) for i, wanted in signals.items()])
            for notice in self._snapshot_notices(tail):
                report(notice)
                if (end := watch.take(notice)) is not None:
                    return list(signals)[-1], end
        raise AssertionError("the notifications end with an exception only")

    def _send(self, signals: Sequence[Mapping[str, Any]]) -> None:
        if self._signal_table is not None:
            for signal in signals:
                self._signal_table.insert(signal)
        else:
            # Debezium reads signals whose key is its topic.prefix.
            send(self._pipeline.source.kafka, self._topics.signals, self._topics.prefix, *signals)

    def _wanted(self, topics: ControlTopics) -> tuple[str, str, str | None]:
        """Returns the brokers, the topic of notifications and the signal table that the connector has to be set to."""
        table = None if self._signal_table is None else self._signal_table.name
        return self._pipeline.source.kafka["bootstrap.servers"], topics.notifications, table

    def _snapshot_notices(self, tail: TopicTail) -> Iterator[SnapshotNotice]:
        """Yields all notifications of incremental snapshots. Raises Unreachable if none comes in time."""
        deadline, checked = time.monotonic() + self._patience, time.monotonic()
        while time.monotonic() < deadline:
            notice = snapshot_notice(tail.next(_POLL_SECONDS))
            if notice is not None:
                deadline = time.monotonic() + self._patience
                yield notice
            elif time.monotonic() - checked > _STATUS_SECONDS:
                self._require_running()
                checked = time.monotonic()
        topics = self._topics
        raise Unreachable(
            f"the connector of {topics.prefix} sent no notification to topic {topics.notifications} for "
            f"{self._patience:g} s",
            f"see that it runs, and that it has {self._properties()}; then run the same command again",
        )

    def _properties(self) -> str:
        wanted = missing_properties({}, *self._wanted(self._topics))
        if self._signal_table is None:
            wanted = {"signal.kafka.topic": self._topics.signals} | wanted
        return ", ".join(f"{name}={value}" for name, value in wanted.items())

    def _require_running(self) -> None:
        connect = self._pipeline.source.connect
        if self._connectors is None or connect is None:
            return
        status = self._connectors.status(connect.connector)
        if status.failed:
            by_kafka = "" if self._signal_table is not None else f"; {_OLD_VALUES}"
            raise SourceRefused(
                f"connector {connect.connector!r} has failed ({', '.join(status.failures)}) and reads nothing, "
                f"{self._request.table} neither; its events wait at the source{by_kafka}",
                "read the log of its Kafka Connect worker, fix the cause, and restart it; then "
                + ("run the same command again" if self._signal_table is not None else _TWO_THREADS),
            )


def require_read(table: str, end: SnapshotEnd, by_kafka: bool) -> None:
    """Raises SourceRefused or Unreachable where a table was not read, or by two threads at once. `by_kafka`: the
    snapshot was asked for by Kafka alone."""
    if end.status in _REFUSALS and (end.on_one_thread or end.status != FAILED):
        problem, remedy = _REFUSALS[end.status]
        if end.status == FAILED and by_kafka:
            remedy = f"{remedy}. If it fails again, {_TWO_THREADS}"
        raise SourceRefused(f"table {table} {problem}", remedy)
    if not end.on_one_thread:
        raise SourceRefused(
            f"two threads of Debezium have read {table} at once, as the source changed in that moment: no row is "
            f"removed, and {_OLD_VALUES}",
            f"restart the connector, which may keep rows that it has read; then {_TWO_THREADS}",
        )
    if end.status not in (SUCCEEDED, EMPTY):
        raise Unreachable(
            f"the snapshot of {table} ended before all was read ({end.status})", "run the same command again"
        )
