"""Evolves a table's columns by those of events: columns are added and widened, never narrowed, never guessed.

The result doesn't depend on batching: types are joined (`widest`). The value of a column that an image lacks depends on
the image's position (`evolution.readings`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ingest.changelog.reserved_names import is_reserved
from ingest.changelog.spelling import Spelling
from ingest.evolution.inferred.lattice import join
from ingest.names import caseless
from ingest.values.columns import Column
from ingest.values.postgres_cast import has_cast
from ingest.values.types import Kind, LogicalType, has_same_json, widest


@dataclass(frozen=True)
class TableColumn:
    """A column of silver. `filled`: in a table whose catalog entry is older than the versions of its definition, the
    column of the event whose default replaces a missing value. `sealed`: of an encrypted column, the column that its
    values decrypt to. `inferred`: the type was inferred from values. `declared`: the pipeline's file declares the type,
    which events don't change. `hashed_as`: the former types of a key column, the oldest first, by which tombstones
    still know its values. `hashed_name`: the name that it has in the hashes of tombstones, if that is another one: a
    hash can't be computed anew for a row that is gone."""

    name: str
    type: LogicalType
    filled: Column | None = None
    sealed: Column | None = None
    inferred: bool = False
    declared: bool = False
    hashed_as: tuple[LogicalType, ...] = ()
    hashed_name: str = ""


@dataclass(frozen=True)
class IncompatibleType:
    """A column whose type in an event has no common wider type with that in the table."""

    code: ClassVar[str] = "incompatible-type"
    column: str
    in_table: LogicalType
    in_event: LogicalType

    def __str__(self) -> str:
        return f"column {self.column!r} is {self.in_table} in the table and {self.in_event} in the event"


@dataclass(frozen=True)
class ReservedName:
    """A column of the source whose name is reserved for a system column."""

    code: ClassVar[str] = "reserved-name"
    column: str

    def __str__(self) -> str:
        return (
            f"column {self.column!r} has a name that tables here use themselves: leave it out at the connector "
            "(column.exclude.list), or give it another one under tables.<table>.rename"
        )


@dataclass(frozen=True)
class EqualNames:
    """Columns of one image whose names differ only in case: Delta considers them equal."""

    code: ClassVar[str] = "columns-alike"
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"columns {' and '.join(map(repr, self.names))} are one for a Delta table, which knows no case"


ColumnConflict = IncompatibleType | ReservedName | EqualNames
"""Reasons for which a table can't have the columns of an event."""


@dataclass(frozen=True)
class Evolution:
    """The result of an evolution. `columns`: those of the table afterwards; unchanged if there are `conflicts`.
    `retyped`: columns that keep their type in the table here, and whose lives tell it."""

    columns: tuple[TableColumn, ...]
    conflicts: tuple[ColumnConflict, ...]
    retyped: tuple[IncompatibleType, ...] = ()


def evolve(
    current: Sequence[TableColumn],
    incoming: Sequence[Column],
    spelling: Spelling | None = None,
    retypes: bool = False,
    key: Collection[str] = (),
) -> Evolution:
    """Returns the table's columns after those of an event, in the order of their first appearance, and all conflicts.

    `current`: the table's columns. `incoming`: the event's. `spelling`: the rules for names of new columns. `retypes`:
    a type of a column that has no common wider type with that in the table is no conflict, but for a column of the
    `key` whose values no cast converts.
    """
    columns = {c.name: c for c in current}
    names = (spelling or Spelling()).table_names([c.name for c in incoming], columns)
    conflicts: list[ColumnConflict] = [*_equal_names(names)]
    retyped: list[IncompatibleType] = []
    for column in incoming:
        name = names[column.name]
        if is_reserved(name):
            conflicts.append(ReservedName(name))
            continue
        in_table = columns.get(name)
        if in_table is None:
            is_declared = column.written is not None
            columns[name] = TableColumn(name, column.type, None, column.sealed, column.inferred, is_declared)
            continue
        if (in_table.declared or column.written is not None) and column.sealed is None:
            columns[name] = replace(in_table, inferred=False, declared=True)
            continue
        sealed = _common_sealed(in_table.sealed, column.sealed)
        if sealed is None and column.sealed is not None and in_table.sealed is not None:
            conflicts.append(IncompatibleType(name, in_table.sealed.type, column.sealed.type))
            continue
        inferred = in_table.inferred and (column.inferred or column.as_stored)
        joined = join(in_table.type, column.type) if inferred else _widest(in_table.type, column.type)
        if joined is None:
            is_decided = retypes and in_table.sealed is None and not in_table.inferred
            is_decided &= name not in key or _are_convertible(in_table.type, column.type)
            found = retyped if is_decided else conflicts
            found.append(IncompatibleType(name, in_table.type, column.type))
        else:
            columns[name] = replace(in_table, type=joined, sealed=sealed, inferred=inferred)
    if conflicts:
        return Evolution(tuple(current), tuple(conflicts))
    return Evolution(tuple(columns.values()), (), tuple(retyped))


