"""Emptied records of the archive keep offset and time; all other records stay unchanged."""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from ingest.archive.emptying import empty_records
from ingest.changelog.envelope import ERASED

SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
EMPTY = [{"key": ERASED, "value": b"before"}]
HEADERS: list[Any] = [
    None,
    [],
    [{"key": "h", "value": None}],
    [{"key": None, "value": b"x"}],
    EMPTY,
    [*EMPTY, {"key": "h", "value": b"1"}],
]
ROWS = [
    {"offset": 2 * n, "timestamp": None, "headers": headers, "key": key, "value": value}
    for n, (headers, key, value) in enumerate(product(HEADERS, (b"k", None), (b"v", None)))
]


def expected_row(row: dict[str, Any], erased: set[int]) -> dict[str, Any]:
    empty = (row["key"], row["value"], row["headers"]) == (None, None, EMPTY)
    if row["offset"] not in erased or empty:
        return row
    return row | {"headers": [{"key": ERASED, "value": b"r"}], "key": None, "value": None}


@pytest.mark.parametrize(
    "erased", [set(), {1, 99}, {0, 14}, {38, 46}, set(range(0, 48, 2)), set(range(0, 48, 6))], ids=len
)
@pytest.mark.parametrize(("begin", "end"), [(0, len(ROWS)), (5, len(ROWS) - 1), (19, 20), (3, 3)])
def test_emptied_record_keeps_its_place(begin: int, end: int, erased: set[int]) -> None:
    requests = pa.table({"offset": pa.array(sorted(erased), pa.int64()), "request_min": ["r"] * len(erased)})
    requests = requests.cast(pa.schema([("offset", pa.int64()), ("request_min", pa.string())]))
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA).slice(begin, end - begin)
    now, many = empty_records(batch, requests)
    assert now.to_pylist() == [expected_row(row, erased) for row in ROWS[begin:end]]
    assert now.schema == SCHEMA
    assert many == sum(expected_row(row, erased) != row for row in ROWS[begin:end])
    again, more = empty_records(now, requests)
    assert (again.equals(now), more) == (True, 0)
