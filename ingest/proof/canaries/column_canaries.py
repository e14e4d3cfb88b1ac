"""Canaries in the very columns that are searched: in a file of their table, and among events of several tables."""

from __future__ import annotations

import io
import json
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.names import path_segment
from ingest.proof.forms.encodings import IN_COLUMN
from ingest.proof.scan import Folder, scan_places
from ingest.proof.scan.report import CanaryCheck
from ingest.proof.scan.search_terms import SearchTerm

_EVENTS = "bronze/canaries/events.parquet"
_FORMAT = "searched columns"
_ANOTHER = "canaries.another"


@dataclass(frozen=True)
class _ColumnCanary:
    """A number that counts only in one column, and another one that is written wherever it must not be found."""

    table: str
    column: str
    term: SearchTerm
    decoy: SearchTerm

    @property
    def file(self) -> str:
        folder = f"silver/canaries/{path_segment(self.table)}" if self.table else "columns"
        return f"{folder}/{self.term.value}.parquet"

    @property
    def rows(self) -> bytes:
        return _parquet(_nested(self.column, int(self.term.value)) | {"canary": int(self.decoy.value)})

    @property
    def events(self) -> Iterator[tuple[str, str]]:
        """Yields tables and events: one of the table, and if it is named, one of another that must not be found."""
        yield self.table or _ANOTHER, json.dumps({"after": _nested(self.column, int(self.term.value))})
        beside = self.column if self.table else f"x{self.column}"
        yield _ANOTHER, json.dumps({"after": _nested(beside, int(self.decoy.value))})


def check_columns(terms: Sequence[SearchTerm]) -> Iterator[CanaryCheck]:
    """Scans canaries in each column that a term names, and values beside these that have to be left out."""
    canaries = [_canary(*of) for of in dict.fromkeys((t.table, c) for t in terms for c in t.columns)]
    if not canaries:
        return
    with tempfile.TemporaryDirectory(prefix="canaries-") as folder:
        events = [event for canary in canaries for event in canary.events]
        columns: dict[str, Any] = {"source_table": [t for t, _ in events], "value": [e.encode() for _, e in events]}
        for file, body in [(c.file, c.rows) for c in canaries] + [(_EVENTS, _parquet_of(columns))]:
            path = Path(folder, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        searched = [term for canary in canaries for term in (canary.term, canary.decoy)]
        (scan,) = scan_places([Folder(Path(folder))], searched, tables=[_ANOTHER])
    # The names of these files hold the numbers, which are masked there.
    found = {(f.needle, f.part) for f in scan.findings.values() if f.form == IN_COLUMN}
    missed = [
        f"{c.term.label}: {part}"
        for c in canaries
        for part in (f"row group 0, column {c.column}", "row group 0, column value")
        if (c.term.label, part) not in found
    ]
    wrong = [f"{c.decoy.label}: found elsewhere" for c in canaries if any(label == c.decoy.label for label, _ in found)]
    yield CanaryCheck("files", _FORMAT, 3 * len(canaries), (*missed, *wrong))


def _canary(table: str, column: str) -> _ColumnCanary:
    name = f"{table}.{column}" if table else column
    term, decoy = (
        SearchTerm(f"canary: {kind} {name}", str(10**9 + secrets.randbelow(10**9)), (column,), table=table)
        for kind in ("column", "beside column")
    )
    return _ColumnCanary(table, column, term, decoy)


def _nested(column: str, value: int) -> dict[str, Any]:
    inner: Any = value
    for name in reversed(column.split(".")):
        inner = {name: inner}
    return dict(inner)


def _parquet(row: dict[str, Any]) -> bytes:
    return _parquet_of({name: pa.array([value]) for name, value in row.items()})


def _parquet_of(columns: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()
