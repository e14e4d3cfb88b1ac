"""Debezium sends for each change of a table's definition what `recorded/ddl.jsonl` holds.

With INGEST_RECORD=1 the test writes that file anew.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from ingest.connector import ddl_trigger
from ingest.stack import Stack
from tests.connector import ddl_story
from tests.connector.records import Records, await_stream, essential, line

pytestmark = pytest.mark.integration
NAME = "ddlstory"
RECORDED = Path(__file__).parent / "recorded" / "ddl.jsonl"


@pytest.fixture
def records(stack: Stack) -> Iterator[list[dict[str, Any]]]:
    """The records of all topics of the story, by topic and offset."""
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {NAME}".encode())
    dsn = make_conninfo(stack.postgres.dsn, dbname=NAME)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(ddl_story.BEFORE)
        config = stack.postgres.connector(NAME, schemas=[ddl_story.SCHEMA])
        stack.connect.register(NAME, config | {"database.dbname": NAME, "poll.interval.ms": "50"})
        try:
            await_stream(connection, NAME)
            connection.execute(ddl_trigger().encode())
            with Records(stack, NAME, connection) as records:
                _play(dsn, records)
                yield [essential(line(message)) for message in records.so_far()]
        finally:
            stack.connect.delete(NAME)


def _play(dsn: str, records: Records) -> None:
    last = (*ddl_story.TABLES, ddl_story.LAST)
    with psycopg.connect(dsn, autocommit=True) as one, psycopg.connect(dsn, autocommit=True) as two:
        steps = [
            *((one, text) for text in (*ddl_story.COLUMNS, *ddl_story.KEYS, *ddl_story.IN_ONE_TRANSACTION)),
            *(({"one": one, "two": two}[session], text) for session, text in ddl_story.TWO_SESSIONS),
            *((one, text.format(publication=NAME)) for text in last),
        ]
        for session, statement in steps:
            records.await_connector()
            session.execute(statement.encode())


@pytest.mark.long
def test_debezium_sends_what_was_recorded(records: list[dict[str, Any]]) -> None:
    if os.environ.get("INGEST_RECORD"):
        RECORDED.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    recorded = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    assert _timeline(records) == _timeline(recorded)


def _timeline(records: list[dict[str, Any]]) -> list[tuple[str, str, Any]]:
    """Returns op, table and content of all messages and events by their positions, without what differs between runs:
    positions, times, oids.

    Of rows only the columns that the newest message below them tells: Debezium reads a transaction after its commit,
    and may send columns of its later statements."""
    placed = sorted(
        (place_of(record), record["topic"], record["offset"], record) for record in records if record["value"]
    )
    columns: dict[str, set[str]] = {}
    found: list[tuple[str, str, Any]] = []
    for *_, record in placed:
        payload = record["value"]["payload"]
        if payload["op"] == "m":
            content = json.loads(base64.b64decode(payload["message"]["content"]))
            columns[content["table"]] = {column["name"] for column in content["columns"] if column["sent"]}
            for column in content["columns"]:
                column["labels"] = [label for _, label in column["labels"]]
            found.append(("m", content["table"], content | {"oid": 0, "root": content["root"] and 1}))
        else:
            table = payload["source"]["table"]
            told, after = columns.get(table), payload["after"] or {}
            found.append((payload["op"], table, {n: v for n, v in after.items() if told is None or n in told}))
    return found


def place_of(record: dict[str, Any]) -> tuple[int, int, int]:
    """Returns the last commit or the LSN, whichever is higher, then the LSN, then 0 for a message, else 1."""
    source = record["value"]["payload"]["source"]
    commit = int(json.loads(source["sequence"])[0] or 0) if record["value"]["payload"]["op"] != "r" else 0
    return max(commit, source["lsn"]), source["lsn"], record["value"]["payload"]["op"] != "m"
