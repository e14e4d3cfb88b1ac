"""Reads a table at its source again: signals Debezium to take an incremental snapshot, and watches its notifications.

The connector answers over topics, so neither the database nor the lakehouse is opened here. The reads come to the
table's own topic; the pipeline merges them as any other events.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest.config import Pipeline
from ingest.config.control_topics import ControlTopics
from ingest.connector import Connectors
from ingest.connector.recipe import POSTGRES_CLASS
from ingest.connector.signals import (
    ABORTED,
    COLLECTIONS,
    COMPLETED,
    EMPTY,
    STARTED,
    SUCCEEDED,
    TABLE_READ,
    SnapshotNotice,
    execute_snapshot,
    missing_properties,
    signal_table_of,
    snapshot_notice,
)
from ingest.errors import ConfigError, Contended, SourceRefused, Unreachable
from ingest.sources.signal_table import SignalTable
from ingest.sources.signal_topics import TopicTail, create_topics, send

_UNSAFE = re.compile(r"""[\s."'`,]""")
_POLL_SECONDS = 1.0
_STATUS_SECONDS = 5.0
_PAUSE_SECONDS = 1.0
_SIGNALS = 3
"""How often a table is asked for by Kafka while its reading fails."""
_FAILED_READ = "SQL_EXCEPTION"
_TWO_THREADS = (
    "Debezium begins a read that is asked for by Kafka on a second thread, which fails if the table changes meanwhile: "
    "let it read signals from a table (--signal-table)"
)
_SIGNAL_TOPIC = {"cleanup.policy": "delete", "retention.ms": "604800000"}
_REFUSALS = {
    "NO_PRIMARY_KEY": (
        "has no primary key, by which Debezium reads a table in chunks",
        "give it a primary key; or take a new snapshot of it with a signal of type blocking",
    ),
    "UNKNOWN_SCHEMA": (
        "is not among the tables of the connector",
        "add it to the connector's table.include.list, or correct the name (schema.table, as the source spells it)",
    ),
    _FAILED_READ: (
        "could not be read: Debezium's query failed",
        "check --where, and that the connector's user may SELECT the table; the connector's log has the reason",
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

    def read(self, report: Callable[[SnapshotNotice], None]) -> TableRead:
        """Asks for the snapshot and waits until the table is read. `report`: takes each notification of it.

        Raises SourceRefused and ConfigError where the connector can't read the table, Contended where another snapshot
        was asked for at the same time, Unreachable where the connector does not answer.
        """
        kafka = self._pipeline.source.kafka
        topics = (
            [self._topics.notifications] if self._signal_table else [self._topics.signals, self._topics.notifications]
        )
        create_topics(kafka, dict.fromkeys(topics, _SIGNAL_TOPIC))
        with TopicTail(kafka, self._topics.notifications) as tail:
            signal, end = self._ask(tail, report)
            for number in range(self._signals - 1):
                if end.status != _FAILED_READ:
                    break
                # Two threads of Debezium have read the table at once, or the database refuses the query: the status is
                # the same.
                time.sleep(_PAUSE_SECONDS * 2**number)
                signal, end = self._ask(tail, report)
        self._require_read(end.status or end.kind)
        return TableRead((self._schema, self._name), signal, end.rows)

    @property
    def _signals(self) -> int:
        """Returns how often the table is asked for while its reading fails. A signal in a table comes with the log, on
        one thread, so that a failure is the database's."""
        return 1 if self._signal_table is not None else _SIGNALS

    def _ask(self, tail: TopicTail, report: Callable[[SnapshotNotice], None]) -> tuple[str, SnapshotNotice]:
        """Sends a signal. Returns its ID and the notification with which the reading of the table ended."""
        signal = f"ingest-{self._pipeline.name}-{uuid.uuid4()}"
        self._send(execute_snapshot(signal, self._schema, self._name, self._request.predicate))
        for notice in self._notices(tail, signal):
            report(notice)
            is_other = notice.kind == TABLE_READ and notice.table != f"{self._schema}.{self._name}"
            has_read_other = is_other and notice.status in (SUCCEEDED, EMPTY)
            if notice.kind in (TABLE_READ, ABORTED, COMPLETED) and not has_read_other:
                return signal, notice
        raise AssertionError("the notifications end with an exception only")

    def _send(self, signal: Mapping[str, Any]) -> None:
        if self._signal_table is not None:
            self._signal_table.insert(signal)
        else:
            # Debezium reads signals whose key is its topic.prefix.
            send(self._pipeline.source.kafka, self._topics.signals, self._topics.prefix, signal)

    def _wanted(self, topics: ControlTopics) -> tuple[str, str, str | None]:
        """Returns the brokers, the topic of notifications and the signal table that the connector has to be set to."""
        table = None if self._signal_table is None else self._signal_table.name
        return self._pipeline.source.kafka["bootstrap.servers"], topics.notifications, table

    def _notices(self, tail: TopicTail, signal: str) -> Iterator[SnapshotNotice]:
        """Yields the notifications of the snapshot that `signal` started."""
        table, started = self._request.table, False
        for notice in self._snapshot_notices(tail):
            is_own = notice.id == signal
            # A signal joins a snapshot that is in progress, whose later notifications bear its id then.
            if (started and not is_own) or (is_own and not started and notice.kind != STARTED):
                raise Contended(
                    f"another snapshot was asked for at the same time, so it isn't known when {table} was read whole",
                    "run the same command again once the other snapshot has ended",
                )
            if not is_own:
                continue
            started = True
            if notice.kind == COLLECTIONS and not notice.tables:
                self._require_read("UNKNOWN_SCHEMA")
            yield notice

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
            cause = "" if self._signal_table is not None else f". {_TWO_THREADS}"
            raise SourceRefused(
                f"connector {connect.connector!r} has failed ({', '.join(status.failures)}) and reads nothing, "
                f"{self._request.table} neither; its events wait at the source",
                "read the log of its Kafka Connect worker, fix the cause, restart it, then run the same command "
                f"again{cause}",
            )

    def _require_read(self, status: str) -> None:
        if status in (SUCCEEDED, EMPTY):
            return
        if status in _REFUSALS:
            problem, remedy = _REFUSALS[status]
            if status == _FAILED_READ and self._signal_table is None:
                problem, remedy = f"{problem} {_SIGNALS} times", f"{remedy}. {_TWO_THREADS}"
            raise SourceRefused(f"table {self._request.table} {problem}", remedy)
        raise Unreachable(
            f"the snapshot of {self._request.table} ended before all was read ({status})",
            "run the same command again",
        )
