"""The columns of a mapped table in the commit that writes files, and in the one that follows."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as T

from ingest.delta.mapped_columns import beside_former, final_columns, provisional_names

_INT, _TEXT = T.IntegerType(), T.StringType()
_POINT = T.StructType([T.StructField("x", _INT), T.StructField("y", _INT)])
_ID = "delta.columnMapping.physicalName"


def stored(**columns: T.DataType) -> dict[str, Any]:
    """Returns the columns of a table, which have their names as physical ones."""
    return wanted(**columns) | {
        "fields": [
            T.StructField(name, kind, metadata={_ID: f"col-{name}"}).jsonValue() for name, kind in columns.items()
        ]
    }


def wanted(**columns: T.DataType) -> dict[str, Any]:
    return T.StructType([T.StructField(name, kind) for name, kind in columns.items()]).jsonValue()


def ids(columns: dict[str, Any]) -> dict[str, str | None]:
    """Returns name → physical name; None for a new column."""
    return {f["name"]: f["metadata"].get(_ID) for f in columns["fields"]}


def test_a_column_that_goes_stays_beside_the_others_until_their_files_are_written() -> None:
    beside = beside_former(wanted(id=_INT, b=_INT), stored(id=_INT, a=_INT))
    assert ids(beside) == {"id": "col-id", "b": None, "a": "col-a"}
    final = final_columns(beside)
    assert final is not None
    assert ids(final) == {"id": "col-id", "b": None}
    assert final_columns(final) is None


def test_columns_that_change_places_or_types_keep_their_ids() -> None:
    beside = beside_former(wanted(b=_TEXT, a=_INT), stored(a=_INT, b=_INT))
    assert ids(beside) == {"b": "col-b", "a": "col-a"}
    assert [f["type"] for f in beside["fields"]] == ["string", "integer"]
    assert final_columns(beside) is None


def test_a_name_in_another_case_is_provisional_until_the_former_one_is_gone() -> None:
    now, before = wanted(id=_INT, A=_TEXT), stored(id=_INT, a=_INT)
    assert provisional_names(now, before) == {"A": "_ingest_new_A"}
    beside = beside_former(now, before)
    assert ids(beside) == {"id": "col-id", "_ingest_new_A": None, "a": "col-a"}
    final = final_columns(beside)
    assert final is not None
    assert [(f["name"], f["type"]) for f in final["fields"]] == [("id", "integer"), ("A", "string")]


def test_a_column_that_loses_a_field_is_another_one() -> None:
    before, array = stored(p=_POINT), stored(p=T.ArrayType(_POINT))
    smaller = T.StructType([T.StructField("x", _INT)])
    larger = T.StructType([*_POINT, T.StructField("z", _INT)])
    assert provisional_names(wanted(p=larger), before) == {}
    for other in (smaller, _TEXT, T.ArrayType(_POINT)):
        assert provisional_names(wanted(p=other), before) == {"p": "_ingest_new_p"}
    assert provisional_names(wanted(p=T.ArrayType(smaller)), array) == {"p": "_ingest_new_p"}
    assert provisional_names(wanted(p=T.ArrayType(larger)), array) == {}
