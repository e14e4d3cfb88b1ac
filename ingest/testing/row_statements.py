"""Statements on the rows of a source's table. One that is not possible has no effect."""

from __future__ import annotations

from collections.abc import Iterable

from ingest.testing.oracle import UNAVAILABLE, Row
from ingest.testing.source_table import key_of
from ingest.testing.table_source import TableSource


def insert(source: TableSource) -> None:
    """Inserts one row, or several at one position (COPY)."""
    added: list[Row] = []
    for _ in range(source.random.choice((1, 1, 1, 3))):
        row = source.with_free_key(lambda: _values(source, source.table.columns), [*source.rows, *added])
        added += [] if row is None else [row]
    if added:
        source.begin()
    for row in added:
        source.rows.append(row)
        source.log("c", row, row)


def update(source: TableSource) -> None:
    """Updates columns of a row. Unchanged values of large types may be unavailable in the image."""
    row, others = source.some_row(), source.other_columns
    if row is None or not others:
        return
    old = dict(row)
    written = source.random.sample(others, source.random.randint(1, len(others)))
    row |= _values(source, written)
    image = dict(row)
    for name in others:
        is_large = source.types[source.table.columns[name].type].is_large and image[name] is not None
        if is_large and name not in written and not source.has_whole_images and source.random.random() < 0.7:
            image[name] = UNAVAILABLE
    source.begin()
    source.log("u", row, image, before=old if source.has_whole_images else None)


def move(source: TableSource) -> None:
    """Changes the key of a row: a delete and a create as Postgres logs it, or one update."""
    row = source.some_row()
    if row is None or not source.key:
        return
    old = dict(row)
    moved = source.with_free_key(lambda: old | _values(source, source.key), source.rows)
    if moved is None:
        return
    row |= moved
    source.begin()
    if source.random.random() < 0.5:
        source.log("u", row, row, before=old, old=old)
        return
    before = old if source.has_whole_images else None
    source.log("d", old, before=before, new_key=key_of(row, source.key))
    _null_tombstone(source, old)
    source.log("c", row, row)


def delete(source: TableSource) -> None:
    """Deletes a row; a null tombstone may follow."""
    row = source.some_row()
    if row is None:
        return
    source.rows = [other for other in source.rows if other is not row]
    source.begin()
    source.log("d", row, before=row if source.has_whole_images else None)
    _null_tombstone(source, row)


def read(source: TableSource) -> None:
    """Reads a snapshot of the table; not of a keyless one, whose rows would count twice."""
    if source.key and source.rows:
        source.begin()
        for row in source.rows:
            source.log("r", row, row)


def truncate(source: TableSource) -> None:
    """Truncates the table."""
    source.rows = []
    source.begin()
    source.log("t", {})


def _values(source: TableSource, names: Iterable[str]) -> Row:
    return {name: source.value(source.table.columns[name]) for name in names}


def _null_tombstone(source: TableSource, row: Row) -> None:
    if source.key and source.random.random() < 0.7:
        source.log("null", row)
