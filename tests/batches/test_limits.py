"""Limits of a table's columns."""

from __future__ import annotations

from ingest.evolution.policies import (
    AddedColumns,
    Limits,
    TableColumn,
    added_columns,
    exceeded_limit,
    nesting_depth,
)
from ingest.values.types import LogicalType, array_of, struct_of
from tests.evolution.versions import INT

LIMITS = Limits(columns=4, new_columns_per_day=2, nesting_depth=2)


def columns(*names: str, type_: LogicalType = INT) -> list[TableColumn]:
    return [TableColumn(name, type_) for name in names]


def setting(before: list[TableColumn] | None, after: list[TableColumn], added: AddedColumns = ()) -> str | None:
    found = exceeded_limit(before, after, added, LIMITS)
    return None if found is None else found.setting


def test_a_table_has_at_most_so_many_columns() -> None:
    assert setting(None, columns(*"abcd")) is None
    assert setting(None, columns(*"abcde")) == "columns"
    assert setting(columns(*"ab"), columns(*"abcde")) == "columns"
    assert setting(columns(*"abcde"), columns(*"abcde")) is None, "a limit that is lowered refuses no table that exists"


def test_columns_are_counted_per_day_of_the_source() -> None:
    added = added_columns((), "2026-01-01", 2)
    assert setting(columns("a"), columns(*"abc"), added) is None
    more = added_columns(added, "2026-01-01", 1)
    assert setting(columns(*"abc"), columns(*"abcd"), more) == "new_columns_per_day"
    assert setting(columns(*"abc"), columns(*"abcd"), added_columns(added, "2026-01-02", 1)) is None
    assert setting(None, columns(*"abcd"), more) is None, "a new table's columns are of no day"
    assert added_columns(more, "2026-01-01", 0) == more
    days = [f"2026-01-{day:02}" for day in range(1, 20)]
    for day in days:
        more = added_columns(more, day, 1)
    assert [day for day, _ in more] == days[-3:], "only the newest days are kept"


def test_types_are_nested_only_so_deeply() -> None:
    two = struct_of({"a": array_of(INT)})
    assert [nesting_depth(one) for one in (INT, array_of(INT), two, array_of(two))] == [0, 1, 2, 3]
    assert setting(None, columns("a", type_=two)) is None
    assert setting(columns("b"), [*columns("b"), *columns("a", type_=array_of(two))]) == "nesting_depth"
    deep = INT
    for _ in range(20_000):
        deep = array_of(deep)
    assert nesting_depth(deep) == 20_000, "depth is counted without recursion"
