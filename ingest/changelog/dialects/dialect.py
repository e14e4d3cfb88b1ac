"""The contract of a dialect: all that belongs to one of Debezium's connectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import types as T

from ingest.errors import TableUnusable


@dataclass(frozen=True)
class Place:
    """An event's place in its source's log: three integer columns, compared in this order."""

    major: Column
    minor: Column
    ordinal: Column


@dataclass(frozen=True)
class LogEnd:
    """How far a log had been sent when an event was sent: two integer columns, compared in this order."""

    major: Column
    minor: Column


@dataclass(frozen=True)
class PositionText:
    """The form of a position on the command line. `name`: with its article, "an LSN". `parse`: returns (major, minor)
    of a text; None for a text of another form."""

    name: str
    example: str
    parse: Callable[[str], tuple[int, int | None] | None]


@dataclass(frozen=True)
class AsOfCut:
    """Decides which events the source had committed at a position, for events that don't carry their own commit.

    All columns are expressions on `EVENT` rows.

    Attributes:
        applies: true for the events that it decides on.
        aggregates: name → an aggregate of these events.
        committed: returns the filter of committed events from the aggregates' values.
    """

    applies: Column
    aggregates: Mapping[str, Column]
    committed: Callable[[Mapping[str, Any]], Column]


@dataclass(frozen=True)
class Documents:
    """Images that are documents, each written as one text: no table can be made of them.

    Attributes:
        refusal: returns the error of a table with such images.
        is_declared: returns True for the schema of an image that is a document.
        is_document: returns true for the text of an image that is a document.
    """

    refusal: Callable[[], TableUnusable]
    is_declared: Callable[[Mapping[str, Any]], bool]
    is_document: Callable[[Column], Column]


@dataclass(frozen=True, eq=False)
class Dialect:
    """A connector's dialect. The defaults are those of a source without positions.

    An event may lack its connector's name, so a dialect recognises its events by their fields: the columns that its
    functions return are null for events of all other connectors.

    Attributes:
        connectors: its names in `source.connector`.
        fields: the fields of the `source` block that it reads.
        numbers: returns columns that are parsed from the texts of a `source` block, by name. They are computed once,
            before `place` and `log_end`, which name them.
        place: returns the place of an event from its `source` block and its op.
        log_end: returns how far the log had been sent, from a `source` block.
        position_text: the form of its positions on the command line.
        as_of_cut: returns the cut at a position's `major`. Without one, an event's own position decides.
        dump_fields: returns the fields of the `source` block of a read at (major, minor); None where it has no such
            position.
        exact_fields: returns the fields of the `source` block of an event at (major, minor, ordinal).
        unplaced_reads: True if reads of an incremental snapshot may come without a position; they then stand right
            after the preceding change of their key.
        transaction_id: the name and the field of an ID in the `source` block that names a transaction on every server.
        documents: its images that are documents.
    """

    connectors: tuple[str, ...]
    fields: tuple[T.StructField, ...] = ()
    numbers: Callable[[Column], Mapping[str, Column]] | None = None
    place: Callable[[Column, Column], Place] | None = None
    log_end: Callable[[Column], LogEnd] | None = None
    position_text: PositionText | None = None
    as_of_cut: Callable[[int], AsOfCut] | None = None
    dump_fields: Callable[[int, int | None], Mapping[str, Any] | None] | None = None
    exact_fields: Callable[[Column, Column, Column], Mapping[str, Column]] | None = None
    unplaced_reads: bool = False
    transaction_id: tuple[str, str] | None = None
    documents: Documents | None = None
