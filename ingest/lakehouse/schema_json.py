"""The JSON of a table's columns, and of the versions of its definition, in the catalog."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict
from typing import Any

from ingest.evolution.definition import (
    NULL,
    UNKNOWN,
    Cause,
    ColumnDefinition,
    Definition,
    Fill,
    FillKind,
    Origin,
    Version,
)
from ingest.evolution.policies import TableColumn
from ingest.values.columns import Column, Encoding, WireType
from ingest.values.types import Kind, OutOfRange, parse, with_scale


def versions_to_json(versions: Collection[Version], withdrawn: Collection[Version] = ()) -> str:
    """Returns versions as JSON, each definition once with all its positions. `withdrawn`: versions of earlier texts
    that hold no more, as a message that arrived late tells."""
    places: dict[tuple[Definition, Origin, Cause, bool], list[tuple[int, ...]]] = {}
    for group, is_withdrawn in ((versions, False), (withdrawn, True)):
        for one in group:
            places.setdefault((one.definition, one.origin, one.cause, is_withdrawn), []).append(one.since)
    found = [
        {"at": sorted(at), **_definition_to_json(definition, origin, cause), **({"withdrawn": True} if gone else {})}
        for (definition, origin, cause, gone), at in places.items()
    ]
    return json.dumps(sorted(found, key=lambda one: one["at"]), ensure_ascii=False)


def versions_from_json(texts: Iterable[str | None]) -> frozenset[Version]:
    """Returns the versions of several texts, in the order in which they were written."""
    versions = set[Version]()
    for one in (one for text in texts if text is not None for one in json.loads(text)):
        found = {_version(tuple(at), one) for at in one["at"]}
        versions = versions - found if one.get("withdrawn") else versions | found
    return frozenset(versions)


def _definition_to_json(definition: Definition, origin: Origin, cause: Cause) -> dict[str, Any]:
    """Returns a definition as JSON values: of one that events show, its columns alone."""
    fields: dict[str, Any] = {"columns": [_defined_to_json(c) for c in definition.columns]}
    if definition.is_partial:
        fields["partial"] = True
    told = {"key": definition.key, "relation": definition.relation}
    fields |= {name: value for name, value in told.items() if value is not None}
    if origin is not Origin.SEEN:
        fields |= {"origin": origin.name}
        fields |= {"cause": {name: value for name, value in asdict(cause).items() if value != getattr(Cause(), name)}}
    return fields


def _version(at: tuple[int, ...], fields: dict[str, Any]) -> Version:
    key = fields.get("key")
    columns = tuple(map(_defined_from_json, fields["columns"]))
    definition = Definition(
        columns, None if key is None else tuple(key), fields.get("relation"), fields.get("partial", False)
    )
    cause = fields.get("cause", {})
    numbers = {"numbers": tuple(cause["numbers"])} if "numbers" in cause else {}
    return Version(at, definition, Origin[fields.get("origin", Origin.SEEN.name)], Cause(**{**cause, **numbers}))


def _defined_to_json(column: ColumnDefinition) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": column.name, "type": None if column.type is None else str(column.type)}
    if column.type is not None and column.type.kind is Kind.DECIMAL_TEXT and column.type.precision:
        fields["scale"] = column.type.scale
    if not column.optional:
        fields["optional"] = False
    if column.fill.column is not None:
        filled = column.fill.column
        fields["fill"] = {"name": filled.name, **_default_to_json(filled)}
        if str(filled.type) != fields["type"]:
            fields["fill"]["type"] = str(filled.type)
        if filled.optional != column.optional:
            fields["fill"]["optional"] = filled.optional
    elif column.fill.kind is FillKind.UNKNOWN:
        fields["fill"] = FillKind.UNKNOWN.name
    told = {"number": column.number, "source_type": column.source_type or None, "default": column.default}
    return fields | {name: value for name, value in told.items() if value is not None}


def _defined_from_json(fields: dict[str, Any]) -> ColumnDefinition:
    type_ = None if fields["type"] is None else parse(fields["type"])
    defined = with_scale(fields["scale"]) if "scale" in fields else type_
    optional, source_type = fields.get("optional", True), fields.get("source_type", "")
    fill = _fill_from_json(fields.get("fill"), fields["type"], optional)
    return ColumnDefinition(
        fields["name"], defined, fields.get("number"), fill, optional, fields.get("default"), source_type
    )


def _fill_from_json(fill: dict[str, Any] | str | None, type_: str | None, optional: bool) -> Fill:
    if isinstance(fill, str):
        return UNKNOWN
    if fill is None or (shown := fill.get("type", type_)) is None:
        return NULL
    wire, is_optional = _wire_from_json(fill["default_wire"]), fill.get("optional", optional)
    return Fill(FillKind.CONSTANT, Column(fill["name"], wire, parse(shown), is_optional, fill["default"], True))


def column_from_json(fields: dict[str, Any]) -> TableColumn:
    """Returns the column of a table of which `column_to_json` gave `fields`."""
    flags = fields.get("inferred", False), fields.get("declared", False)
    hashed_as = tuple(map(parse, fields.get("hashed_as", ())))
    type_, filled, sealed = parse(fields["type"]), _default_of(fields), _sealed_column(fields)
    return TableColumn(fields["name"], type_, filled, sealed, *flags, hashed_as, fields.get("hashed_name", ""))


def column_to_json(column: TableColumn) -> dict[str, Any]:
    """Returns a column of a table as JSON values."""
    fields: dict[str, Any] = {"name": column.name, "type": str(column.type)}
    fields |= {flag: True for flag in ("inferred", "declared") if getattr(column, flag)}
    if column.hashed_name:
        fields["hashed_name"] = column.hashed_name
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
