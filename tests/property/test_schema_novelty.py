"""Only changes with a new schema are parsed for it; the result is the schema of all of them."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batches.group_stats import groups_by_slice
from ingest.changelog.envelope import EVENT
from ingest.changelog.position import POSITION, position_literal
from ingest.evolution.inferred.inference import are_parsed, column_kinds, inferred_columns, parsed_images
from ingest.jvm.schema_novelty import is_novel

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

Value = tuple[int, bool, str]
"""A change event: the number of its case, whether it is wrapped in a payload, its JSON text."""
_CASES = 500
_SEED = 11
_SMALL = ["0", "-0", "7", "-12", "0.00", "1.50", "12.5", "100.00", "0.001", "-3.25", "123456789.987654321"]
_FLOATING = ["1e5", "1E-7", "-2.5e+10", "1e400"]
_WHOLE = ["9007199254740993", "9007199254740992", "1000000000000000000"]
_LARGE = ["9223372036854775807", "9223372036854775808", "-9223372036854775808", "9" * 20, "1" * 40]
_CLOSE = ["0.1234567890123456", "0.12345678901234567", "1234567890123456.7", "9007199254740993.0", "9007199254740991.0"]
_NUMBERS = (*_CLOSE, *_WHOLE, *_SMALL, *_FLOATING, *_LARGE, "0." + "1" * 37, "0." + "1" * 50)
_NAMES = ("a", "b c", "d`e", "ü", "before")
_ODD_NAMES = (*_NAMES, "\\u0061", 'q\\"', "payload")
_ODD_NUMBERS = (*_NUMBERS, "NaN", "1" * 130)


def _value(random: Random, depth: int, odd: bool) -> str:
    match random.choice(["null", "bool", "text", "number", "number", *(["array", "object"] if depth else [])]):
        case "bool":
            return random.choice(["true", "false"])
        case "text":
            return random.choice(['""', '"x"', '"1"', '"{"', '"\\\\"', '"\\""', '"ü"', '"a,b]"'])
        case "number":
            return random.choice(_ODD_NUMBERS if odd else _NUMBERS)
        case "array":
            return "[" + ", ".join(_value(random, depth - 1, odd) for _ in range(random.randint(0, 3))) + "]"
        case "object":
            return json_object(random, depth, odd)
    return "null"


def json_object(random: Random, depth: int, odd: bool) -> str:
    known = _ODD_NAMES if odd else _NAMES
    # Some objects name a field twice.
    twice = odd and random.random() < 0.05
    names = random.choices(known, k=2) if twice else random.sample(known, random.randint(0, 4))
    return _of([(name, _value(random, depth - 1, odd)) for name in names], random)


def _of(members: list[tuple[str, str]], random: Random) -> str:
    blank = random.choice(["", "", " ", "\n\t"])
    return "{" + blank + f"{blank},".join(f'"{name}"{blank}:{blank}{text}' for name, text in members) + blank + "}"


def _image(random: Random, odd: bool) -> str:
    kind = random.random()
    return "null" if kind < 0.2 else _value(random, 2, odd) if kind < 0.3 else json_object(random, 2, odd)


def _change(random: Random, wrapped: bool, odd: bool) -> str:
    members = [("after", _image(random, odd)), ("before", _image(random, odd)), ("op", '"u"'), ("x", '{"y": [{}, 1]}')]
    if random.random() < 0.2:
        del members[random.randint(0, 1)]
    random.shuffle(members)
    change = _of(members, random)
    if not wrapped:
        return change
    return _of([("schema", "null"), ("payload", change if random.random() < 0.95 else "null")], random)


def _number(random: Random) -> str:
    """Returns a change with one number. Such changes differ in the number of digits and the places of zeros only."""
    whole = random.choice(["0", "7", "10", "100", "1" * 20])
    fraction = random.choice(["", ".5", ".50", ".05", ".005", ".55", ".500", ".00"])
    return _of([("after", f'{{"n": {whole}{fraction}}}')], random)


def _values(random: Random) -> list[Value]:
    plain: list[Value] = []
    rest: list[Value] = []
    for case in range(_CASES):
        odd = random.random() < 0.2
        some = [(case, wrapped, _change(random, wrapped, odd)) for wrapped in random.choices([False, True], k=6)]
        (rest if odd else plain).extend([*some, *random.choices(some, k=2)])
    plain += [(_CASES + case, False, _number(random)) for case in range(_CASES) for _ in range(2)]
    random.shuffle(plain)
    # After the others: an odd value makes a task forget what it has seen.
    random.shuffle(rest)
    return plain + rest


def _events(spark: SparkSession, values: list[Value]) -> DataFrame:
    """Returns the change events in this order, all in one partition."""
    rows = spark.createDataFrame(
        [(n, case, wrapped, bytearray(value, "utf-8")) for n, (case, wrapped, value) in enumerate(values)],
        "offset long, case long, wrapped boolean, value binary",
    )
    given = {"op": F.lit("u"), "topic": F.lit("t"), "partition": F.lit(0), "source_table": F.lit("t")}
    given["position"] = position_literal((0,) * len(POSITION))
    given_names = {"offset", "value", "wrapped"}
    columns = [
        (F.col(f.name) if f.name in given_names else given.get(f.name, F.lit(None))).cast(f.dataType).alias(f.name)
        for f in EVENT.fields
    ]
    return rows.coalesce(1).sortWithinPartitions("offset").select(*columns, "case")


def types_of(kinds: str | None) -> dict[str, str]:
    """Returns column → type. Kinds of arrays may differ where all elements were seen before; their types don't."""
    return {c.name: str(c.type) for c in inferred_columns(kinds)}


