"""A live file of a Delta table, as the table's log tells of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class DataFile:
    """A live file. `name`: the last part of its path, its own in the table. `size`: bytes."""

    name: str
    size: int
    action: Any
    """Delta's own AddFile."""

    @cached_property
    def statistics(self) -> Mapping[str, Any]:
        """As they stand in the log: `numRecords`, `minValues`, `maxValues`; empty where there are none."""
        said = self.action.stats()
        return json.loads(said) if said else {}

    @cached_property
    def rows(self) -> int:
        """Those that are gone among them; 0 where nothing is known."""
        return int(self.statistics.get("numRecords", 0))

    @cached_property
    def rows_gone(self) -> int:
        """How many of its rows are marked as gone."""
        vector = self.action.deletionVector()
        return 0 if vector is None else int(vector.cardinality())

    @cached_property
    def vector(self) -> str | None:
        """Which of its rows are marked as gone: what tells one marking from another."""
        vector = self.action.deletionVector()
        return None if vector is None else str(vector.uniqueId())

    @property
    def live_bytes(self) -> int:
        """About so many bytes are left of it."""
        return self.size * (self.rows - self.rows_gone) // self.rows if self.rows else self.size

    def bounds(self, column: str) -> tuple[Any, Any] | None:
        """The lowest and the highest value of `column`; None where they are not known."""
        lowest, highest = (self.statistics.get(bound, {}).get(column) for bound in ("minValues", "maxValues"))
        return None if lowest is None or highest is None else (lowest, highest)


@dataclass(frozen=True)
class ReadyFile:
    """A file that lies in its table's folder and is to become one of its own. `size`: bytes. `lowest`, `highest`:
    values of columns, of any that are known."""

    name: str
    size: int
    rows: int
    lowest: Mapping[str, Any]
    highest: Mapping[str, Any]

    @property
    def statistics(self) -> str:
        """As they stand in a log."""
        return json.dumps({"numRecords": self.rows, "minValues": dict(self.lowest), "maxValues": dict(self.highest)})


def live_rows(files: Iterable[DataFile]) -> int:
    """How many rows are left in them."""
    return sum(f.rows - f.rows_gone for f in files)


def data_file(action: Any) -> DataFile:
    """Of Delta's own `AddFile`."""
    return DataFile(action.path().rsplit("/", 1)[-1], int(action.size()), action)
