"""Definitions of a source's table, and the evidence of which definition held from which position on.

What is known of a table is a set of `Version`s. A set has no order of arrival: two sets are combined by their union,
and everything else (`evolution.lives`) is a function of the set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ingest.values.columns import Column
from ingest.values.types import LogicalType

Place = tuple[int, ...]
"""A position (`changelog.position`) as plain numbers in the order of its fields; compares like the struct."""
_SOURCE_FIELDS = 5


def source_place(place: Place) -> Place:
    """Returns a position without offset and partition, which differ between deliveries of one record."""
    return place[:_SOURCE_FIELDS]


def is_at_or_above(place: Place | None, bound: Place | None) -> bool:
    """Returns True if `place` is not below `bound`. None is below every position."""
    return bound is None or (place is not None and place >= bound)


class Origin(StrEnum):
    """How a version became known, best first. Versions that are neither TOLD nor READ are assumptions."""

    TOLD = "message of the DDL in the log"
    READ = "catalog of the source"
    SEEN = "schema and key of an event"
    DECLARED = "file of the pipeline"


class FillKind(StrEnum):
    """Kinds of values that rows from before a column read in it."""

    NULL = "null"
    CONSTANT = "constant"
    UNKNOWN = "known to the source only"


@dataclass(frozen=True, slots=True)
class Fill:
    """The value that rows from before a column read in it.

    `column`: of CONSTANT, the column whose `default` is the value, in its wire form."""

    kind: FillKind = FillKind.NULL
    column: Column | None = None


NULL = Fill()
UNKNOWN = Fill(FillKind.UNKNOWN)


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column of a definition.

    Attributes:
        name: at the source.
        type: of its values in events; None if the source told a type that only an event can show.
        number: the attribute number, which no other column of the relation ever gets; None if not known.
        fill: what rows from before read, if the column is new in this version.
        optional: False for NOT NULL.
        default: the default of new rows, as the version's origin writes it.
        source_type: the type's name at the source, as every told version has it; empty if not known.
    """

    name: str
    type: LogicalType | None
    number: int | None = None
    fill: Fill = NULL
    optional: bool = True
    default: str | None = None
    source_type: str = ""


@dataclass(frozen=True, slots=True)
class Definition:
    """A table's definition.

    Attributes:
        columns: in the source's order.
        key: names of the key columns; () for a keyless table, None if not known.
        relation: the source's number of the relation (oid); None if not known.
        is_partial: columns that it lacks may exist all the same, as in an image without a schema.
    """

    columns: tuple[ColumnDefinition, ...]
    key: tuple[str, ...] | None = None
    relation: int | None = None
    is_partial: bool = False


DROP_TABLE = "DROP TABLE"
RENAME_TABLE = "RENAME TABLE"
"""The tag of the version of a name whose table has got another one."""
UNREADABLE = "UNREADABLE"
"""The tag of a version that a message should have told: up to the next one the table is what its events show."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The command that led to a version.

    Attributes:
        tag: as Postgres names it.
        using: True if a type was changed by an expression (USING), None if that can't be told.
        rewritten: the command rewrote the table's rows.
        zone: the session's time zone, by which the source converts timestamps.
        numbers: the attribute numbers of the columns that the expression computes; empty if not known.
        other_name: of a table that was renamed, its former name; where that has no table since, its new one.
    """

    tag: str = ""
    using: bool | None = False
    rewritten: bool = False
    zone: str = "UTC"
    numbers: tuple[int, ...] = ()
    other_name: str = ""

    @property
    def drops_table(self) -> bool:
        """True if no table has the name from here on: it was dropped or renamed."""
        return self.tag in (DROP_TABLE, RENAME_TABLE)

    @property
    def is_unreadable(self) -> bool:
        """True if the message about the version can't be read."""
        return self.tag == UNREADABLE


@dataclass(frozen=True, slots=True)
class Version:
    """A definition that holds at `since`: up to the next version if it is told, else at least there.

    A told version stands below every event at its place in the log (`streamed` -1)."""

    since: Place
    definition: Definition
    origin: Origin
    cause: Cause = field(default_factory=Cause)


def unreadable_version(since: Place) -> Version:
    """Returns the version in place of one whose message, at `since`, can't be read."""
    return Version(since, Definition(()), Origin.TOLD, Cause(UNREADABLE))
