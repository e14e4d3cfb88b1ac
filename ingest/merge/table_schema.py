"""The key and columns of a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ingest.changelog.change import POSITION_COLUMN
from ingest.evolution.policies import TableColumn
from ingest.values.types import LogicalType

KeyTypes = tuple[tuple[str, tuple[LogicalType, ...], str], ...]
"""Key columns whose type or name has changed, each with all of its types, the present one last, and with its first
name."""


@dataclass(frozen=True)
class TableSchema:
    """A table's name, key columns and columns. `key`: empty for a table of which every create is a row of its own.
    `revision`: of the catalog's entry; 0 if it has none."""

    table: str
    key: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    revision: int = field(default=0, compare=False)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [c.name for c in self.columns]

    @cached_property
    def key_types(self) -> KeyTypes:
        """The columns whose types or names have changed since they are hashed in tombstones."""
        changed = (c for c in self.columns if c.hashed_as or c.hashed_name)
        return tuple((c.name, (*c.hashed_as, c.type), c.hashed_name or c.name) for c in changed)

    @property
    def identity(self) -> tuple[str, ...]:
        """The names of the columns that identify a row: the key, or `_position` without one."""
        return self.key or (POSITION_COLUMN,)
