"""One table's share of a slice of bronze."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.batches.deliveries import EarlierReaders
from ingest.batches.group_stats import Group
from ingest.changelog.change import POSITION_COLUMN, SOURCE_TS
from ingest.changelog.envelope import CHANGES, RESYNCED
from ingest.changelog.position import position_literal, right_before_snapshot
from ingest.changelog.resync_record import resync_floor

RESYNCED_AT = "_ingest_resynced_at"


@dataclass(frozen=True)
class TableBatch:
    """A table's share of a slice. `tombstones`: placed null tombstones of this table that bring something new.
    `through_batch`: the slice's last capture batch. `history`: returns the events before the slice. `highest_before`:
    returns the highest position of the table's changes among these; empty where there are none. `suppressed`,
    `quarantined`: numbers of events that are left out of the batch because an erasure suppresses them, or because that
    is undecided."""

    table: str
    groups: Sequence[Group]
    events: DataFrame
    tombstones: DataFrame | None
    tombstone_count: int
    through_batch: int
    history: Callable[[], DataFrame]
    highest_before: Callable[[], tuple[int, ...]]
    suppressed: int = 0
    quarantined: int = 0
    tombstone_origins: tuple[str, ...] = ()
    """Servers and databases of the changes before its null tombstones."""
    has_moving_tombstones: bool = False
    """True if some null tombstone names the key to which its row moves."""
    tombstone_schemas: tuple[str, ...] = ()
    """The texts of the schemas that the keys of its null tombstones are wrapped in."""
    earlier_readers: EarlierReaders | None = None
    """Readers that are merged before the one whose slice this is."""
    after: int = 0
    """The last capture batch before the slice."""
    merged_before: Callable[[], DataFrame] | None = None
    """Returns those of the events before the slice that are merged; None if all are."""
    is_part: bool = False
    """True if the rest of the slice follows in a merge of its own, and this part may be merged again."""
    other_readers: Callable[[], DataFrame | None] = lambda: None
    """Returns the events that other readers of the pipeline have captured; None if there are none."""

    @property
    def changed(self) -> Column:
        """Returns whether an event is a change of the table."""
        return (F.col("source_table") == self.table) & F.col("op").isin(*CHANGES)

    def emptied(self, by_snapshots: bool) -> DataFrame | None:
        """Returns `_position` and `_source_ts` of truncates and, with `by_snapshots`, of snapshots that have ended;
        each removes all older rows. Of resyncs their floor, and in `RESYNCED_AT` their own position as JSON: they
        remove the rows without a change between the two. None where there are none."""
        spark = self.events.sparkSession
        found = []
        if any(group.kind == "t" for group in self.groups):
            truncates = self.events.where((F.col("source_table") == self.table) & (F.col("op") == "t"))
            at = F.col("position").alias(POSITION_COLUMN)
            found.append(truncates.select(at, F.col("source_ts").alias(SOURCE_TS), _not_resynced()))
        if self.is_resynced:
            place, read = resync_floor().alias(POSITION_COLUMN), F.col("source_ts").alias(SOURCE_TS)
            found.append(self._resyncs.select(place, read, F.to_json("position").alias(RESYNCED_AT)))
        for group in self.groups if by_snapshots else ():
            if group.snapshot is not None:
                at = position_literal(right_before_snapshot(group.snapshot)).alias(POSITION_COLUMN)
                read = F.timestamp_millis(F.lit(group.newest)).alias(SOURCE_TS)
                found.append(spark.range(1).select(at, read, _not_resynced()))
        return reduce(DataFrame.unionByName, found) if found else None

    @property
    def is_resynced(self) -> bool:
        """Returns whether some event tells that the table was read again as a whole."""
        return any(group.kind == RESYNCED for group in self.groups)

    def resync_floor(self) -> tuple[int, ...]:
        """Returns the highest floor of the batch's resyncs. There must be one."""
        (found,) = self._resyncs.agg(F.max(resync_floor()).alias("floor")).collect()
        return tuple(found["floor"])

    @property
    def _resyncs(self) -> DataFrame:
        return self.events.where((F.col("source_table") == self.table) & (F.col("op") == RESYNCED))

    @property
    def is_empty(self) -> bool:
        """Returns whether no event is left that concerns a row."""
        whole = any(g.kind in ("t", RESYNCED) or g.snapshot is not None for g in self.groups)
        return not whole and not self.count

    @property
    def count(self) -> int:
        """Returns the number of events that concern a row."""
        return sum(g.count for g in self.groups) + self.tombstone_count

    @property
    def key_changes(self) -> bool:
        """Returns whether some delete or null tombstone names the key to which its row moves."""
        return self.has_moving_tombstones or any(group.key_changes for group in self.groups)


def _not_resynced() -> Column:
    return F.lit(None).cast("string").alias(RESYNCED_AT)
