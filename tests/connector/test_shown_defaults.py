"""What Debezium shows of the defaults of new columns, type by type: where it shows none of a constant, rows from before
are unknown."""

from __future__ import annotations

import json
import time
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer

from ingest.changelog.connect_schema import columns_of
from ingest.evolution.definition import FillKind
from ingest.evolution.seen_definitions import seen_definition
from ingest.stack import Stack

pytestmark = pytest.mark.integration
NAME = "defaults"
SHOWN = {
    "smallint": "7",
    "int": "-7",
    "bigint": "9007199254740993",
    "real": "1.5",
    "float8": "1.5",
    "numeric(12,2)": "1.50",
    "boolean": "true",
    "text": "'x'",
    "varchar(9)": "'x'",
    "char(3)": "'x'",
    "date": "'2026-01-02'",
    "time": "'12:00'",
    "timestamp": "'2026-01-02 12:00'",
    "timestamptz": "'2026-01-02 12:00+00'",
    "interval": "'1 day'",
    "uuid": "'7c1f0c1e-0000-4000-8000-000000000001'",
    "json": "'{\"a\": 1}'",
    "jsonb": "'{\"a\": 1}'",
    "bit(3)": "B'101'",
    "defaults.mood": "'on'",
}
UNSHOWN = {
    "numeric": "1.5",
    "int[]": "'{1}'",
    "text[]": "'{a}'",
    "numeric(12,2)[]": "'{1.50}'",
    "bytea": "'\\x00'",
    "timetz": "'12:00+00'",
    "money": "1.5",
    "point": "'(1,2)'",
}
FUNCTIONS = {
    "timestamptz": "now()",
    "timestamp": "localtimestamp",
    "date": "current_date",
    "uuid": "gen_random_uuid()",
}
COMPUTED = {
    "float8": "random()",
    "text": "md5(random()::text)",
    "jsonb": "jsonb_build_object('a', random())",
}
"""Functions that Debezium shows as a constant."""
COLUMNS = [
    *((f"shown_{n}", type_, default) for n, (type_, default) in enumerate(SHOWN.items())),
    *((f"unshown_{n}", type_, default) for n, (type_, default) in enumerate(UNSHOWN.items())),
    *((f"function_{n}", type_, default) for n, (type_, default) in enumerate(FUNCTIONS.items())),
    *((f"computed_{n}", type_, default) for n, (type_, default) in enumerate(COMPUTED.items())),
    *((f"null_{n}", type_, None) for n, type_ in enumerate(SHOWN)),
    *((f"none_{n}", type_, None) for n, type_ in enumerate(UNSHOWN)),
]


@pytest.fixture
def fields(stack: Stack) -> list[dict[str, Any]]:
    """The fields of the schema of the first row that is written after the columns were added."""
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA defaults")
        connection.execute("CREATE TYPE defaults.mood AS ENUM ('on', 'off')")
        connection.execute("CREATE TABLE defaults.items (id int PRIMARY KEY)")
        connection.execute("INSERT INTO defaults.items VALUES (1)")
        stack.connect.register(NAME, stack.postgres.connector(NAME, schemas=[NAME]) | {"poll.interval.ms": "50"})
        try:
            _newest(stack, 1)
            added = (f"ADD {n} {t}" + ("" if d is None else f" DEFAULT {d}") for n, t, d in COLUMNS)
            connection.execute(f"ALTER TABLE defaults.items {', '.join(added)}".encode())
            connection.execute("INSERT INTO defaults.items (id) VALUES (2)")
            envelope = _newest(stack, 2)["schema"]
            (after,) = (field for field in envelope["fields"] if field["field"] == "after")
            found: list[dict[str, Any]] = after["fields"]
            return found
        finally:
            stack.connect.delete(NAME)


def _newest(stack: Stack, id_: int) -> dict[str, Any]:
    """Returns the value of the record of a row, once it is there."""
    group = f"{NAME}-{time.monotonic_ns()}"
    settings = {"bootstrap.servers": stack.kafka.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"topic.metadata.refresh.interval.ms": 500})
    consumer.subscribe([f"^{NAME}\\.{NAME}\\.items"])
    deadline = time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                value: dict[str, Any] = json.loads(message.value() or b"")
                if value["payload"]["after"]["id"] == id_:
                    return value
    finally:
        consumer.close()
    raise AssertionError(f"no record of row {id_}")


def test_unknown_is_what_debezium_does_not_show(fields: list[dict[str, Any]]) -> None:
    columns = columns_of({"type": "struct", "fields": fields})
    kinds = {c.name: c.fill.kind for c in seen_definition(columns, {c.name: c.name for c in columns}).columns}
    types = {name: type_ for name, type_, _ in COLUMNS}
    should = {
        "shown": FillKind.CONSTANT,
        "unshown": FillKind.UNKNOWN,
        "function": FillKind.UNKNOWN,
        "computed": FillKind.CONSTANT,
        "null": FillKind.NULL,
        "none": FillKind.UNKNOWN,
    }
    found = {f"{name.partition('_')[0]} {types[name]}": kind for name, kind in kinds.items() if name in types}
    wrong = {name: kind for name, kind in found.items() if kind is not should[name.partition(" ")[0]]}
    assert not wrong
    assert len(found) == len(COLUMNS)
