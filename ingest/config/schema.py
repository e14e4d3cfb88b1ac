"""The JSON Schema of a pipeline file, for editors, and for finding the right place of an unknown key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from ingest.config.model import Pipeline


@cache
def json_schema() -> dict[str, Any]:
    """Returns the schema of a pipeline file (JSON Schema, draft 2020-12)."""
    schema: dict[str, Any] = _without_null(Pipeline.model_json_schema())
    # The file's name is the default.
    schema["required"] = [key for key in schema["required"] if key != "name"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "ingest pipeline"}


def json_schema_text() -> str:
    """Returns the schema as the text of `conf/pipeline.schema.json`."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _without_null(node: Any) -> Any:
    """Removes null from the schema: an optional key is left out of a file, never set to null."""
    if isinstance(node, list):
        return [_without_null(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {k: _without_null(v) for k, v in node.items() if not (k == "default" and v is None)}
    forms = [form for form in kept.get("anyOf", []) if form != {"type": "null"}]
    if len(forms) == 1:
        del kept["anyOf"]
        kept = {**forms[0], **kept}
    return kept


def keys_at(path: Sequence[str]) -> list[str]:
    """Returns the keys that the mapping at `path` may hold."""
    node = json_schema()
    for part in path:
        node = _resolve(node)
        node = node.get("properties", {}).get(part) or node.get("additionalProperties") or {}
    return list(_resolve(node).get("properties", {}))


def paths_of_key(key: str) -> list[str]:
    """Returns the dotted paths at which a mapping may hold `key`, outermost first."""
    return sorted((".".join(path) for path in _paths(json_schema()) if path[-1] == key), key=len)


def _paths(node: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, child in _resolve(node).get("properties", {}).items():
        yield (key,)
        yield from ((key, *path) for path in _paths(child))


def _resolve(node: dict[str, Any]) -> dict[str, Any]:
    reference = node.get("$ref")
    if reference is None:
        return node
    definition: dict[str, Any] = json_schema()["$defs"][reference.removeprefix("#/$defs/")]
    return definition
