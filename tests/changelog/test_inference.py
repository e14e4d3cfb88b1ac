"""What the shape of a batch's images says of its columns."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.changelog.connect_schema import declared
from ingest.changelog.inference import joined, outline, vouched

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.parametrize(
    ("seen", "read_as", "proven"),
    [
        ("BIGINT", "int64", True),
        ("BIGINT", "int32", False),
        ("BIGINT", "timestamp_from_micros", True),
        ("BIGINT", "float64", False),
        ("BOOLEAN", "boolean", True),
        ("BIGINT", "boolean_from_int", False),
        ("DECIMAL(15,2)", "float64", True),
        ("DECIMAL(16,2)", "float64", False),
        ("DECIMAL(6,2)", "float32", False),
        ("DECIMAL(6,2)", "decimal(10,2)", False),
        ("DOUBLE", "float64", False),
        ("STRING", "date", False),
        ("VOID", "int64", False),
    ],
)
def test_a_column_is_plain_where_every_value_was_seen_to_be_of_its_type(seen: str, read_as: str, proven: bool) -> None:
    columns = (declared("v", read_as), declared("elsewhere", "int64"))
    assert vouched(columns, f"OBJECT<id: BIGINT, v: {seen}>") == ({"v"} if proven else frozenset())


_CASES = 400


def test_shapes_are_joined_as_spark_joins_them(spark: SparkSession) -> None:
    """Those of some values and of some others, against that of all."""
    seed = 7
    random = Random(seed)
    rows = [
        (case, side, json.dumps(_object(random, 2)))
        for case in range(_CASES)
        for side in "ab"
        for _ in range(random.randint(1, 3))
    ]
    values = spark.createDataFrame(rows, "case int, side string, value string")
    value = F.parse_json("value")
    of_side = [F.schema_of_variant_agg(F.when(F.col("side") == side, value)).alias(side) for side in "ab"]
    shapes = values.groupBy("case").agg(*of_side, F.schema_of_variant_agg(value).alias("both")).collect()
    assert len(shapes) == _CASES
    differing = [s for s in shapes if _said(joined(s["a"], s["b"])) != _said(s["both"])]
    assert not differing, (seed, differing[0])
    assert len({s["both"] for s in shapes}) > _CASES / 2, "they vary"


def _said(shape: str | None) -> str | None:
    """In one way of writing it."""
    return joined(joined(shape, "OBJECT<`zz`: VOID>"), "OBJECT<>")


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


def test_of_nothing_and_a_shape_that_shape_is_left() -> None:
    assert joined(None, None) is None
    assert joined(None, "OBJECT<>") == joined("OBJECT<>", None) == "OBJECT<>"


def test_an_outline_names_columns_and_nothing_in_them() -> None:
    seen = "OBJECT<`a b`: DECIMAL(3,1), m: OBJECT<`jane@example.org`: BIGINT>, r: ARRAY<OBJECT<jane: BIGINT>>, v: VOID>"
    told = outline(seen)
    assert told == "OBJECT<`a b`: DECIMAL(3,1), `m`: VARIANT, `r`: ARRAY<VARIANT>, `v`: VOID>"
    assert joined(told, seen) == joined(told, told)
    assert outline(None) is None


def test_without_a_shape_nothing_is_plain() -> None:
    assert vouched((declared("v", "int64"),), None) == frozenset()
