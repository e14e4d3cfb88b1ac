"""The lattice of inferred types."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest.changelog.connect_schema import declared_column
from ingest.evolution.inferred.lattice import is_inferable, join, join_all, wire_of
from ingest.evolution.policies import TableColumn, evolve
from ingest.values.decode import decode
from ingest.values.types import LogicalType, parse
from ingest.values.wire_types import wire_spark_type

_TEXTS = "unknown boolean int53 int64 float64 decimal_text string json array<unknown> array<boolean> array<int53>"
_TEXTS += " array<int64> array<float64> array<decimal_text> array<string> array<array<unknown>> array<array<int53>>"
TYPES = [parse(text) for text in _TEXTS.split()]


def test_join_is_associative_commutative_and_idempotent() -> None:
    assert all(is_inferable(t) for t in TYPES)
    assert all(join(a, a) == a for a in TYPES)
    assert all(join(a, b) == join(b, a) for a, b in product(TYPES, TYPES))
    for a, b, c in product(TYPES, TYPES, TYPES):
        assert join(join(a, b), c) == join(a, join(b, c)), (str(a), str(b), str(c))


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ("", "unknown"),
        ("unknown array<int53>", "array<int53>"),
        ("int53 float64", "float64"),
        ("int64 float64", "decimal_text"),
        ("int64 int53", "int64"),
        ("boolean int53", "json"),
        ("int53 string", "string"),
        ("json string", "string"),
        ("array<unknown> array<string>", "array<string>"),
        ("array<int64> array<float64>", "array<decimal_text>"),
        ("array<string> array<int53>", "json"),
        ("array<int53> json", "json"),
        ("array<int53> string boolean", "string"),
        ("array<array<unknown>> array<unknown>", "array<array<unknown>>"),
    ],
)
def test_join_of_types(types: str, expected: str) -> None:
    assert join_all(map(parse, types.split())) == parse(expected)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("only_texts", [False, True])
@pytest.mark.parametrize("target", TYPES, ids=str)
def test_every_inferred_type_can_be_decoded(target: LogicalType, only_texts: bool) -> None:
    wire = wire_of(target, only_texts)
    assert isinstance(decode(F.lit(None).cast(wire_spark_type(wire)), wire, target), Column)


def test_stored_type_of_an_inferred_column_stays_inferred() -> None:
    """Rows of masks and of dumps leave an inferred column open for later types."""
    have = TableColumn("amount", parse("int53"), inferred=True)
    back = replace(declared_column("amount", "int53"), as_stored=True)
    assert evolve([have], [back]).columns == (have,)
    (closed,) = evolve([have], [declared_column("amount", "int64")]).columns
    assert not closed.inferred
