"""Versions of small definitions, for tests by example."""

from __future__ import annotations

from dataclasses import replace

from ingest.evolution.definition import (
    NULL,
    Cause,
    ColumnDefinition,
    Definition,
    Fill,
    FillKind,
    Origin,
    Place,
    Version,
)
from ingest.values.columns import Column, Encoding, WireType
from ingest.values.types import Kind, LogicalType

INT, LONG, TEXT = LogicalType(Kind.INT32), LogicalType(Kind.INT64), LogicalType(Kind.STRING)
WIRE = WireType(Encoding.JSON_VALUE)


def at(lsn: int, streamed: int = 1, offset: int = 0) -> Place:
    return 0, lsn, 0, 0, streamed, offset, 0


def column(
    name: str, number: int | None = None, default: str | None = None, type_: LogicalType | None = INT
) -> ColumnDefinition:
    fill = NULL if default is None else constant(default)
    return ColumnDefinition(name, type_, number, fill, default=default)


def constant(default: str) -> Fill:
    return Fill(FillKind.CONSTANT, Column("c", WIRE, INT, default=default, has_default=True))


def defined(*columns: ColumnDefinition | str, key: tuple[str, ...] | None = None, **more: int | bool) -> Definition:
    found = tuple(column(one) if isinstance(one, str) else one for one in columns)
    return replace(Definition(found, key), **more)  # type: ignore[arg-type]


def seen(lsn: int, *columns: ColumnDefinition | str, **more: object) -> Version:
    return Version(at(lsn), defined(*columns, **more), Origin.SEEN)  # type: ignore[arg-type]


def told(lsn: int, *columns: ColumnDefinition, cause: Cause | None = None, **more: object) -> Version:
    definition = defined(*columns, **{"relation": 1, **more})  # type: ignore[arg-type]
    return Version(at(lsn, -1), definition, Origin.TOLD, cause or Cause("ALTER TABLE"))


def columns_of(*names: str) -> list[Column]:
    return [Column(name, WIRE, INT) for name in names]


TO_TEXT = column("n", 2, type_=TEXT)
