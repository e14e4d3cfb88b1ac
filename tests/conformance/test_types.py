"""Compares each value of the shared conformance cases, decoded by its Connect schema, with its logical value.
INGEST_CONFORMANCE names the folder; default: next to the repository."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.connect_schema import columns_of, declared_column
from ingest.values.columns import Column
from ingest.values.decode import decode, undecodable
from ingest.values.render import json_object, rendered
from ingest.values.types import OutOfRange, parse
from ingest.values.unavailable import is_unavailable
from ingest.values.wire_types import wire_spark_type

FOLDER = Path(os.environ.get("INGEST_CONFORMANCE", Path(__file__).parents[2].parent / "shared" / "conformance"))
PLACEHOLDER = "__debezium_unavailable_value"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not (FOLDER / "types.jsonl").is_file(), reason="no conformance cases: set INGEST_CONFORMANCE"),
]


def column_of(case: dict[str, Any]) -> Column:
    if case["schema"] is None:
        return declared_column("v", case["logical_type"])
    (column,) = columns_of({"type": "struct", "fields": [case["schema"] | {"field": "v"}]})
    # The cases expect infinite times and years after 9999 unchanged, as with `times_out_of_range: keep`.
    return replace(column, wire=column.wire.with_out_of_range(OutOfRange.KEEP))


def equal(got: Any, expected: Any) -> bool:
    """Returns True if the values are equal as JSON. Decimals as text are equal if their numbers are, as are 3 and
    3.0."""
    if isinstance(expected, dict) and isinstance(got, dict):
        return got.keys() == expected.keys() and all(equal(got[k], expected[k]) for k in expected)
    if isinstance(expected, list) and isinstance(got, list):
        return len(got) == len(expected) and all(map(equal, got, expected))
    if isinstance(expected, str) and isinstance(got, str) and got != expected:
        try:
            return Decimal(got) == Decimal(expected)
        except InvalidOperation:
            return False
    return type(got) is type(expected) and bool(got == expected)


@pytest.fixture(scope="module")
def results(spark: SparkSession) -> dict[str, tuple[Any, bool, bool]]:
    """Returns per case the rendered value, unavailable?, undecodable?; one `from_json` parses all cases, as in a
    merge."""
    cases = [json.loads(line) for line in (FOLDER / "types.jsonl").read_text().splitlines()]
    columns = {case["id"]: column_of(case) for case in cases}
    names = {column: f"c{i}" for i, column in enumerate(dict.fromkeys(columns.values()))}
    schema = T.StructType([T.StructField(name, wire_spark_type(column.wire)) for column, name in names.items()])
    schema.add("_corrupt", T.StringType())
    rows = [(case["id"], json.dumps({names[columns[case["id"]]]: case["encoded"]})) for case in cases]
    parsed = F.from_json("value", schema, {"columnNameOfCorruptRecord": "_corrupt"})
    events = spark.createDataFrame(rows, "id string, value string").select("id", parsed.alias("p"))

    def flags(check: Any) -> Any:
        return F.array_contains(F.array(*(check(F.col(f"p.{n}"), c) for c, n in names.items())), True)

    found = events.select(
        "id",
        json_object({n: rendered(decode(F.col(f"p.{n}"), c.wire, c.type), c.type) for c, n in names.items()}).alias(
            "json"
        ),
        flags(lambda value, c: is_unavailable(value, c.wire, PLACEHOLDER)).alias("unavailable"),
        flags(lambda value, c: undecodable(value, c.wire, c.type)).alias("undecodable"),
        "p._corrupt",
    ).collect()
    assert [row.id for row in found if row._corrupt] == []
    return {row.id: (json.loads(row.json)[names[columns[row.id]]], row.unavailable, row.undecodable) for row in found}


def test_every_case_decodes_to_the_value_of_its_source(
    results: dict[str, tuple[Any, bool, bool]],
) -> None:
    cases = [json.loads(line) for line in (FOLDER / "types.jsonl").read_text().splitlines()]
    wrong = {}
    for case in cases:
        got, unavailable, undecodable_ = results[case["id"]]
        if unavailable != bool(case.get("unavailable")):
            wrong[case["id"]] = f"unavailable is {unavailable}"
        elif not unavailable and (undecodable_ or not equal(got, case["expected"])):
            wrong[case["id"]] = f"{got!r}, not {case['expected']!r}; undecodable is {undecodable_}"
    assert wrong == {}


def test_types_round_trip_through_their_text() -> None:
    for line in (FOLDER / "types.jsonl").read_text().splitlines():
        own = column_of(json.loads(line)).type
        assert parse(str(own)) == own
