"""The tables and columns that search terms may name, as a pipeline's file and the logs of its tables have them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ingest.errors import ConfigError
from ingest.names import path_segment
from ingest.proof.forms import ValueType
from ingest.proof.forms.value_types import is_of
from ingest.proof.scan.physical_names import read_logs
from ingest.proof.scan.places import Place, Unreadable
from ingest.proof.scan.search_terms import SearchTerm

ANY_TABLE = "*"
_OF_ONE_TABLE = re.compile(r"(?:.*/)?(?:silver|pending|history|changes|tombstones)/[^/]+/([^/]+)/.*")
_OF_ONE_TOPIC = re.compile(r"(?:.*/)?(?:([^/]+)-\d+/\d{20}[^/]*|topics/([^/]+)/.*)")
"""A broker's folder of a topic partition, and that of a topic as sink connectors write it."""
_TYPES = {
    "date": ValueType.DATE,
    "timestamp": ValueType.TIMESTAMP,
    "timestamp_ntz": ValueType.TIMESTAMP,
    "binary": ValueType.BYTES,
    **dict.fromkeys(("byte", "short", "integer", "long"), ValueType.INTEGER),
    **dict.fromkeys(("float", "double"), ValueType.DECIMAL),
}


@dataclass(frozen=True)
class TableColumns:
    """`columns`: table → its columns and those that it once had, in lower case, each with its type in Delta's JSON;
    empty if no column of the table is known."""

    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def resolved(self, terms: Sequence[SearchTerm]) -> tuple[SearchTerm, ...]:
        """Returns the terms, split by the tables that their columns name, with the types of these columns. Raises
        ConfigError if a term names a table or column that there isn't."""
        return tuple(one for term in terms for one in (self._split(term) if term.columns else [term]))

    def _split(self, term: SearchTerm) -> Iterator[SearchTerm]:
        by_table: dict[tuple[str, ValueType | None], list[str]] = {}
        for name in term.columns:
            table, column = self._parts(term.label, name)
            by_table.setdefault((table, term.type or self._type(table, column, term.value)), []).append(column)
        for (table, kind), columns in by_table.items():
            yield replace(term, columns=tuple(columns), table=table, type=kind)

    def _parts(self, label: str, name: str) -> tuple[str, str]:
        """Returns table and column; the table is empty for a column of any."""
        if name.startswith(f"{ANY_TABLE}."):
            return "", name.removeprefix(f"{ANY_TABLE}.")
        of = [t for t in self.columns if name.lower().startswith(f"{t.lower()}.")]
        if of:
            table = max(of, key=len)
            column = name[len(table) + 1 :]
            if self._has(table, column):
                return table, column
        elif not self.columns or any(self._has(table, name) for table in self.columns):
            return "", name
        raise ConfigError(
            f"the searched value {label} names the column {name}, which no table has",
            f"write TABLE.COLUMN, such as {self._example()}, or *.COLUMN for a JSON key or a column that is not listed",
        )

    def _has(self, table: str, column: str) -> bool:
        known = self.columns[table]
        return not known or column.lower() in known or column.split(".")[0].lower() in known

    def _type(self, table: str, column: str, value: str) -> ValueType | None:
        kinds = {self.columns[t].get(column.lower(), "") for t in ([table] if table else self.columns)} - {""}
        kind = next(iter(kinds)) if len(kinds) == 1 else ""
        found = ValueType.DECIMAL if kind.startswith("decimal") else _TYPES.get(kind)
        return found if found is not None and is_of(value, found) else None

    def _example(self) -> str:
        return next((f"{table}.{column}" for table, known in self.columns.items() for column in known), "orders.id")


def table_columns(configured: Mapping[str, Sequence[str]], lakehouse: Place | None) -> TableColumns:
    """Returns the columns of the tables in a pipeline's file (`configured`: table → columns) and in its lakehouse."""
    found: dict[str, dict[str, str]] = {}
    names = {path_segment(table): table for table in configured}
    try:
        for entry, fields in read_logs(lakehouse, _OF_ONE_TABLE) if lakehouse is not None else ():
            of = _OF_ONE_TABLE.fullmatch(entry.name)
            if of is not None:
                columns = found.setdefault(names.get(of[1], of[1]), {})
                columns |= {f.name.lower(): f.kind for f in fields if not f.name.startswith("_")}
    except Unreadable:
        # The scan of the place reports that.
        pass
    for table, declared in configured.items():
        known = found.setdefault(table, {})
        if known:
            known |= {column.lower(): known.get(column.lower(), "") for column in declared}
    return TableColumns(found)


def table_of(name: str, tables: Sequence[str]) -> str | None:
    """Returns the one of `tables` whose rows alone a file holds, by its path: that of a Delta table of the lakehouse,
    or a folder of a topic. Returns an empty text for the file of another table, and None if that isn't known."""
    of = _OF_ONE_TABLE.fullmatch(name)
    if of is not None:
        return next((table for table in tables if path_segment(table) == of[1]), "")
    topic = _OF_ONE_TOPIC.fullmatch(name)
    named = (topic[1] or topic[2]) if topic is not None else ""
    owners = [t for t in tables if named == t or named.endswith(f".{t}")]
    return max(owners, key=len) if owners else None
