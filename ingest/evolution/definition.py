"""What is known of a table's definition: versions, each at a position and from one origin. A set of them, in whatever
order they became known, is all that decides what the table's columns and keys are."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ingest.values.columns import Column
from ingest.values.types import LogicalType

Place = tuple[int, ...]
"""A `changelog.position` as plain numbers, in the order of its fields. It compares as the struct does."""


class Origin(StrEnum):
    """Where a version is known from, the best first. What is neither told nor read is assumed."""

    TOLD = "told by a message of the source's DDL"
    READ = "read in the source's catalog"
    SEEN = "seen in the schemas of events"
    DECLARED = "declared in the pipeline's file"


class FillKind(StrEnum):
    """What rows from before a column read in it."""

    NULL = "null"
    CONSTANT = "a constant"
    UNKNOWN = "values that only the source knows"


@dataclass(frozen=True, slots=True)
class Fill:
    """What rows from before a column read in it. `column`: of `CONSTANT`, the event's column whose default they read;
    the default is JSON text in the column's encoding."""

    kind: FillKind = FillKind.NULL
    column: Column | None = None


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column in one version.

    Attributes:
        name: as the source spells it.
        type: None where the origin doesn't tell how the connector writes it.
        number: the attribute number, which no other column of the table ever gets; None if unknown.
        fill: counts where the column begins with this version.
        optional: False for NOT NULL.
    """

    name: str
    type: LogicalType | None
    number: int | None = None
    fill: Fill = field(default_factory=Fill)
    optional: bool = True


@dataclass(frozen=True, slots=True)
class Definition:
    """A table's definition. `columns`: in the source's order. `key`: the key columns; () for a keyless table; None if
    unknown. `relation`: the number of the relation (a table that is dropped and created again gets another one); None
    if unknown."""

    columns: tuple[ColumnDefinition, ...]
    key: tuple[str, ...] | None
    relation: int | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """What a message says of the command that led to a version.

    Attributes:
        tag: the command, such as ALTER TABLE; empty if no message told the version.
        using: True if a type was changed by an expression; None if the source can't tell.
        rewritten: True if the command rewrote the table.
        zone: the session's time zone, by which `timestamp` becomes `timestamp with time zone`.
    """

    tag: str = ""
    using: bool | None = False
    rewritten: bool = False
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Version:
    """A definition that is known to hold at `since`: from there on if it is told, else at least there."""

    since: Place
    definition: Definition
    origin: Origin
    cause: Cause = field(default_factory=Cause)
