"""Divides bronze into slices, and each slice into batches by table. No image is decoded here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.deliveries import EarlierReaders
from ingest.batches.group_stats import CHANGE, TABLE_KINDS, Group, groups_by_slice, merged_groups
from ingest.batches.placement import PlacedTombstones, place_tombstones, position_snapshot_reads, repeated_deletes
from ingest.batches.rules import Rules
from ingest.batches.schemas import Schemas
from ingest.batches.table_batch import TableBatch
from ingest.changelog.envelope import BATCH
from ingest.changelog.point import or_unplaced
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.bronze.summary import BronzeSummary, highest_position
from ingest.loop.table_schemas import TableSchemas
from ingest.spark.checkpoints import checkpoint

_MOST_BATCHES = 1000
"""Most batches in a slice, however few events they hold."""
_OVERSIZE = 1.25
"""A slice of batches with known statistics may exceed the wanted number of events by this factor."""
_READ_AHEAD = 64


@dataclass(frozen=True)
class Slice:
    """The events of the batches after `after`, through `through_batch`, by table."""

    after: int
    through_batch: int
    groups: Sequence[Group]
    events: DataFrame
    tombstones: PlacedTombstones
    batches: Sequence[TableBatch]


class Slices:
    """The slices of one pipeline's bronze."""

    def __init__(
        self,
        bronze: Bronze,
        rules: Rules,
        table_schemas: TableSchemas,
        slice_events: int,
        summary: BronzeSummary | None = None,
        earlier_readers: EarlierReaders | None = None,
        other_readers: Callable[[], DataFrame | None] = lambda: None,
    ) -> None:
        """`slice_events`: about the number of events in a slice; it holds whole batches. `summary`: of bronze, where
        one is kept. `earlier_readers`: readers that are merged before this one. `other_readers`: as of `TableBatch`."""
        self._bronze = bronze
        self._summary = summary or BronzeSummary(bronze, "")
        self._earlier_readers = earlier_readers
        self._other_readers = other_readers
        self._rules = rules
        self._table_schemas = table_schemas
        self._slice_events = slice_events
        self._group_stats: dict[tuple[int, int], list[Group]] = {}
        self.schemas = Schemas(
            rules.shredded.columns, rules.times_out_of_range, rules.columns_as_stored, rules.limits.nesting_depth
        )

    def end(self, after: int, last: int) -> int:
        """Returns the last batch of the slice after the batch `after`; at most `last`."""
        known = next((end for begin, end in self._group_stats if begin == after), None)
        if known is not None:
            return known
        end = self._counted_end(after, last)
        if end is None:
            end = min(after + _MOST_BATCHES, self._bronze.window_end(after, last, self._slice_events))
        while end < last and not self._bronze.count_between(after, end):
            # Imported batches keep their numbers, so some numbers have no events here.
            end = min(last, end + _MOST_BATCHES)
        return end

    def _counted_end(self, after: int, last: int) -> int | None:
        """Returns the end of a slice whose statistics its capture has recorded in this process; None where the next
        batch has none."""
        groups: list[Group] = []
        end, counted = after, self._bronze.batch_stats()
        while end in counted:
            through_batch, groups_json = counted[end]
            if not all(map(Group.is_readable, groups_json)):
                break
            count = sum(g.count for g in groups) + sum(g["count"] for g in groups_json)
            if through_batch > last or (groups and count > self._slice_events * _OVERSIZE):
                break
            groups += map(Group.from_json, groups_json)
            del counted[end]
            end = through_batch
        if end == after:
            return None
        self._group_stats[after, end] = merged_groups(groups)
        return end

    def is_full(self, after: int, last: int) -> bool:
        """Returns whether a slice after the batch `after` would not grow if there were batches after `last`."""
        return last - after >= _MOST_BATCHES or self._bronze.has_full_window(after, last, self._slice_events)

    def group_stats(self, after: int, through_batch: int, last: int) -> list[Group]:
        """Returns the groups of the slice through `through_batch`. Where more slices wait, theirs are read in the same
        job."""
        wanted = (after, through_batch)
        if wanted not in self._group_stats:
            size = through_batch - after
            ahead = min(last, after + _READ_AHEAD * size)
            is_small = self._bronze.count_between(after, ahead) <= self._rules.tuning.small_slice_events
            waiting = self._bronze.between(after, ahead)
            if ahead == through_batch:
                self._group_stats = {}
                return groups_by_slice(waiting, F.lit(0), is_small).get(0, [])
            number = F.floor((F.col(BATCH) - 1 - after) / size)
            found = groups_by_slice(waiting, after + number * size, is_small)
            # The last slice is left out if it isn't full: it will be longer when its turn comes.
            whole = (begin for begin in found if begin + size <= ahead)
            self._group_stats = {(begin, begin + size): found[begin] for begin in whole}
        return self._group_stats.pop(wanted, [])

    def read(self, after: int, through_batch: int, groups: Sequence[Group], repeated: bool = False) -> Slice:
        """Returns the slice. `repeated`: with null tombstones that only repeat the delete before them."""
        events = self._events(after, through_batch, groups)
        is_small = sum(g.count for g in groups) <= self._rules.tuning.small_slice_events
        if is_small and len({g.table for g in groups}) > 1:
            events = checkpoint(events)  # Every table's batch reads all of them.
        tombstones = self._null_tombstones(after, through_batch, groups, repeated)
        batches = self._batches(after, through_batch, events, groups, tombstones)
        self.schemas.learn(events, [g for b in batches for g in b.groups if g.kind == CHANGE])
        return Slice(after, through_batch, groups, events, tombstones, batches)

    def _events(self, after: int, through_batch: int, groups: Sequence[Group]) -> DataFrame:
        """Returns the events of the slice, each with its position."""
        if not any(group.may_have_unplaced_reads for group in groups):
            return self._bronze.between(after, through_batch)
        positioned = position_snapshot_reads(self._bronze.all_between(after, through_batch), self._before(after))
        chosen = self._bronze.chosen
        return positioned if chosen is None else positioned.where(or_unplaced(chosen))

    def _null_tombstones(
        self, after: int, through_batch: int, groups: Sequence[Group], repeated: bool
    ) -> PlacedTombstones:
        known, chosen = repeated_deletes(groups), self._bronze.chosen
        if known is not None and (not known.counts or (chosen is None and not repeated)):
            return known
        whole = self._bronze.all_between(after, through_batch)
        if any(group.may_have_unplaced_reads for group in groups):
            whole = position_snapshot_reads(whole, self._before(after))
        return place_tombstones(whole, self._before(after), self._topics(groups), chosen, repeated)

    def _before(self, after: int) -> Iterator[DataFrame]:
        """Yields bronze up to the batch `after`: first its last batch, then all."""
        if after > 1:
            yield self._bronze.all_between(after - 1, after)
        yield self._bronze.all_between(0, after)

    def _topics(self, groups: Sequence[Group]) -> dict[str, str]:
        """Returns topic → its only table, as declared or as seen."""
        tables_of: dict[str, set[str]] = {}
        for group in groups:
            for topic in group.topics:
                if group.table is not None and group.problem is None:
                    tables_of.setdefault(topic, set()).add(group.table)
        seen = {t: next(iter(tables)) for t, tables in tables_of.items() if len(tables) == 1}
        return {**seen, **self._table_schemas.topic_tables(), **self._rules.table_topics}

    def _batches(
        self, after: int, through_batch: int, events: DataFrame, groups: Sequence[Group], tombstones: PlacedTombstones
    ) -> list[TableBatch]:
        tables = {g.table for g in groups if g.table is not None and g.kind in TABLE_KINDS}
        tables |= {table for table in tombstones.counts if table is not None}
        batches = []
        history, merged_before = (partial(read, 0, after) for read in (self._bronze.all_between, self._bronze.between))
        for table in sorted(t for t in tables if self._rules.takes(t)):
            own_groups = [g for g in groups if g.table == table and g.kind in TABLE_KINDS]
            count = tombstones.counts.get(table, (0, 0))[0]
            null_tombstones = None
            if tombstones.events is not None and table in tombstones.tables:
                null_tombstones = tombstones.events.where(F.col("source_table") == table)
            highest = partial(self._highest_before, after, table)
            batch = TableBatch(
                table,
                own_groups,
                events,
                null_tombstones,
                count,
                through_batch,
                history,
                highest,
                earlier_readers=self._earlier_readers,
                other_readers=self._other_readers,
            )
            if null_tombstones is not None:
                origins, schemas = (of.get(table, ()) for of in (tombstones.origins, tombstones.key_schemas))
                moves = table in tombstones.moving
                batch = replace(
                    batch, tombstone_origins=origins, tombstone_schemas=schemas, has_moving_tombstones=moves
                )
            batches.append(replace(batch, after=after, merged_before=merged_before))
        return batches

    def _highest_before(self, after: int, table: str) -> tuple[int, ...]:
        return highest_position(self._summary.log_ends(after), table)
