"""The records that Debezium sends of the tables of `matrix`, from a real Postgres or as they were recorded."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Message
from psycopg.conninfo import make_conninfo

from ingest.connector import ddl_trigger
from ingest.stack import Stack
from tests.connector.records import Records, await_stream, essential, line
from tests.matrix.changes import CHANGES, PHASES, PREPARED, SCHEMA

NAME = "matrix"
FORMS = ("told", "seen", "plain")
"""With the messages of the source's triggers; without them; without them and without schemas."""
Rows = list[dict[str, Any]] | None
_FOLDER = Path(__file__).parent / "recorded"
_RECORDS = tuple(_FOLDER / f"{NAME}-{part}.jsonl" for part in ("before", "after"))
_ROWS = _FOLDER / f"{NAME}-rows.json"


@dataclass(frozen=True)
class Captured:
    """The records before the changes and after them, as lines of a changelog file, and the rows of each table then."""

    records: tuple[list[str], list[str]]
    rows: tuple[dict[str, Rows], dict[str, Rows]]

    def save(self) -> None:
        """Writes the records and rows that `recorded` returns."""
        _FOLDER.mkdir(exist_ok=True)
        for path, records in zip(_RECORDS, self.records, strict=True):
            texts = (json.dumps(essential(text), ensure_ascii=False) for text in records)
            path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        _ROWS.write_text(json.dumps(self.rows, indent=1) + "\n", encoding="utf-8")


def recorded() -> Captured:
    """Returns what was recorded, without the fields of envelopes that no merge reads."""
    before, after = (path.read_text(encoding="utf-8").splitlines(keepends=True) for path in _RECORDS)
    rows_before, rows_after = json.loads(_ROWS.read_text(encoding="utf-8"))
    return Captured((before, after), (rows_before, rows_after))


def captured(stack: Stack) -> Captured:
    """Changes the tables in a database of their own, and returns what its connector sends."""
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {NAME}".encode())
    dsn = make_conninfo(stack.postgres.dsn, dbname=NAME)
    with psycopg.connect(dsn, autocommit=True) as connection:
        _execute(connection, PREPARED, *(change.statements(-1) for change in CHANGES))
        config = stack.postgres.connector(NAME, schemas=[SCHEMA]) | {"database.dbname": NAME, "poll.interval.ms": "50"}
        stack.connect.register(NAME, config)
        try:
            await_stream(connection, NAME)
            connection.execute(ddl_trigger().encode())
            with Records(stack, NAME, connection) as records:
                before, rows_before = records.so_far(), _rows_of_all(connection)
                for phase in range(PHASES):
                    _execute(connection, *(change.statements(phase) for change in CHANGES))
                    records.await_connector()
                every, rows_after = records.so_far(), _rows_of_all(connection)
        finally:
            stack.connect.delete(NAME)
    known = {_place_of(message) for message in before}
    after = [message for message in every if _place_of(message) not in known]
    return Captured(([*map(line, before)], [*map(line, after)]), (rows_before, rows_after))


def _execute(connection: psycopg.Connection[Any], *texts: str) -> None:
    """Executes statements, each in its own transaction."""
    for text in texts:
        for statement in filter(str.strip, text.split(";")):
            connection.execute(statement.replace("{publication}", NAME).encode())


def _rows_of_all(connection: psycopg.Connection[Any]) -> dict[str, Rows]:
    """Returns the rows of each table; None of one that is gone."""
    return {change.table: _rows_of(connection, change.table) for change in CHANGES}


def _rows_of(connection: psycopg.Connection[Any], table: str) -> Rows:
    if connection.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,):
        return None
    return ordered([json.loads(text) for (text,) in connection.execute(f"SELECT to_jsonb(t)::text FROM {table} t")])


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns rows in an order of their contents."""
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def _place_of(message: Message) -> tuple[str | None, int | None, int | None]:
    return message.topic(), message.partition(), message.offset()


def comparable(records: Iterable[str]) -> dict[str, list[Any]]:
    """Returns records by topic, without what differs from run to run: positions, times, numbers of relations, and the
    values of a default that is random."""
    found: dict[str, list[Any]] = {}
    relations: dict[int, int] = {}
    for text in records:
        record = essential(text)
        topic, payload = record["topic"], (record["value"] or {}).get("payload")
        if payload is not None:
            del payload["source"]
            if "message" in payload:
                content = json.loads(base64.b64decode(payload["message"]["content"]))
                content["oid"] = relations.setdefault(content["oid"], len(relations))
                payload["message"]["content"] = content
            for image in ("before", "after"):
                if topic.endswith(".volatile") and payload.get(image):
                    payload[image].pop("w", None)
        found.setdefault(topic, []).append([record["key"], record["value"], record.get("headers")])
    return found


def in_form(records: list[str], form: str, tables: Collection[str]) -> Iterator[str]:
    """Yields the records that a source of this form would have sent of some tables, with the messages of all."""
    topics = {f"{NAME}.message", *(f"{NAME}.{table}" for table in (*tables, f"{SCHEMA}.later", f"{SCHEMA}.whole"))}
    for text in records:
        record = json.loads(text)
        if record["topic"] not in topics:
            continue
        if form == "told":
            yield text
        elif record["topic"] != f"{NAME}.message":
            yield text if form == "seen" else json.dumps({n: _bare(part) for n, part in record.items()}) + "\n"


def _bare(part: Any) -> Any:
    """Returns a key or value as the converter writes it without schemas; anything else as it is."""
    return part["payload"] if isinstance(part, dict) and {*part} == {"schema", "payload"} else part
