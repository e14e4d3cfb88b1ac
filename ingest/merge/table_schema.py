"""The key and columns of a table."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.changelog.change import POSITION_COLUMN
from ingest.evolution.policies import TableColumn


@dataclass(frozen=True)
class TableSchema:
    """A table's name, key columns and columns. `key`: empty for a table of which every create is a row of its own."""

    table: str
    key: tuple[str, ...]
    columns: tuple[TableColumn, ...]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [c.name for c in self.columns]

    @property
    def identity(self) -> tuple[str, ...]:
        """The names of the columns that identify a row: the key, or `_position` without one."""
        return self.key or (POSITION_COLUMN,)
