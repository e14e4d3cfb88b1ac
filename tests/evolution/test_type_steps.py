"""The conversions that values of a column pass, and the type by which it is stored."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ingest.evolution.definition import ColumnDefinition, Definition, Origin, Version
from ingest.evolution.life import TypeStep
from ingest.evolution.lives import lives
from ingest.evolution.revisions import Source, altered_columns
from ingest.evolution.type_steps import ColumnCannotHold, are_reversible, casts, keep_values, stored_type, values_after
from ingest.lakehouse.schema_json import versions_from_json, versions_to_json
from ingest.values.postgres_cast import Cast, Known, known_values
from ingest.values.types import parse, with_scale


def steps(*types: str) -> tuple[TypeStep, ...]:
    return tuple(TypeStep(None, parse(one)) for one in types)


def told(*types: str) -> tuple[TypeStep, ...]:
    """Returns types of the source that look alike in events."""
    return tuple(TypeStep(None, parse("json" if "json" in one else "timestamp"), one) for one in types)


@pytest.mark.parametrize(
    ("types", "stored", "is_other"),
    [
        ("int32 int64 int32", "int64", False),
        ("int32 decimal(12,2)", "decimal(12,2)", False),
        ("int64 string", "string", True),
        ("string int32 int64", "int64", True),
        ("uuid string uuid", "string", False),
        ("float64 decimal(12,2)", "decimal(12,2)", True),
        ("int32 string int32", "int32", True),
        ("array<int32> array<string>", "array<string>", True),
    ],
)
def test_column_is_stored_by_the_widest_type_since_the_last_other_one(types: str, stored: str, is_other: bool) -> None:
    assert stored_type(steps(*types.split())) == (parse(stored), is_other)


@pytest.mark.parametrize(
    ("own", "types", "target", "passed"),
    [
        ("int32", "int32 int64", "int64", ""),
        ("int64", "int64 int32", "int64", ""),
        ("int32", "int64 int32 string", "string", "int32 string"),
        ("int64", "int64 int32 string", "string", "int64 string"),
        ("int32", "int32 decimal(12,2)", "decimal(12,2)", ""),
        ("int32", "int32 decimal(12,2) string", "string", "int32 decimal(12,2) string"),
        ("decimal(10,4)", "decimal(10,4) decimal(10,2)", "decimal(12,4)", "decimal(10,4) decimal(10,2) decimal(12,4)"),
        ("float64", "float64 float32", "float64", "float64 float32 float64"),
        ("timestamp", "timestamp date", "timestamp", "timestamp date timestamp"),
        ("string", "string uuid", "string", "string uuid string"),
        ("int32", "string", "string", "int32 string"),
        ("struct<a:int32>", "struct<a:int32> struct<b:int32,a:int32>", "struct<b:int32,a:int32>", ""),
    ],
)
def test_values_pass_the_types_that_change_them(own: str, types: str, target: str, passed: str) -> None:
    chain = [*map(parse, passed.split())]
    expected = tuple(Cast(*pair) for pair in pairwise(chain))
    assert casts(parse(own), steps(*types.split()), parse(target)) == expected


def test_values_that_an_expression_computed_are_not_known() -> None:
    first, *_ = steps("int32")
    using = TypeStep(None, parse("int64"), is_unknown=True)
    assert casts(parse("int32"), (first, using), parse("int64")) is None
    assert casts(parse("int64"), (using,), parse("int64")) == ()
    assert not keep_values((first, using))
    assert not are_reversible((first, using))


def test_a_column_that_holds_no_value_of_its_newest_type_is_refused() -> None:
    with pytest.raises(ColumnCannotHold):
        casts(parse("interval_micros"), steps("interval_micros"), parse("interval_iso"))


@pytest.mark.parametrize(
    ("types", "is_known"),
    [
        ("json jsonb", False),
        ("jsonb json", True),
        ("timestamp(3) without time zone,timestamp without time zone", True),
        ("timestamp without time zone,timestamp(0) without time zone", False),
    ],
)
def test_types_that_look_alike_in_events_may_hold_values_in_other_ways(types: str, is_known: bool) -> None:
    found = told(*(types.split(",") if "," in types else types.split()))
    assert found[0].type is not None
    assert keep_values(found) == is_known
    assert casts(found[0].type, found, found[0].type) == (() if is_known else None)


@pytest.mark.parametrize(
    ("types", "source_types", "is_known"),
    [
        ("timestamp_tz timestamp", "timestamp with time zone to timestamp(0) without time zone", False),
        ("timestamp_tz timestamp", "timestamp(3) with time zone to timestamp(3) without time zone", True),
        ("date timestamp", "date to timestamp(0) without time zone", True),
        ("int32 string", "integer to character(5)", False),
        ("array<int32> array<string>", "integer[] to character(5)[]", False),
        ("int32 string", "integer to character varying(5)", True),
        ("boolean string", "bit(1) to text", False),
        ("boolean string", "boolean to text", True),
        ("decimal(12,2) string", "money to text", False),
        ("decimal(12,2) decimal(14,2)", "money to numeric(14,2)", True),
        ("json string", "hstore to text", False),
    ],
)
def test_casts_of_types_that_events_write_otherwise_are_not_known(
    types: str, source_types: str, is_known: bool
) -> None:
    chain = tuple(TypeStep(None, parse(t), s) for t, s in zip(types.split(), source_types.split(" to "), strict=True))
    before, after = chain
    assert before.type is not None
    assert after.type is not None
    assert (casts(before.type, chain, after.type) is not None) == is_known
    assert (values_after(before, after) is Known.NONE) == (not is_known)
    untold_before, untold_after = steps(*types.split())
    assert values_after(untold_before, untold_after) is not Known.NONE, "if the source doesn't tell its types"


def test_numeric_with_too_many_digits_keeps_its_scale_until_it_is_stored() -> None:
    number, scaled, text = parse("decimal(10,2)"), with_scale(3), parse("string")
    chain = tuple(TypeStep(None, type_) for type_ in (number, scaled, text))
    assert stored_type(chain[:2]) == (parse("decimal_text"), False)
    assert casts(number, chain, text) == (Cast(number, scaled), Cast(scaled, text))
    assert casts(parse("decimal_text"), chain[1:2], parse("decimal_text")) == ()
    version = Version((1,), Definition((ColumnDefinition("n", scaled),)), Origin.SEEN)
    assert versions_from_json([versions_to_json([version])]) == {version}


@pytest.mark.parametrize(
    ("types", "is_reversible"),
    [
        ("int32 decimal(12,2) string", True),
        ("boolean string", True),
        ("date timestamp timestamp_tz string", True),
        ("int64 float64 string", False),
        ("decimal(10,4) decimal(10,2)", False),
        ("string int32", False),
        ("boolean uuid", False),
    ],
)
def test_types_that_keep_what_a_value_was_can_be_undone(types: str, is_reversible: bool) -> None:
    assert are_reversible(steps(*types.split())) == is_reversible


def test_type_that_turns_out_to_lie_between_is_passed_by_stored_values() -> None:
    def version(lsn: int, type_: str) -> Version:
        return Version((lsn,), Definition((ColumnDefinition("n", parse(type_)),)), Origin.SEEN)

    whole, money, text = version(10, "int32"), version(20, "decimal(12,2)"), version(30, "string")
    (revision,) = altered_columns(lives([whole, text]), lives([whole, money, text]))
    older = revision.pieces[0]
    assert (older.source, older.end) == (Source.STORED, (20,))
    assert [step.type for step in older.undone] == [parse("int32"), parse("string")]
    assert [step.type for step in older.types] == [*map(parse, ("int32", "decimal(12,2)", "string"))]
    assert altered_columns(lives([whole, money]), lives([whole, money, version(15, "int64")])) == ()
    time, date = version(10, "timestamp"), version(30, "date")
    assert altered_columns(lives([time, date]), lives([time, version(20, "string"), date])) == (), "times are lost"


@pytest.mark.parametrize(
    ("before", "after", "known"),
    [
        ("int32", "string", Known.EVERY),
        ("string", "int32", Known.SOME),
        ("float64", "string", Known.SOME),
        ("boolean", "uuid", Known.NONE),
        ("uuid", "string", Known.EVERY),
        ("map<string,string>", "string", Known.NONE),
    ],
)
def test_pairs_of_types_tell_which_values_are_known(before: str, after: str, known: Known) -> None:
    assert known_values(parse(before), parse(after)) is known
