"""The reference folds the reports on columns, types and keys to what is right, from the schemas in the events alone."""

from __future__ import annotations

import json
import os
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ingest.testing import Event, SourceColumn, SourceTable, assumed, fold
from ingest.testing.oracle import Op
from ingest.testing.source_table import key_of
from tests.conformance.reading import multiset

FOLDER = Path(os.environ.get("INGEST_CONFORMANCE", Path(__file__).parents[3] / "shared" / "conformance")) / "reports"
REPORTS = (
    "column-renamed-to-another-case",
    "column-type-changes",
    "column-with-a-space-is-added",
    "dropped-column-comes-back",
    "dropped-column-with-a-default",
    "incremental-snapshot-without-lsn",
    "key-loses-a-column",
    "keyless-table-gets-a-column-with-a-default",
    "keyless-table-loses-a-column",
    "names-with-spaces-widen-twice",
    "null-in-a-composite-key",
    "nullable-column-with-default",
    "primary-key-gets-a-column",
    "primary-key-moves-to-another-column",
    "timestamp-column-is-added",
    "two-databases-same-table",
)
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the reports are not at {FOLDER}")

EPOCH = datetime(1970, 1, 1)
Field = dict[str, Any]
DECODERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "int16": ("smallint", int),
    "int32": ("integer", int),
    "int64": ("bigint", int),
    "float": ("real", float),
    "double": ("double precision", float),
    "boolean": ("boolean", bool),
    "string": ("text", str),
    "io.debezium.time.Date": ("date", lambda days: date(1970, 1, 1) + timedelta(days)),
    "io.debezium.time.MicroTimestamp": (
        "timestamp without time zone",
        lambda micros: EPOCH + timedelta(microseconds=micros),
    ),
    "io.debezium.time.ZonedTimestamp": ("timestamp with time zone", datetime.fromisoformat),
    "io.debezium.data.Uuid": ("uuid", str),
}


def decoder(field: Field) -> tuple[str, Callable[[Any], Any]]:
    """The type of a Connect field, and how its values are read."""
    if field.get("name", "").endswith(".Decimal"):
        precision, scale = (field["parameters"][name] for name in ("connect.decimal.precision", "scale"))

        def decimal(value: str) -> Decimal:
            return Decimal(int.from_bytes(b64decode(value), "big", signed=True)).scaleb(-int(scale))

        return f"numeric({precision},{scale})", decimal
    return DECODERS[field.get("name") or field["type"]]


def image(values: Field | None, fields: list[Field]) -> Field | None:
    """An image's values, decoded."""
    if values is None:
        return None
    found = {field["field"]: (decoder(field)[1], values[field["field"]]) for field in fields}
    return {name: None if value is None else read(value) for name, (read, value) in found.items()}


def position(source: Field) -> int:
    return int(source.get("lsn") or source.get("pos") or json.loads(source["sequence"])[-1])


def event(offset: int, record: Field) -> Event:
    key = record["key"] or {"schema": {"fields": []}, "payload": {}}
    names = tuple(field["field"] for field in key["schema"]["fields"])
    row_key = key_of(image(key["payload"], key["schema"]["fields"]) or {}, names) if names else None
    if record["value"] is None:
        return Event("null", offset, key=row_key)
    value = record["value"]["payload"]
    fields = next(f["fields"] for f in record["value"]["schema"]["fields"] if f["field"] == "after")
    columns = {
        field["field"]: SourceColumn(decoder(field)[0], default=field.get("default"), optional=field["optional"])
        for field in fields
    }
    op: Op = value["op"]
    before = None if names else image(value["before"], fields)
    carried = SourceTable(columns, names)
    return Event(
        op, offset, position(value["source"]), row_key, image(value["after"], fields) or {}, before, carried=carried
    )


def tables_of(records: Iterable[Field], expected: Iterable[str]) -> dict[str, list[Event]]:
    """The events of each table by the names in `expected.json`."""
    found: dict[str, list[Event]] = defaultdict(list)
    for offset, record in enumerate(records):
        server, name = record["topic"].split(".", 1)
        several = f"({server}) {name.split('.')[-1]}"
        found[several if several in expected else name].append(event(offset, record))
    return found


def plain(value: Any) -> Any:
    """A value as `expected.json` writes it."""
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text + "Z" if value.tzinfo else text.rstrip("0").rstrip(".")
    return value


def comparable(rows: Iterable[Field], columns: dict[str, str]) -> Any:
    def one(row: Field) -> Field:
        caseless = {name.lower(): plain(value) for name, value in row.items()}
        found: Field = {name: caseless.get(name.lower()) for name in columns}
        moments = [n for n, kind in columns.items() if kind == "timestamp_tz" and found[n]]
        return found | {n: datetime.fromisoformat(found[n]).astimezone(UTC).isoformat() for n in moments}

    return multiset([one(row) for row in rows], columns)


@pytest.mark.parametrize("name", REPORTS)
def test_the_reference_folds_a_report_to_what_is_right(name: str) -> None:
    lines = (FOLDER / name / "events.jsonl").read_text(encoding="utf-8").splitlines()
    expected = json.loads((FOLDER / name / "expected.json").read_text(encoding="utf-8"))["tables"]
    found = tables_of(map(json.loads, lines), expected)
    assert found.keys() == expected.keys()
    for table, events in found.items():
        columns, right = expected[table]["columns"], expected[table]["rows"]
        rows = fold(assumed(events)).values()
        assert comparable(rows, columns) == comparable(right, columns), table
