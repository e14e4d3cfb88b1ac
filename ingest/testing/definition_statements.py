"""Statements that change the definition of a source's table (DDL). One that is not possible has no effect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ingest.testing.casts import ASSIGNMENT_CASTS, cast
from ingest.testing.source_table import UNKNOWN, SourceColumn, key_of, same_name
from ingest.testing.table_source import TableSource

_TRIES = 6


def add_column(source: TableSource) -> None:
    """Adds a column; rows from before read null or a constant default."""
    type_ = source.random.choice([*source.types])
    known = source.types[type_]
    has_default = known.has_defaults and source.random.random() < 0.8
    default = source.random.choice(known.defaults) if has_default else None
    optional = default is None or source.random.random() < 0.5
    _add(source, SourceColumn(type_, 0, default, optional, missing=default), [default] * len(source.rows))


def add_volatile_column(source: TableSource) -> None:
    """Adds a column with a volatile default, which writes another value into each row from before."""
    if source.table.keyless:
        return
    source.has_unknown = True
    type_ = source.random.choice([*source.types])
    column = SourceColumn(type_, 0, UNKNOWN, source.random.random() < 0.5)
    _add(source, column, [source.random.choice(source.types[type_].values) for _ in source.rows])


def _add(source: TableSource, column: SourceColumn, values: list[Any]) -> None:
    name = source.free_name()
    source.columns_ever += 1
    for row, value in zip(source.rows, values, strict=True):
        row[name] = value
    source.change("add.column", name, to=replace(column, number=source.columns_ever))


def drop_column(source: TableSource) -> None:
    """Drops a column outside of the key, but never the last one."""
    if len(source.table.columns) > 1 and source.other_columns:
        name = source.random.choice(source.other_columns)
        source.dropped.append(name)
        for row in source.rows:
            del row[name]
        source.change("drop.column", name)


def rename_column(source: TableSource) -> None:
    """Renames a column, perhaps to another case, or to the name of one that was dropped."""
    old = source.random.choice([*source.table.columns])
    new, other_case = source.free_name(), old.swapcase()
    if source.random.random() < 0.3 and other_case != old and same_name(other_case, old):
        new = other_case
    for row in source.rows:
        row[new] = row.pop(old)
    source.dropped.append(old)
    source.change("rename.column", old, name=new)


def alter_type(source: TableSource) -> None:
    """Changes a column's type by an assignment cast."""
    columns = source.table.columns
    pairs = [
        (name, to)
        for name, column in columns.items()
        for to in ASSIGNMENT_CASTS.get(column.type, ())
        if to in source.types and (name not in source.key or source.types[to].is_key)
    ]
    if not pairs:
        return
    name, to = source.random.choice(pairs)
    try:
        values = [cast(row[name], to) for row in source.rows]
        default = cast(columns[name].default, to)
    except ValueError:
        return  # the source refuses the statement
    for row, value in zip(source.rows, values, strict=True):
        row[name] = value
    source.change("alter.column.type", name, to=replace(columns[name], type=to, default=default))


def alter_type_using(source: TableSource) -> None:
    """Changes a column's type by an expression (USING), which writes another value into each row."""
    if source.other_columns and not source.table.keyless:
        source.has_unknown = True
        name = source.random.choice(source.other_columns)
        to = replace(source.table.columns[name], type=source.random.choice([*source.types]), default=None)
        for row in source.rows:
            row[name] = source.value(to)
        source.change("alter.column.type", name, to=to, using=True)


def alter_default(source: TableSource) -> None:
    """Sets or drops a default, which changes no row."""
    name = source.random.choice([*source.table.columns])
    column = source.table.columns[name]
    known = source.types[column.type]
    default = source.random.choice((None, *known.defaults)) if known.has_defaults else None
    source.change("alter.default", name, to=replace(column, default=default))


def alter_nullability(source: TableSource) -> None:
    """Sets or drops NOT NULL, which changes no row."""
    name = source.random.choice([*source.table.columns])
    column = source.table.columns[name]
    has_nulls = any(row[name] is None for row in source.rows)
    if name not in source.key and not (column.optional and has_nulls):
        source.change("alter.nullability", name, to=replace(column, optional=not column.optional))


def alter_key(source: TableSource) -> None:
    """Changes the primary key to other columns, or drops it."""
    able = [name for name, column in source.table.columns.items() if source.types[column.type].is_key]
    sizes = [min(source.random.choice((0, 1, 1, 2, 2)), len(able)) for _ in range(_TRIES)]
    keys = [tuple(source.random.sample(able, size)) for size in sizes]
    possible = [key for key in keys if key != source.table.key and _may_be_key(source, key)]
    if possible:
        source.change("alter.key", key=possible[0])


def _may_be_key(source: TableSource, key: tuple[str, ...]) -> bool:
    has_nulls = any(row[name] is None for row in source.rows for name in key)
    is_unique = len({key_of(row, key) for row in source.rows}) == len(source.rows)
    return is_unique and not has_nulls if key else not source.has_unknown


def recreate_table(source: TableSource) -> None:
    """Drops the table, and creates another one of its name with some of its columns."""
    columns = {n: c for n, c in source.table.columns.items() if n in source.key or source.random.random() < 0.6}
    table = replace(source.table, columns=columns or source.table.columns, oid=source.table.oid + 1)
    source.rows = []
    source.change("drop.table")
    source.create(table)
