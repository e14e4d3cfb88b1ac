"""Changelogs without a schema: with any batches, rows hold the sent values, with the same types."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from ingest.lakehouse.catalog import Catalog
from ingest.names import Lakehouse
from tests.changelogs import Topic, write

pytestmark = [pytest.mark.spark, pytest.mark.long]

_COLUMNS, _KEYS, _CHANGES = 24, 3, 6
_NULLS = ["null"]
_WHOLE = ["0", "7", "-3", "9007199254740992"]
_LONG = ["9007199254740993", "-9007199254740993", "9223372036854775807", "1000000000000000001"]
_FRACTIONS = ["0.1", "1.50", "1.0", "-0.0", "0.30000000000000004", "12345678901234567.5", "0.1234567890123456789"]
_BEYOND = ["18446744073709551615", "9223372036854775808", "1" * 38]
_EXPONENTS = ["1e3", "1.5E-7", "-2.5e+10", "1e300"]
_TEXTS = ['"x"', '""', '"1.50"', '"NaN"', '"null"', '"1e3"', '"[1]"', '"é\\n\\"q"', '"9007199254740993"']
_BOOLEANS = ["true", "false"]
_EMPTY = ["[]", "[null]"]
_ARRAYS = ["[1, 2]", "[0.5, 1.0]", "[9007199254740993]", "[1e10, null]", "[10000000000.0]", '["a", "b c"]', "[true]"]
_NESTED = ["[[1], []]", "[[0.5]]", '[1, "x"]', '[{"a": 1}]']
_OBJECTS = ["{}", '{"a": 1}', '{"b": 1.10, "a": [0.123456789012345678901, null]}', '{"é": {"n": 9007199254740993}}']
_FAMILIES = [_WHOLE, _LONG, _FRACTIONS, _BEYOND, _EXPONENTS, _TEXTS, _BOOLEANS, _EMPTY, _ARRAYS, _NESTED, _OBJECTS]
_FIXED = [
    ["null", "[1, 2]", "null"],
    ["null", '{"a": 1}'],
    ["9007199254740993", "null", "1"],
    ["0.5", "1"],
    ["9007199254740993", "0.5"],
    ["0.5", "9007199254740993"],
    ["9007199254740993", "18446744073709551615"],
    ["1", "9007199254740993", "1.5"],
    ["[]", "[null]", "[9007199254740993]", "[0.1]"],
    ["true", "1", "0.5"],
    ["1.5", '"NaN"'],
    ["1.50", '"1.50"'],
    ["1e10", "10000000000.0", '"x"'],
    ["[0.5, 1e10]", '{"a": 1}', "null"],
]
TABLE = "public.orders"


def _columns(random: Random) -> list[list[str]]:
    """Returns per column the values from which its rows draw."""
    drawn = list(_FIXED)
    while len(drawn) < _COLUMNS:
        some = random.sample(_FAMILIES, random.randint(1, 3))
        drawn.append([*_NULLS, *(value for family in some for value in family)])
    return drawn


def _changelog(random: Random) -> tuple[Topic, dict[int, dict[str, str]]]:
    topic, rows = Topic(), dict[int, dict[str, str]]()
    columns, images = _columns(random), dict[int, str]()
    for n in range(_CHANGES):
        key = n if n < _KEYS else random.randrange(_KEYS)
        row = {f"c{i}": values[n] if n < len(values) else random.choice(values) for i, values in enumerate(columns)}
        image = "{" + ", ".join([f'"id": {key}', *(f'"{name}": {text}' for name, text in row.items())]) + "}"
        source = f'{{"connector":"postgresql","schema":"public","table":"orders","lsn":{100 + n},"ts_ms":1}}'
        value = f'{{"before": {images.get(key, "null")}, "after": {image}, "source": {source}, "op": "u"}}'
        topic.record({"id": key}, None, value_bytes=value)
        rows[key], images[key] = row, image
    return topic, rows


def _sent(text: str) -> Any:
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def _comparable(value: Any, sent: Any, kind: str) -> Any:
    """Returns a stored value of this type as the JSON value that was sent."""
    if value is None or kind == "unknown":
        return value
    if kind.startswith("array<"):
        return [_comparable(one, None, kind[6:-1]) for one in value]
    if kind in ("json", "decimal_text") or (kind == "string" and not isinstance(sent, str)):
        return json.loads(value, parse_float=Decimal, parse_int=Decimal)
    return Decimal(str(value)) if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else value


@pytest.mark.parametrize("seed", [5])
def test_rows_hold_the_sent_values_for_any_batches(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    topic, rows = _changelog(random)
    folder = write(tmp_path / "events", topic.records, None)
    found: dict[int, tuple[dict[str, str], list[str]]] = {}
    for size in (0, 1, random.randint(2, 5)):
        case = Case("cut", (folder / "events.jsonl",), None, tmp_path / str(size))
        ((_, summary),) = replay(spark, [case], Delivery(size), "jsonl")
        assert summary["quarantine"] == []
        (entry,) = Catalog(spark, Lakehouse(str(case.out)).tables).entries()
        types = {c.name: str(c.type) for c in entry.table_schema.columns}
        lines = (case.out / summary["tables"][TABLE]["file"]).read_text(encoding="utf-8").splitlines()
        found[size] = (types, sorted(lines))
    types, lines = found[0]
    for size, (of_types, of_lines) in found.items():
        assert of_types == types, (seed, size)
        assert of_lines == lines, (seed, size)
    assert {"int53", "int64", "float64", "decimal_text", "json", "string"} <= set(types.values()), "they vary"
    for row in (json.loads(line, parse_float=Decimal) for line in lines):
        for name, text in rows[row["id"]].items():
            sent = _sent(text)
            assert _comparable(row[name], sent, types[name]) == sent, (seed, name, types[name], text, row[name])
