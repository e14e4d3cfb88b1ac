"""The configuration of what becomes of changes of a source's tables, and of their limits."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ingest.config.section import Section

ChangeKind = Literal[
    "add.column",
    "drop.column",
    "rename.column",
    "alter.column.type",
    "alter.nullability",
    "alter.default",
    "alter.key",
    "create.table",
    "drop.table",
    "rename.table",
    "truncate.table",
]
OnChange = Literal["evolve", "lenient", "ignore", "fail"]


class SchemaSettings(Section):
    """What becomes of changes of the source's tables. A table's own settings override the pipeline's, key by key."""

    on_change: OnChange = Field(
        default="evolve",
        description="evolve: apply every change. lenient: apply what loses nothing; a dropped column stays, a renamed "
        "one is kept beside its old name, rows of a dropped or truncated table stay, and a type that doesn't keep the "
        "values is refused. ignore: the table's columns stay as they are; values of new columns are not stored. fail: "
        "set the table aside at the first change.",
    )
    include: tuple[ChangeKind, ...] | None = Field(
        default=None, description="The only kinds of changes that on_change applies to; all others are ignored."
    )
    exclude: tuple[ChangeKind, ...] = Field(
        default=(), description="Kinds of changes that are ignored, even if they are included."
    )

    def of_table(self, own: SchemaSettings | None) -> SchemaSettings:
        """Returns these settings with those that a table's own settings name."""
        if own is None:
            return self
        return self.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})


class Limits(Section):
    """Limits that protect the tables and the engine from a source that misbehaves. What exceeds one is set aside or in
    quarantine, and can be merged once the limit is raised."""

    columns: Annotated[int, Field(ge=1)] = Field(
        default=4096,
        description="Columns of a table. No relational source allows more, and each one costs every reader of the "
        "table. A table that would have more is set aside.",
    )
    new_columns_per_day: Annotated[int, Field(ge=1)] = Field(
        default=500,
        description="Columns that a table gets on one day of its source's clock, after its first batch. A producer "
        "that writes values as names adds columns without end. A table that would get more is set aside.",
    )
    nesting_depth: Annotated[int, Field(ge=1, le=100)] = Field(
        default=64,
        description="Levels of arrays and structs of a column's type. Readers and writers recurse once per level. A "
        "table with more is set aside.",
    )
    event_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=64 * 1024 * 1024,
        description="Bytes of an event's value. An event is held in memory as a whole, several times over. A larger "
        "one is quarantined when it is captured.",
    )
