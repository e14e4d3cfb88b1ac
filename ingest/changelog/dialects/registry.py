"""All dialects, and what generic code needs of them. A new connector is a module of its own and an entry in
`DIALECTS`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.dialects import mongodb, mysql, postgresql, sqlserver
from ingest.changelog.dialects.dialect import AsOfCut, Dialect, Documents, LogEnd, Place, PositionText

DIALECTS: tuple[Dialect, ...] = (postgresql.DIALECT, mysql.DIALECT, sqlserver.DIALECT, mongodb.DIALECT)
"""By precedence: the first dialect that recognises an event, or the text of a position, reads it."""


def source_fields() -> list[T.StructField]:
    """Returns the fields of the `source` block that dialects read, each once."""
    return list({field.name: field for dialect in DIALECTS for field in dialect.fields}.values())


def source_numbers(source: Column) -> dict[str, Column]:
    """Returns the columns that `place` and `log_end` need besides `source`: numbers parsed from its texts."""
    return {name: n for dialect in DIALECTS if dialect.numbers for name, n in dialect.numbers(source).items()}


def place(source: Column, op: Column) -> Place:
    """Returns the place of an event from its `source` block; null without source positions."""
    found = [dialect.place(source, op) for dialect in DIALECTS if dialect.place]
    return Place(*(F.coalesce(*(getattr(one, name) for one in found)) for name in ("major", "minor", "ordinal")))


def log_end(source: Column) -> LogEnd:
    """Returns how far the log had been sent when an event was sent; null without source positions."""
    found = [dialect.log_end(source) for dialect in DIALECTS if dialect.log_end]
    return LogEnd(*(F.coalesce(*(getattr(one, name) for one in found)) for name in ("major", "minor")))


def may_be_unplaced(source: Column) -> Column:
    """Returns true if the connector that the event names may send reads of incremental snapshots without a position."""
    return source["connector"].isin(*(name for d in DIALECTS if d.unplaced_reads for name in d.connectors))


def parse_position(text: str) -> tuple[int, int | None] | None:
    """Returns (major, minor) of a position's text; None for a text in no dialect's form."""
    return next((found for form in _position_texts() if (found := form.parse(text)) is not None), None)


def position_forms() -> str:
    """Returns the forms of positions as words: "an LSN (0/16B3748) or a binlog position (binlog.000003:4567)"."""
    return " or ".join(f"{form.name} ({form.example})" for form in _position_texts())


def position_examples() -> str:
    """Returns an example of each form, separated by commas."""
    return ", ".join(form.example for form in _position_texts())


def as_of_cuts(major: int) -> list[AsOfCut]:
    """Returns the cuts for events whose own position doesn't decide whether they were committed at `major`."""
    return [dialect.as_of_cut(major) for dialect in DIALECTS if dialect.as_of_cut]


def dump_fields(major: int, minor: int | None) -> Mapping[str, Any]:
    """Returns the fields of the `source` block of a dump's reads, in the first dialect that has such a position."""
    found = (dialect.dump_fields(major, minor) for dialect in DIALECTS if dialect.dump_fields)
    return next(fields for fields in found if fields is not None)


def exact_fields(major: Column, minor: Column, ordinal: Column) -> Mapping[str, Column]:
    """Returns the fields of the `source` block of an event right at a place, in the first dialect that can express any
    place. Events are compared by these numbers alone, so it need not be that of the table's connector."""
    return next(dialect.exact_fields(major, minor, ordinal) for dialect in DIALECTS if dialect.exact_fields)


def transaction_ids() -> list[tuple[str, str]]:
    """Returns the name, and the field of the `source` block, of each ID that names a transaction on every server."""
    return [dialect.transaction_id for dialect in DIALECTS if dialect.transaction_id]


def document_images() -> list[Documents]:
    """Returns the images that are documents."""
    return [dialect.documents for dialect in DIALECTS if dialect.documents]


def _position_texts() -> Iterator[PositionText]:
    return (dialect.position_text for dialect in DIALECTS if dialect.position_text)
