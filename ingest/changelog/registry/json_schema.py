"""Derives Kafka Connect's schema from a JSON Schema.

Source: Confluent's `JsonSchemaData`, which keeps Connect's schema in `title` and in properties `connect.…`, and JSON
Schema's specification for schemas of other producers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingest.changelog.registry.schema_fault import unreadable

_PHYSICAL = {"boolean": "boolean", "integer": "int64", "number": "double", "string": "string"}
_CONNECT = {"float32": "float", "float64": "double"}
_FORMATS = {
    "date-time": "io.debezium.time.ZonedTimestamp",
    "date": "io.debezium.time.IsoDate",
    "uuid": "io.debezium.data.Uuid",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_SOURCE = "__debezium.source.column."


def connect_of_json_schema(schema: Mapping[str, Any], references: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns Connect's schema of the values that a JSON Schema describes. `references`: schemas by the name by which
    `$ref` refers to them.

    Raises ChangelogUnusable for a schema that is no object's, or allows several types."""
    found = _Schemas(schema, references).connect(schema, ())
    if found["type"] != "struct":
        raise unreadable("is no object's")
    return found


class _Schemas:
    def __init__(self, root: Mapping[str, Any], references: Mapping[str, Mapping[str, Any]]) -> None:
        self._root = root
        self._references = references

    def connect(self, schema: Mapping[str, Any], within: tuple[str, ...]) -> dict[str, Any]:
        """Returns Connect's schema. `within`: the references on the way here."""
        if "$ref" in schema:
            name = str(schema["$ref"])
            if name in within:
                raise unreadable(f"refers to {name} within itself")
            return self.connect(self._referred(name), (*within, name))
        for choice in ("oneOf", "anyOf"):
            if choice in schema:
                branches = [branch for branch in schema[choice] if not _is_null(branch)]
                if len(branches) != 1:
                    raise unreadable("allows several types")
                outer = {name: value for name, value in schema.items() if name != choice}
                inside = self.connect({**outer, **branches[0]}, within)
                return inside | ({"optional": True} if len(branches) < len(schema[choice]) else {})
        kind, optional = _kind(schema)
        return _described(self._typed(kind, schema, within), schema) | ({"optional": True} if optional else {})

    def _referred(self, name: str) -> Mapping[str, Any]:
        document, _, path = name.partition("#")
        found: Any = self._references.get(document) if document else self._root
        for step in path.strip("/").split("/") if path.strip("/") else ():
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        if not isinstance(found, dict):
            raise unreadable(f"refers to {name}, which is not known")
        return found

    def _typed(self, kind: str, schema: Mapping[str, Any], within: tuple[str, ...]) -> dict[str, Any]:
        connect = schema.get("connect.type")
        if kind == "array":
            if connect == "map":
                raise unreadable("has a map whose keys are no strings")
            return {"type": "array", "items": self._inside(schema, "items", within), "optional": False}
        if kind == "object" and (connect == "map" or "properties" not in schema):
            values = self._inside(schema, "additionalProperties", within)
            keys = {"type": "string", "optional": False}
            return {"type": "map", "keys": keys, "values": values, "optional": False}
        if kind == "object":
            properties: Mapping[str, Mapping[str, Any]] = schema["properties"]
            required = set(schema.get("required", properties if _is_of_connect(schema) else ()))
            ordered = sorted(properties, key=lambda name: properties[name].get("connect.index", len(properties)))
            fields = []
            for name in ordered:
                absent = {} if name in required else {"optional": True}
                fields.append(self.connect(properties[name], within) | absent | {"field": name})
            return {"type": "struct", "fields": fields, "optional": False}
        if kind not in _PHYSICAL:
            raise unreadable(f"has a value of type {kind!r}")
        return {"type": _CONNECT.get(str(connect), connect) or _PHYSICAL[kind], "optional": False}

    def _inside(self, schema: Mapping[str, Any], name: str, within: tuple[str, ...]) -> dict[str, Any]:
        inside = schema.get(name)
        if not isinstance(inside, dict):
            raise unreadable(f"has no {name} where it needs them")
        return self.connect(inside, within)


def _is_null(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "null"


def _is_of_connect(schema: Mapping[str, Any]) -> bool:
    """Returns True for a schema by Connect's converter, which names no required properties: a property that may be
    absent is one of `oneOf`."""
    return any("connect.index" in one for one in schema.get("properties", {}).values())


def _kind(schema: Mapping[str, Any]) -> tuple[str, bool]:
    """Returns the type of values, and True if null is allowed too."""
    kind = schema.get("type", "string" if "enum" in schema else "object" if "properties" in schema else None)
    kinds = kind if isinstance(kind, list) else [kind]
    others = [str(one) for one in kinds if one != "null"]
    if len(others) != 1:
        raise unreadable("allows several types")
    return others[0], len(others) < len(kinds)


def _described(connect: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns Connect's schema with the semantic name, the parameters and the default of a JSON Schema."""
    is_text = connect["type"] == "string"
    name = (_FORMATS.get(str(schema.get("format"))) if is_text else None) or schema.get("title")
    parameters = dict(schema.get("connect.parameters", {}))
    if name == _DECIMAL and schema.get("type") != "string":
        return connect | _written_decimal(parameters)
    more = {"name": name, "version": schema.get("connect.version"), "parameters": parameters}
    if "default" in schema:
        more["default"] = schema["default"]
    return connect | {name: value for name, value in more.items() if value not in (None, {})}


def _written_decimal(parameters: Mapping[str, str]) -> dict[str, Any]:
    """Returns the schema of a decimal that is written as a number (`decimal.format=NUMERIC`)."""
    length = parameters.get("connect.decimal.precision")
    propagated = {"type": "NUMERIC"} | ({"length": length, "scale": parameters.get("scale", "0")} if length else {})
    return {"type": "string", "parameters": {f"{_SOURCE}{name}": value for name, value in propagated.items()}}
