"""Subjects: the tables whose rows are subjects, and the foreign keys by which rows of other tables lead to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from ingest.config import TableSettings
from ingest.errors import ConfigError


@dataclass(frozen=True)
class Subjects:
    """`roots`: kind of subject → its table. `keys`: these tables → key column. `links`: table → foreign key column →
    referenced table; the references have no cycles."""

    roots: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def tables(self) -> list[str]:
        """Returns every table whose rows lead to subjects, referenced tables first."""
        graph = {table: set(links.values()) for table, links in self.links.items()}
        for root in self.roots.values():
            graph.setdefault(root, set())
        return list(TopologicalSorter(graph).static_order())

    def has_subject(self, table: str) -> bool:
        """Returns True if rows of `table` are or lead to subjects."""
        return table in self.links or table in self.keys

    def is_parent(self, table: str) -> bool:
        """Returns True if rows of other tables lead to their subject through `table`."""
        return any(table in links.values() for links in self.links.values())

    def root_table(self, kind: str) -> str:
        """Returns the table of a kind of subject. Raises ConfigError if there is none."""
        if kind not in self.roots:
            known = ", ".join(sorted(self.roots)) or "none: give a table subject: {of: …, key: …}"
            raise ConfigError(f"no table has subjects of the kind {kind!r}", f"kinds in the pipeline's file: {known}")
        return self.roots[kind]

    def require_columns(self, table: str, key: Sequence[str], columns: Sequence[str]) -> None:
        """Raises ConfigError if the table's key or columns contradict the pipeline's `subject` settings."""
        if table in self.keys and tuple(key) != (self.keys[table],):
            raise ConfigError(
                f"the key of table {table} is ({', '.join(key)}), its subjects are identified by {self.keys[table]}",
                f"correct tables.{table}.subject.key",
            )
        if self.is_parent(table) and len(key) != 1:
            raise ConfigError(
                f"rows of other tables lead through {table}, whose key has {len(key)} columns",
                "let them lead through a table whose key is one column",
            )
        absent = sorted(set(self.links.get(table, ())) - set(columns))
        if absent:
            raise ConfigError(f"table {table} has no column {absent[0]!r}", f"correct tables.{table}.subject.through")


def subjects_of(tables: Mapping[str, TableSettings]) -> Subjects:
    """Returns the subjects that the tables' settings declare."""
    declared = {table: settings.subject for table, settings in tables.items() if settings.subject is not None}
    return Subjects(
        roots={subject.of: table for table, subject in declared.items() if subject.of is not None},
        keys={table: subject.key for table, subject in declared.items() if subject.key is not None},
        links={table: dict(subject.through) for table, subject in declared.items() if subject.through is not None},
    )