def _are_convertible(one: LogicalType, other: LogicalType) -> bool:
    """Returns True if Postgres' casts convert values of both types into each other."""
    return has_cast(one, other) and has_cast(other, one)


def with_hashed_types(
    before: Sequence[TableColumn], after: Sequence[TableColumn], key: Collection[str]
) -> tuple[TableColumn, ...]:
    """Returns the columns of a table `after` a change of types, those of the `key` with their former types. `key`: the
    columns of all keys that its events have carried."""
    old = {column.name: column for column in before if column.name in key}

    def hashed(column: TableColumn) -> TableColumn:
        former = old.get(column.name)
        if former is None or has_same_json(former.type, column.type):
            return column
        return replace(column, hashed_as=(*former.hashed_as, former.type))

    return tuple(map(hashed, after))


def _widest(in_table: LogicalType, in_event: LogicalType) -> LogicalType | None:
    """Returns the join of two types, at least one of which is from a schema or a declaration; None if there is none."""
    joined = widest(in_table, in_event)
    return LogicalType(Kind.INT64) if joined is not None and joined.kind is Kind.INT53 else joined


def _equal_names(names: Mapping[str, str]) -> Iterator[EqualNames]:
    """Returns the conflicts of columns with equal names. `names`: column of the event → column of the table."""
    found: dict[str, list[str]] = {}
    for arrived, in_table_name in names.items():
        found.setdefault(caseless(in_table_name), []).append(arrived)
    return (EqualNames(tuple(same)) for same in found.values() if len(same) > 1)


def _common_sealed(in_table: Column | None, in_event: Column | None) -> Column | None:
    """Returns the column that holds the values of both; None if there is none, or if both are None."""
    if in_table is None or in_event is None:
        return in_table or in_event
    written = (in_table.wire.encoding, in_table.wire.digits, in_table.wire.elements)
    joined = widest(in_table.type, in_event.type)
    if joined is None or written != (in_event.wire.encoding, in_event.wire.digits, in_event.wire.elements):
        return None
    return replace(in_table, type=joined, wire=in_table.wire if joined == in_table.type else in_event.wire)


@dataclass(frozen=True)
class Limits:
    """The most columns of a table, the most that it gets on one day, and the most levels of a column's type."""

    columns: int = 4096
    new_columns_per_day: int = 500
    nesting_depth: int = 64


@dataclass(frozen=True)
class Exceeded:
    """A limit that a table's columns would exceed. `setting`: its name in a pipeline's file."""

    setting: str
    problem: str


AddedColumns = tuple[tuple[str, int], ...]
"""(day of the source's clock, number of columns that a table got on it) pairs, the newest days."""
_DAYS = 3


def added_columns(before: AddedColumns, day: str, number: int) -> AddedColumns:
    """Returns the numbers of added columns with those of a day."""
    counts = dict(before)
    counts[day] = counts.get(day, 0) + number
    return tuple(sorted(counts.items()))[-_DAYS:] if number else before


def exceeded_limit(
    before: Sequence[TableColumn] | None, after: Sequence[TableColumn], added: AddedColumns, limits: Limits
) -> Exceeded | None:
    """Returns the limit that a table's columns exceed by a change; None if there is none. `before`: its columns before;
    None for a new table. `added`: numbers of added columns with those of the change."""
    old = {column.name: column.type for column in before or ()}
    if len(after) > max(limits.columns, len(old)):
        problem = f"it would have {len(after):,} columns, and {limits.columns:,} are allowed"
        return Exceeded("columns", problem)
    most = max((count for _, count in added), default=0)
    if before is not None and len(after) > len(old) and most > limits.new_columns_per_day:
        problem = f"it would get {most:,} columns on one day, and {limits.new_columns_per_day:,} are allowed"
        return Exceeded("new_columns_per_day", problem)
    for column in after:
        if old.get(column.name) != column.type and nesting_depth(column.type) > limits.nesting_depth:
            problem = f"column {column.name!r} has more than {limits.nesting_depth:,} levels of arrays and structs"
            return Exceeded("nesting_depth", problem)
    return None


def nesting_depth(type_: LogicalType) -> int:
    """Returns the number of levels of a type; 0 for a scalar."""
    levels, depth = [type_], 0
    while levels := [element for one in levels for element in one.elements]:
        depth += 1
    return depth
