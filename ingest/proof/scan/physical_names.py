"""The names that columns have in the files of a Delta table with column mapping: its log tells them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.proof.scan.places import Entry, Opened, Place, Unreadable
from ingest.proof.scan.search_terms import Needle

_LOG = re.compile(r"(?:.*/)?_delta_log/(?:[^/]+\.json|[^/]+\.checkpoint\.[^/]*parquet)(?: \(version .*\))?")
_NAME = "delta.columnMapping.physicalName"


def with_physical_names(needles: Sequence[Needle], place: Place) -> tuple[tuple[Needle, ...], list[Entry]]:
    """The needles with the names that their columns have in the files of this place, and the logs that could not be
    asked. Where the place can't be listed it has none: whoever scans it comes upon the same."""
    named: set[tuple[str, str]] = set()
    silent: list[Entry] = []
    if not any(n.columns for n in needles):
        return tuple(needles), silent
    try:
        for entry in place.entries():
            if _LOG.fullmatch(entry.name) and entry.open is not None:
                try:
                    named.update(_names(entry.name, entry.open()))
                except (Unreadable, OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException):
                    silent.append(entry)
    except Unreadable:
        return tuple(needles), silent
    return tuple(_extended(needle, named) for needle in needles), silent


def _extended(needle: Needle, named: set[tuple[str, str]]) -> Needle:
    wanted = {c.lower().rsplit(".", 1)[-1] for c in needle.columns}
    more = sorted(physical for logical, physical in named if logical.lower() in wanted)
    return replace(needle, columns=(*needle.columns, *more))


def _names(name: str, opened: Opened) -> Iterator[tuple[str, str]]:
    with opened.file as file:
        for schema in _schemas(name, file):
            yield from _mapped(json.loads(schema))


def _schemas(name: str, file: BinaryIO) -> Iterator[str]:
    if name.split(" (version ")[0].endswith(".json"):
        for line in file:
            if b'"schemaString"' in line:
                yield json.loads(line)["metaData"]["schemaString"]
        return
    opened = pq.ParquetFile(pa.PythonFile(file, "r"))
    if "metaData" in opened.schema_arrow.names:
        for batch in opened.iter_batches(columns=["metaData.schemaString"]):
            found = batch.column("metaData").field("schemaString").drop_null()
            yield from found.to_pylist()


def _mapped(kind: Any) -> Iterator[tuple[str, str]]:
    """Logical and physical name of every field of a Delta schema in JSON, however deep."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        if _NAME in field.get("metadata", {}):
            yield field["name"], field["metadata"][_NAME]
        yield from _mapped(field["type"])
    for inner in ("elementType", "keyType", "valueType"):
        yield from _mapped(kind.get(inner))
