"""The data files of a Delta table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class DataFile:
    """A live file of a table. `name`: the last part of its path, unique in the table. `size`: bytes."""

    name: str
    size: int
    action: Any
    """Delta's `AddFile`."""

    @cached_property
    def statistics(self) -> Mapping[str, Any]:
        """Returns the file's statistics in the log: `numRecords`, `minValues`, `maxValues`; empty if it has none."""
        stats = self.action.stats()
        return json.loads(stats) if stats else {}

    @cached_property
    def rows(self) -> int:
        """Returns the number of rows, deleted ones included; 0 if it is not known."""
        return int(self.statistics.get("numRecords", 0))

    @cached_property
    def deleted_rows(self) -> int:
        """Returns the number of rows that the file's deletion vector marks."""
        vector = self.action.deletionVector()
        return 0 if vector is None else int(vector.cardinality())

    @cached_property
    def vector_id(self) -> str | None:
        """Returns the unique id of the file's deletion vector; None if it has none."""
        vector = self.action.deletionVector()
        return None if vector is None else str(vector.uniqueId())

    @property
    def live_bytes(self) -> int:
        """Returns the size of the live rows, in proportion to their number."""
        return self.size * (self.rows - self.deleted_rows) // self.rows if self.rows else self.size

    def bounds(self, column: str) -> tuple[Any, Any] | None:
        """Returns the lowest and the highest value of `column`; None if the statistics don't have them."""
        lowest, highest = (self.statistics.get(bound, {}).get(column) for bound in ("minValues", "maxValues"))
        return None if lowest is None or highest is None else (lowest, highest)


@dataclass(frozen=True)
class ReadyFile:
    """A file that lies in its table's folder and is not committed yet. `size`: bytes. `lowest`, `highest`: the ends of
    the columns for which they are known."""

    name: str
    size: int
    rows: int
    lowest: Mapping[str, Any]
    highest: Mapping[str, Any]

    @property
    def statistics(self) -> str:
        """Returns the file's statistics as the log has them."""
        return json.dumps({"numRecords": self.rows, "minValues": dict(self.lowest), "maxValues": dict(self.highest)})


def live_rows(files: Iterable[DataFile]) -> int:
    """Returns the number of rows of `files` without the deleted ones."""
    return sum(f.rows - f.deleted_rows for f in files)


def data_file(action: Any) -> DataFile:
    """Returns the file of a Delta `AddFile`."""
    return DataFile(action.path().rsplit("/", 1)[-1], int(action.size()), action)
