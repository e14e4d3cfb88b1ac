"""Physical column names of Delta tables with column mapping, read from their logs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.proof.scan.places import OpenedFile, Place, PlaceEntry, Unreadable
from ingest.proof.scan.search_terms import SearchTerm

_LOG = re.compile(r"(?:.*/)?_delta_log/(?:[^/]+\.json|[^/]+\.checkpoint\.[^/]*parquet)(?: \(version .*\))?")
_ANY = re.compile(".*", re.DOTALL)
_NAME = "delta.columnMapping.physicalName"


@dataclass(frozen=True)
class LoggedField:
    """A field of a schema in a log, at any depth. `kind`: its type; that of a nested one is empty. `physical`: its name
    in files, if that is another."""

    name: str
    kind: str
    physical: str | None


def read_logs(
    place: Place, names: re.Pattern[str], unreadable: list[PlaceEntry] | None = None
) -> Iterator[tuple[PlaceEntry, list[LoggedField]]]:
    """Yields each file of a Delta log whose name matches, with the fields of the schemas in it. Collects those that
    can't be read in `unreadable`. Raises Unreadable if the place can't be listed."""
    for entry in place.entries():
        if _LOG.fullmatch(entry.name) and names.fullmatch(entry.name) and entry.open is not None:
            try:
                fields = list(_fields(entry.name, entry.open()))
            except (Unreadable, OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException):
                if unreadable is not None:
                    unreadable.append(entry)
            else:
                yield entry, fields


def with_physical_names(terms: Sequence[SearchTerm], place: Place) -> tuple[tuple[SearchTerm, ...], list[PlaceEntry]]:
    """Returns the terms with the physical names of their columns added, and the logs that could not be read. If the
    place can't be listed, the terms are returned as they are: the scan of the place reports that."""
    mapped_names: set[tuple[str, str]] = set()
    unreadable_logs: list[PlaceEntry] = []
    if not any(n.columns for n in terms):
        return tuple(terms), unreadable_logs
    try:
        for _, fields in read_logs(place, _ANY, unreadable_logs):
            mapped_names.update((f.name, f.physical) for f in fields if f.physical is not None)
    except Unreadable:
        return tuple(terms), unreadable_logs
    return tuple(_extended(term, mapped_names) for term in terms), unreadable_logs


def _extended(term: SearchTerm, mapped_names: set[tuple[str, str]]) -> SearchTerm:
    columns = {c.lower().rsplit(".", 1)[-1] for c in term.columns}
    physical_names = sorted(physical for logical, physical in mapped_names if logical.lower() in columns)
    return replace(term, columns=(*term.columns, *physical_names))


def _fields(name: str, opened: OpenedFile) -> Iterator[LoggedField]:
    with opened.file as file:
        for schema in _schemas(name, file):
            yield from _fields_of(json.loads(schema))


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


def _fields_of(kind: Any) -> Iterator[LoggedField]:
    """Yields every field of a Delta schema in JSON, at any depth."""
    if not isinstance(kind, dict):
        return
    for one in kind.get("fields", ()):
        of = one["type"]
        yield LoggedField(one["name"], of if isinstance(of, str) else "", one.get("metadata", {}).get(_NAME))
        yield from _fields_of(of)
    for inner in ("elementType", "keyType", "valueType"):
        yield from _fields_of(kind.get(inner))
