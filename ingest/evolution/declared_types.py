"""Types of columns that a pipeline's file declares: they hold whatever the events carry.

An event's value becomes one of the declared type if that loses nothing. JSON that is a plain number or text is read as
the declaration says, as without a schema; a value of another encoding is cast as Postgres does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ingest.changelog.connect_schema import declared_column
from ingest.evolution.life import Life, Lives, TypeStep
from ingest.evolution.policies import IncompatibleType, TableColumn
from ingest.names import caseless
from ingest.values.columns import Column, Encoding, WireType
from ingest.values.types import FLOATS, INTEGERS, LogicalType, widest

_OF_NUMBER = (
    *(Encoding.NUMBER, Encoding.DECIMAL_PLAIN, Encoding.BOOLEAN, Encoding.EPOCH, Encoding.EPOCH_DAYS),
    *(Encoding.DATE_ANY, Encoding.TIME_OF_DAY, Encoding.DURATION),
)
"""Encodings by which a JSON number can be read."""
_NESTED = (Encoding.ARRAY, Encoding.MAP, Encoding.MAP_ENTRIES, Encoding.STRUCT)


def as_declared(
    columns: Sequence[Column],
    table: Sequence[TableColumn],
    declared: Mapping[str, str],
    names: Mapping[str, str],
    lives: Lives,
) -> tuple[Column, ...]:
    """Returns the columns of events, those with a declared type in this type.

    A table keeps the type that was declared when it got the column. `table`: its columns. `declared`: column of the
    event → type in the pipeline's file. `names`: column of the event → column of the table. `lives`: of its columns."""
    in_table, in_file = {c.name: c for c in table}, {caseless(name): text for name, text in declared.items()}

    def found(column: Column) -> Column:
        text, stored = in_file.get(caseless(column.name)), in_table.get(names[column.name])
        wanted = None if text is None else declared_column(column.name, text)
        if column.sealed is not None or (stored is not None and stored.sealed is not None):
            return column
        if stored is not None:
            is_declared = stored.declared or (wanted is not None and _has_been(stored, wanted.type, lives))
            if not is_declared:
                return column
            if wanted is None or wanted.type != stored.type:
                wanted = declared_column(column.name, str(stored.type))
        return column if wanted is None else _in_type(column, wanted)

    return tuple(map(found, columns))


def of_types(columns: Sequence[Column], table: Sequence[TableColumn], names: Mapping[str, str]) -> tuple[Column, ...]:
    """Returns the columns of events whose values become those of the table's types. `names`: column of the event →
    column of the table, which must have it."""
    wanted = set(names.values())
    types = {c.name: declared_column(c.name, str(c.type)) for c in table if c.name in wanted}
    return tuple(_in_type(column, types[names[column.name]]) for column in columns)


def differences(table: Sequence[TableColumn], declared: Mapping[str, str]) -> Iterator[IncompatibleType]:
    """Yields the columns of a table whose type is another one than in the pipeline's file. `declared`: column of the
    table → type in the file."""
    in_file = {caseless(name): text for name, text in declared.items()}
    for column in table:
        if caseless(column.name) in in_file and column.sealed is None:
            wanted = declared_column(column.name, in_file[caseless(column.name)]).type
            if wanted != column.type:
                yield IncompatibleType(column.name, column.type, wanted)


def with_declared_types(now: Lives, columns: Sequence[TableColumn]) -> Lives:
    """Returns lives in which a column with a declared type has had no other."""
    types = {column.name: column.type for column in columns if column.declared}
    if not types:
        return now

    def declared(life: Life) -> Life:
        if life.column not in types or now.shown.get(life.column) is not life:
            return life
        return replace(life, types=(TypeStep(None, types[life.column]),))

    return replace(now, columns=tuple(map(declared, now.columns)))


def _has_been(stored: TableColumn, type_: LogicalType, lives: Lives) -> bool:
    """Returns True if a column has had this type and no other."""
    life = lives.shown.get(stored.name)
    return stored.type == type_ and (life is None or {step.type for step in life.types} == {type_})


def _in_type(column: Column, wanted: Column) -> Column:
    """Returns a column of events whose values become those of `wanted`."""
    written = column.type
    if column.inferred or written == wanted.type:
        wire = wanted.wire.with_out_of_range(column.wire.out_of_range) if column.inferred else column.wire
        return replace(column, wire=wire, type=wanted.type, inferred=False, written=wanted.type)
    if widest(written, wanted.type) == wanted.type:
        return replace(column, type=wanted.type, written=written)
    wire = wanted.wire.with_out_of_range(column.wire.out_of_range)
    if _reads(wire, wanted.type, column.wire, written):
        return replace(column, wire=wire, type=wanted.type, written=written)
    return replace(column, type=wanted.type, written=written, is_cast=True)


def _reads(wire: WireType, type_: LogicalType, other: WireType, written: LogicalType) -> bool:
    """Returns True if the JSON of the encoding `other` can be read as `wire`."""
    match other.encoding:
        case Encoding.NUMBER:
            is_whole = written.kind in FLOATS and type_.kind in INTEGERS
            return wire.encoding in _OF_NUMBER and not is_whole
        case Encoding.TEXT | Encoding.DECIMAL_PLAIN:
            return wire.encoding not in _NESTED
        case Encoding.BASE64:
            return wire.encoding is Encoding.DECIMAL_UNSCALED
        case Encoding.ARRAY if wire.encoding is Encoding.ARRAY:
            parts = wire.elements[0], type_.elements[0], other.elements[0], written.elements[0]
            return _reads(*parts)
        case _:
            return False