@pytest.mark.long
def test_inferred_schema_equals_that_of_all_changes(spark: SparkSession) -> None:
    values = _values(Random(_SEED))
    events = _events(spark, values).localCheckpoint()

    opened = parsed_images(F.col("value").cast("string"))
    whole = F.bool_and(are_parsed(F.col("_i"))).alias("opened")
    all_of_them = events.withColumn("_i", opened).groupBy("case", "wrapped")
    expected = all_of_them.agg(column_kinds(F.col("_i"), F.col("wrapped")).alias("shape"), whole).collect()

    found = groups_by_slice(events, F.col("case"))
    by_group = {(case, g.wrapped): g for case, groups in found.items() for g in groups}
    assert len(by_group) == len(expected)
    for row in expected:
        group = by_group[row["case"], row["wrapped"]]
        context = (_SEED, [v for v in values if v[:2] == (row["case"], row["wrapped"])])
        assert group.opened == row["opened"], context
        assert types_of(group.kinds) == types_of(row["shape"]), context
    assert {row["opened"] for row in expected} == {True, False}, "both occur"


def _novelties(spark: SparkSession, values: list[Value], distinguished_by: str = "slice") -> list[Any]:
    """Returns for each value whether it is novel; None if unknown. Cases are slices of one table, or tables of one
    slice."""
    case, one = F.col("case"), F.lit(0)
    slices, tables = (case, one) if distinguished_by == "slice" else (one, case)
    novelty = is_novel(spark, F.col("value"), (slices.cast("bigint"), tables.cast("string"), F.col("wrapped")))
    events = _events(spark, values).select("offset", novelty.alias("news"))
    return [row["news"] for row in events.orderBy("offset").collect()]


def test_known_columns_and_kinds_are_not_novel(spark: SparkSession) -> None:
    def change(after: dict[str, Any] | None, before: dict[str, Any] | None = None) -> str:
        return json.dumps({"before": before, "after": after, "op": "u", "ts_ms": 1})

    cases = [
        (change({"id": 1, "name": "x", "price": 1.25}), True),
        (change({"id": -99, "name": "", "price": 7.35}), False),
        (change({"id": 2, "name": None, "price": 1.25}), True),
        (change({"id": 3, "name": None}), False),
        (change({"id": 2**63, "name": "y"}), True),
        (change({"id": 2**63 + 5}), False),
        (change({"id": 1, "new": 1}), True),
        (change({"new": 2, "id": 1}), False),
        (change(None, {"id": 4, "name": "z"}), False),
        (change(None, {"id": 4, "old": True}), True),
        (change(None, {"id": 4, "old": False}), False),
    ]
    assert _novelties(spark, [(0, False, value) for value, _ in cases]) == [expected for _, expected in cases]


def test_kinds_first_seen_in_an_unreadable_change_are_novel_again(spark: SparkSession) -> None:
    twice = '{"op": "u", "after": {"id": 1, "fresh": 1, "id": 2}}'
    clean = '{"op": "u", "after": {"id": 1, "fresh": 1}}'
    values = [(0, False, value) for value in (twice, clean, clean, twice, clean)]
    assert _novelties(spark, values) == [None, True, False, None, False]


@pytest.mark.parametrize("distinguished_by", ["slice", "table"])
def test_slices_and_tables_know_nothing_of_each_other(spark: SparkSession, distinguished_by: str) -> None:
    values = [(case, False, '{"op": "u", "after": {"id": 1}}') for case in (0, 1, 0, 1)]
    assert _novelties(spark, values, distinguished_by) == [True, True, False, False]
