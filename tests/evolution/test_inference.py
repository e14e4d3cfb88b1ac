"""Column types inferred from the images of a batch."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.changelog.connect_schema import declared_column
from ingest.evolution.inferred.inference import (
    column_kinds,
    inferred_columns,
    is_inexact,
    parsed_images,
    proven_columns,
    union_of_kinds,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.parametrize(
    ("seen", "stored_column", "proven"),
    [
        ("int53", "int64", True),
        ("int64", "int64", True),
        ("int53", "int32", False),
        ("int64", "timestamp_from_micros", True),
        ("int53", "float64", True),
        ("int64", "float64", False),
        ("boolean", "boolean", True),
        ("int53", "boolean_from_int", False),
        ("float64", "float64", True),
        ("decimal_text", "float64", False),
        ("float64", "float32", False),
        ("float64", "decimal(10,2)", False),
        ("string", "date", False),
        ("unknown", "int64", False),
    ],
)
def test_column_is_proven_if_every_value_has_its_type(seen: str, stored_column: str, proven: bool) -> None:
    columns = (declared_column("v", stored_column), declared_column("elsewhere", "int64"))
    kinds = "OBJECT<id: OBJECT<int53: BOOLEAN>, v: OBJECT<%s: BOOLEAN, unknown: BOOLEAN>>"
    assert proven_columns(columns, kinds % seen) == ({"v"} if proven else frozenset())


_CASES = 400


def test_union_of_kinds_equals_the_kinds_of_all_values(spark: SparkSession) -> None:
    """Compares the union of the kinds of two parts with the kinds of the whole."""
    seed = 7
    random = Random(seed)
    rows = [
        (case, side, json.dumps({"after": _object(random, 2)}))
        for case in range(_CASES)
        for side in "ab"
        for _ in range(random.randint(1, 3))
    ]
    values = spark.createDataFrame(rows, "case int, side string, value string")
    opened = values.withColumn("_i", parsed_images(F.col("value"))).localCheckpoint()
    kinds = column_kinds(F.col("_i"), F.lit(False)).alias("kinds")
    both = {r["case"]: r["kinds"] for r in opened.groupBy("case").agg(kinds).collect()}
    sides = {(r["case"], r["side"]): r["kinds"] for r in opened.groupBy("case", "side").agg(kinds).collect()}
    assert len(both) == _CASES
    differing = [c for c in both if _canonical(union_of_kinds(sides[c, "a"], sides[c, "b"])) != _canonical(both[c])]
    assert not differing, (seed, differing[0], both[differing[0]])
    assert len(set(both.values())) > _CASES / 2, "the cases vary"


def _canonical(kinds: str | None) -> str | None:
    """Returns the text in canonical form."""
    return union_of_kinds(union_of_kinds(kinds, "OBJECT<`zz`: VOID>"), "OBJECT<>")


def _object(random: Random, depth: int) -> dict[str, Any]:
    names = random.sample(["a", "b c", "d`e", "f.g", "ü"], random.randint(0, 3))
    return {name: _value(random, depth) for name in names}


def _value(random: Random, depth: int) -> Any:
    numbers = (1, -3, 2**62, 2**70, 0.5, 12.125, 1e300, 10**30, 1e-7, 0.1234567890123456)
    kinds = ["null", "bool", "text", "number", "number", *(["array", "object"] if depth else [])]
    match random.choice(kinds):
        case "bool":
            return random.random() < 0.5
        case "text":
            return random.choice(["", "x", "1"])
        case "number":
            return random.choice(numbers)
        case "array":
            return [_value(random, depth - 1) for _ in range(random.randint(0, 2))]
        case "object":
            return _object(random, depth - 1)
    return None


def test_union_with_nothing_changes_nothing() -> None:
    assert union_of_kinds(None, None) is None
    assert union_of_kinds(None, "OBJECT<>") == union_of_kinds("OBJECT<>", None) == "OBJECT<>"


_KINDS = [
    ("null", "unknown"),
    ("true", "boolean"),
    ('"x"', "string"),
    ("9007199254740992", "int53"),
    ("9007199254740993", "int64"),
    ("-9223372036854775808", "int64"),
    ("0.1", "float64"),
    ("1.0", "float64"),
    ("0.30000000000000004", "float64"),
    ("0.1234567890123456789", "decimal_text"),
    ("18446744073709551615", "decimal_text"),
    ("1.5e-7", "float64"),
    ("{}", "json"),
    ("[]", "array<unknown>"),
    ("[null, 1]", "array<int53>"),
    ("[1, 9007199254740993]", "array<int64>"),
    ("[1, 0.5]", "array<float64>"),
    ("[0.5, 9007199254740993]", "array<decimal_text>"),
    ('["9007199254740993"]', "array<string>"),
    ("[[0.5], []]", "array<array<float64>>"),
    ('[1, "x"]', "json"),
    ("[{}]", "json"),
]


def test_kinds_of_values(spark: SparkSession) -> None:
    rows = [(n, f'{{"after": {{"v": {text}}}}}') for n, (text, _) in enumerate(_KINDS)]
    opened = spark.createDataFrame(rows, "n int, value string").withColumn("_i", parsed_images(F.col("value")))
    found = opened.groupBy("n").agg(column_kinds(F.col("_i"), F.lit(False)).alias("kinds")).collect()
    types = {r["n"]: str(inferred_columns(r["kinds"])[0].type) for r in found}
    assert {text: types[n] for n, (text, _) in enumerate(_KINDS)} == dict(_KINDS)


def test_inexact_numbers_are_found(spark: SparkSession) -> None:
    of_value = {"1" * 39: True, "1" * 38: False, "-0." + "1" * 39: True, "1e308": False, "1e309": True, "2E-400": True}
    of_value |= {"1.2345678901234567e-5": False, "1.234567890123456789e5": True, '"' + "1" * 50 + '"': False}
    values = spark.createDataFrame([(v, f'{{"a": [0, {v}]}}') for v in of_value], "v string, value string")
    assert dict(values.select("v", is_inexact(F.col("value"))).collect()) == of_value


def test_no_column_is_proven_without_kinds() -> None:
    assert proven_columns((declared_column("v", "int64"),), None) == frozenset()
