"""One table's share of a slice of bronze."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.envelope import CHANGES
from ingest.run.profile import Group


@dataclass(frozen=True)
class TableBatch:
    """A table's share of a slice. `tombstones`: placed null tombstones of this table that say something new.
    `upto`: the slice's last capture batch. `history`: the events before the slice."""

    table: str
    groups: Sequence[Group]
    events: DataFrame
    tombstones: DataFrame | None
    tombstone_count: int
    upto: int
    history: Callable[[], DataFrame]

    @property
    def changed(self) -> Column:
        """Selects the changes of the table."""
        return (F.col("source_table") == self.table) & F.col("op").isin(*CHANGES)

    @property
    def key_changes(self) -> bool:
        """Whether any delete names the key under which its row goes on."""
        return any(group.key_changes for group in self.groups)
