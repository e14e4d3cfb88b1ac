"""The records that a connector writes, and how far it has read."""

from __future__ import annotations

import base64
import json
import time
from types import TracebackType
from typing import Any, Self

import psycopg
from confluent_kafka import Consumer, Message

from ingest.stack import Stack

_MARKER = "marker"
_TIMEOUT_SECONDS = 120
_SILENCE_SECONDS = 2
_KEY_HEADERS = ("__debezium.newkey", "__debezium.oldkey")
"""Those that hold JSON."""
_OF_SOURCE = ("connector", "name", "snapshot", "db", "sequence", "schema", "table", "lsn", "ts_ms")
_OF_PAYLOAD = ("op", "before", "after", "message", "source")
_OF_SCHEMA = ("before", "after", "op")


class Records:
    """Reads all topics of a connector. A context manager.

    A connector that lags behind its source describes rows by definitions of later statements, and sends fillers in
    place of values; which ones depends on the machine. So `await_connector` between statements."""

    def __init__(self, stack: Stack, name: str, connection: psycopg.Connection[Any]) -> None:
        """`connection`: in autocommit, to the connector's database."""
        self._name = name
        self._connection = connection
        self._number = 0
        self._found: dict[tuple[str, int, int], Message] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": stack.kafka.bootstrap_servers,
                "group.id": f"{name}-{time.monotonic_ns()}",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        self._consumer.subscribe([rf"^{name}\..*"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def await_connector(self) -> None:
        """Waits until the connector has read all that is committed. It has to read the log already."""
        self._number += 1
        text = str(self._number)
        self._connection.execute("SELECT pg_logical_emit_message(true, %s, %s)", [_MARKER, text])
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            message = self._next()
            if message is not None and _marked(message) == text:
                return
        raise AssertionError(f"connector {self._name} has sent no marker {text}")

    def so_far(self) -> list[Message]:
        """Returns the records up to now, by topic and offset: those that come until two seconds pass without one."""
        self.await_connector()
        heard = time.monotonic()
        while time.monotonic() < heard + _SILENCE_SECONDS:
            if self._next() is not None:
                heard = time.monotonic()
        return [self._found[place] for place in sorted(self._found) if _marked(self._found[place]) is None]

    def _next(self) -> Message | None:
        message = self._consumer.poll(0.5)
        if message is None or message.error() is not None:
            return None
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        self._found[topic, partition, offset] = message
        return message


def _marked(message: Message) -> str | None:
    """Returns the content of a marker; None of any other record."""
    value = message.value()
    if value is None or _MARKER.encode() not in value:
        return None
    payload = json.loads(value).get("payload") or {}
    told = payload.get("message") or {}
    return base64.b64decode(told["content"]).decode() if told.get("prefix") == _MARKER else None


def await_stream(connection: psycopg.Connection[Any], slot: str) -> None:
    """Waits until a connector has read its snapshot and reads the log."""
    begin, is_read = time.monotonic(), "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s AND active"
    while connection.execute(is_read, [slot]).fetchone() != (1,):
        assert time.monotonic() < begin + _TIMEOUT_SECONDS, "the connector doesn't read the log"
        time.sleep(0.2)


def line(message: Message) -> str:
    """Returns a record as a line of a changelog file, with key and value as they are."""
    key, value = (None if part is None else part.decode() for part in (message.key(), message.value()))
    named = [(str(name), text) for name, text in dict(message.headers() or ()).items() if text is not None]
    headers = [{"key": n, "value": json.loads(text)} for n, text in named if n in _KEY_HEADERS]
    names = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
    fields = json.dumps(names | ({"headers": headers} if headers else {}))
    return f'{fields[:-1]}, "key": {key or "null"}, "value": {value or "null"}}}\n'


def essential(text: str) -> dict[str, Any]:
    """Returns the record of a line of a changelog file without the fields of its envelope that no merge reads."""
    record: dict[str, Any] = json.loads(text)
    if (value := record["value"]) is not None:
        fields, payload = value["schema"]["fields"], value["payload"]
        value["schema"]["fields"] = [field for field in fields if field["field"] in _OF_SCHEMA]
        payload["source"] = {name: payload["source"][name] for name in _OF_SOURCE if name in payload["source"]}
        value["payload"] = {name: one for name, one in payload.items() if name in _OF_PAYLOAD}
    return record
