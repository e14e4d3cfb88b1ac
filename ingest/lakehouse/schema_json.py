"""The JSON of a table's columns, and of the versions of its definition, in the catalog."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict
from typing import Any

from ingest.evolution.definition import NULL, ColumnDefinition, Definition, Fill, FillKind, Origin, Version
from ingest.evolution.policies import TableColumn
from ingest.values.columns import Column, Encoding, WireType
from ingest.values.types import Kind, OutOfRange, parse, with_scale


def versions_to_json(versions: Collection[Version]) -> str:
    """Returns the versions that events have shown as JSON, each definition once with all its positions."""
    places: dict[Definition, list[tuple[int, ...]]] = {}
    for version in versions:
        places.setdefault(version.definition, []).append(version.since)
    found = [
        {"at": sorted(at), "columns": [_defined_to_json(c) for c in definition.columns]}
        | ({"partial": True} if definition.is_partial else {})
        for definition, at in places.items()
    ]
    return json.dumps(sorted(found, key=lambda one: one["at"]), ensure_ascii=False)


def versions_from_json(texts: Iterable[str | None]) -> frozenset[Version]:
    """Returns the versions of several texts."""
    found = [one for text in texts if text is not None for one in json.loads(text)]
    return frozenset(
        Version(tuple(at), definition, Origin.SEEN)
        for one in found
        for columns in (tuple(map(_defined_from_json, one["columns"])),)
        for definition in (Definition(columns, is_partial=one.get("partial", False)),)
        for at in one["at"]
    )


def _defined_to_json(column: ColumnDefinition) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": column.name, "type": None if column.type is None else str(column.type)}
    if column.type is not None and column.type.kind is Kind.DECIMAL_TEXT and column.type.precision:
        fields["scale"] = column.type.scale
    if not column.optional:
        fields["optional"] = False
    if column.fill.column is not None:
        fields["fill"] = {"name": column.fill.column.name, **_default_to_json(column.fill.column)}
    return fields


def _defined_from_json(fields: dict[str, Any]) -> ColumnDefinition:
    type_ = None if fields["type"] is None else parse(fields["type"])
    defined = with_scale(fields["scale"]) if "scale" in fields else type_
    optional = fields.get("optional", True)
    fill = NULL
    if type_ is not None and "fill" in fields:
        default = fields["fill"]
        column = Column(
            default["name"], _wire_from_json(default["default_wire"]), type_, optional, default["default"], True
        )
        fill = Fill(FillKind.CONSTANT, column)
    return ColumnDefinition(fields["name"], defined, None, fill, optional)


def column_from_json(fields: dict[str, Any]) -> TableColumn:
    """Returns the column of a table of which `column_to_json` gave `fields`."""
    flags = fields.get("inferred", False), fields.get("declared", False)
    hashed_as = tuple(map(parse, fields.get("hashed_as", ())))
    type_, filled, sealed = parse(fields["type"]), _default_of(fields), _sealed_column(fields)
    return TableColumn(fields["name"], type_, filled, sealed, *flags, hashed_as)


def column_to_json(column: TableColumn) -> dict[str, Any]:
    """Returns a column of a table as JSON values."""
    fields: dict[str, Any] = {"name": column.name, "type": str(column.type)}
    fields |= {flag: True for flag in ("inferred", "declared") if getattr(column, flag)}
    if column.hashed_as:
        fields["hashed_as"] = [*map(str, column.hashed_as)]
    if column.filled is not None:
        fields |= _default_to_json(column.filled)
    if column.sealed is not None:
        fields["sealed"] = {"type": str(column.sealed.type), "wire": _wire_to_json(column.sealed.wire)}
    return fields


def _default_of(fields: dict[str, Any]) -> Column | None:
    if "default_wire" not in fields:
        return None
    wire = _wire_from_json(fields["default_wire"])
    return Column(fields["name"], wire, parse(fields["type"]), False, fields["default"], True)


def _sealed_column(fields: dict[str, Any]) -> Column | None:
    if "sealed" not in fields:
        return None
    return Column(fields["name"], _wire_from_json(fields["sealed"]["wire"]), parse(fields["sealed"]["type"]))


def _default_to_json(column: Column) -> dict[str, Any]:
    return {"default": column.default, "default_wire": _wire_to_json(column.wire)}


def _wire_to_json(wire: WireType) -> dict[str, Any]:
    fields = asdict(wire)
    return {**fields, "encoding": wire.encoding.name, "elements": [_wire_to_json(e) for e in wire.elements]}


def _wire_from_json(fields: dict[str, Any]) -> WireType:
    elements = tuple(_wire_from_json(e) for e in fields["elements"])
    names = tuple(fields["names"])
    encoding, number = Encoding[fields["encoding"]], Kind(fields["number"])
    times = OutOfRange(fields.get("out_of_range", OutOfRange.CLAMP))
    return WireType(encoding, number, fields["digits"], fields["checked"], elements, names, times)
