"""Physical column names of Delta tables with column mapping, read from their logs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.proof.scan.places import OpenedFile, Place, PlaceEntry, Unreadable
from ingest.proof.scan.search_terms import SearchTerm

_LOG = re.compile(r"(?:.*/)?_delta_log/(?:[^/]+\.json|[^/]+\.checkpoint\.[^/]*parquet)(?: \(version .*\))?")
_NAME = "delta.columnMapping.physicalName"


def with_physical_names(terms: Sequence[SearchTerm], place: Place) -> tuple[tuple[SearchTerm, ...], list[PlaceEntry]]:
    """Returns the terms with the physical names of their columns added, and the logs that could not be read. If the
    place can't be listed, the terms are returned as they are: the scan of the place reports that."""
    mapped_names: set[tuple[str, str]] = set()
    unreadable_logs: list[PlaceEntry] = []
    if not any(n.columns for n in terms):
        return tuple(terms), unreadable_logs
    try:
        for entry in place.entries():
            if _LOG.fullmatch(entry.name) and entry.open is not None:
                try:
                    mapped_names.update(_names(entry.name, entry.open()))
                except (Unreadable, OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException):
                    unreadable_logs.append(entry)
    except Unreadable:
        return tuple(terms), unreadable_logs
    return tuple(_extended(term, mapped_names) for term in terms), unreadable_logs


def _extended(term: SearchTerm, mapped_names: set[tuple[str, str]]) -> SearchTerm:
    columns = {c.lower().rsplit(".", 1)[-1] for c in term.columns}
    physical_names = sorted(physical for logical, physical in mapped_names if logical.lower() in columns)
    return replace(term, columns=(*term.columns, *physical_names))


def _names(name: str, opened: OpenedFile) -> Iterator[tuple[str, str]]:
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
    """Yields logical and physical name of every field of a Delta schema in JSON, at any depth."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        if _NAME in field.get("metadata", {}):
            yield field["name"], field["metadata"][_NAME]
        yield from _mapped(field["type"])
    for inner in ("elementType", "keyType", "valueType"):
        yield from _mapped(kind.get(inner))
