"""Changes the columns of a table with column mapping, whose files have names of their own for them. Types are in JSON.

Delta refuses a commit that drops or renames such a column and writes files too. So the files are written first, beside
the columns that go: these are marked as former ones, and a column that can't lie beside them has a provisional name. A
commit of metadata then drops the ones and renames the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ingest.names import caseless

_FORMER = "ingest.former"
"""The metadata of a column that goes."""
_PROVISIONAL = "_ingest_new_"
"""The prefix of the name of a column until the one that has its name is gone."""
_NESTED = ("elementType", "keyType", "valueType")

Type = Any
"""A type in Spark's JSON form: a text, or a dictionary with its parts."""


def with_column_ids(columns: Type, before: Type) -> Type:
    """Returns a type whose fields keep the ids and physical names that they have in `before`. With others they would be
    other columns for Delta."""
    if not isinstance(columns, dict) or not isinstance(before, dict) or columns["type"] != before["type"]:
        return columns
    if columns["type"] != "struct":
        return columns | {p: with_column_ids(columns[p], before[p]) for p in _NESTED if p in columns}
    known = {f["name"]: f for f in before["fields"]}
    return columns | {"fields": [_field_with_column_id(f, known.get(f["name"])) for f in columns["fields"]]}


def _field_with_column_id(field: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    if before is None:
        return field
    mapping = {k: v for k, v in before["metadata"].items() if k.startswith("delta.columnMapping.")}
    return field | {"type": with_column_ids(field["type"], before["type"]), "metadata": field["metadata"] | mapping}


def beside_former(columns: Type, before: Type) -> Type:
    """Returns the columns of a commit with files: `columns` under the names that they can have in it, with their ids in
    `before`, then the former ones. `before`: final names."""
    names = provisional_names(columns, before)
    named = columns | {"fields": [f | {"name": names.get(f["name"], f["name"])} for f in columns["fields"]]}
    kept = {f["name"] for f in named["fields"]}
    former = [f | {"metadata": f["metadata"] | {_FORMER: True}} for f in before["fields"] if f["name"] not in kept]
    beside = with_column_ids(named, before)
    return beside | {"fields": [*beside["fields"], *former]}


def provisional_names(columns: Type, before: Type) -> Mapping[str, str]:
    """Returns name → provisional name of each column that can't lie beside a column of `before`, or take its place:
    they differ only in the case of the name, or fields within the former one go."""
    stored = {caseless(f["name"]): f for f in before["fields"]}
    known = ((f, stored.get(caseless(f["name"]))) for f in columns["fields"])
    return {f["name"]: _PROVISIONAL + f["name"] for f, old in known if old is not None and not _can_take_place(f, old)}


def _can_take_place(field: dict[str, Any], before: dict[str, Any]) -> bool:
    return bool(field["name"] == before["name"]) and {*_fields(before["type"])} <= {*_fields(field["type"])}


def _fields(type_: Type, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields the paths of the fields within a type."""
    if isinstance(type_, dict):
        for field in type_.get("fields", ()):
            yield (*above, field["name"])
            yield from _fields(field["type"], (*above, field["name"]))
        for part in _NESTED:
            yield from _fields(type_.get(part), (*above, part))


def final_columns(columns: Type) -> Type | None:
    """Returns the columns without the former ones, under their final names; None if they are so already."""
    fields = [f | {"name": f["name"].removeprefix(_PROVISIONAL)} for f in columns["fields"] if not _is_former(f)]
    return None if fields == columns["fields"] else columns | {"fields": fields}


def _is_former(field: dict[str, Any]) -> bool:
    return bool(field["metadata"].get(_FORMER))
