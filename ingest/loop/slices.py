"""Bronze in slices: how far each goes, what it holds, and which table each event is for. No image is decoded yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.deliveries import EarlierReaders
from ingest.batches.group_stats import CHANGE, FEW, Group, profiles, together
from ingest.batches.placement import Placed, place, repeating, stand
from ingest.batches.rules import Rules
from ingest.batches.schemas import Schemas
from ingest.batches.table_batch import TableBatch
from ingest.changelog.envelope import BATCH
from ingest.changelog.point import or_unplaced
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.bronze_summary import BronzeSummary, highest_position
from ingest.loop.table_schemas import TableSchemas
from ingest.spark.checkpoints import checkpoint
from ingest.spark.non_foldable import non_foldable

_MOST_BATCHES = 1000
"""Of a slice, however few events they hold."""
_ABOUT = 1.25
"""So much larger than asked for may be a slice whose events have been counted together."""
_READ_AHEAD = 64


@dataclass(frozen=True)
class Slice:
    """The events of the batches after `after`, up to `upto`, by table."""

    after: int
    upto: int
    groups: Sequence[Group]
    events: DataFrame
    tombstones: Placed
    batches: Sequence[TableBatch]


class Slices:
    """Of one pipeline's bronze."""

    def __init__(
        self,
        bronze: Bronze,
        rules: Rules,
        table_schemas: TableSchemas,
        most: int,
        summary: BronzeSummary | None = None,
        elsewhere: EarlierReaders | None = None,
    ) -> None:
        """`most`: about so many events are in one, whole batches of them. `summary`: of bronze, where it is kept.
        `elsewhere`: readers whose events have been merged before."""
        self._bronze = bronze
        self._summary = summary or BronzeSummary(bronze, "")
        self._elsewhere = elsewhere
        self._rules = rules
        self._table_schemas = table_schemas
        self._most = most
        self._profiles: dict[tuple[int, int], list[Group]] = {}
        self.schemas = Schemas(rules.shredded.columns, rules.times_out_of_range, rules.columns_as_stored)

    def end(self, after: int, last: int) -> int:
        """The last batch of the slice after the batch `after`, of those that wait up to `last`."""
        known = next((end for begin, end in self._profiles if begin == after), None)
        if known is not None:
            return known
        end = self._counted(after, last)
        if end is None:
            end = min(after + _MOST_BATCHES, self._bronze.window_end(after, last, self._most))
        while end < last and not self._bronze.count_between(after, end):
            # Batches may be numbered as in another lakehouse, of which not all are here.
            end = min(last, end + _MOST_BATCHES)
        return end

    def _counted(self, after: int, last: int) -> int | None:
        """The end of a slice of which all is known by whoever captured it."""
        groups: list[Group] = []
        end, counted = after, self._bronze.batch_stats()
        while end in counted:
            upto, said = counted[end]
            if not all(map(Group.is_readable, said)):
                break
            count = sum(g.count for g in groups) + sum(g["count"] for g in said)
            if upto > last or (groups and count > self._most * _ABOUT):
                break
            groups += map(Group.heard, said)
            del counted[end]
            end = upto
        if end == after:
            return None
        self._profiles[after, end] = together(groups)
        return end

    def is_full(self, after: int, last: int) -> bool:
        """Whether a slice after the batch `after` would grow no more, were there batches after `last`."""
        return last - after >= _MOST_BATCHES or self._bronze.has_full_window(after, last, self._most)

    def profile(self, after: int, upto: int, last: int) -> list[Group]:
        """Of the slice up to `upto`. Where more slices wait, theirs are read in the same job."""
        wanted = (after, upto)
        if wanted not in self._profiles:
            size = upto - after
            ahead = min(last, after + _READ_AHEAD * size)
            few = self._bronze.count_between(after, ahead) <= FEW
            waiting = self._bronze.between(after, ahead)
            if ahead == upto:
                self._profiles = {}
                return profiles(waiting, F.lit(0), few).get(0, [])
            first = non_foldable(after)
            number = F.floor((F.col(BATCH) - 1 - first) / non_foldable(size))
            found = profiles(waiting, first + number * non_foldable(size), few)
            # A last slice that isn't full yet will be longer when its turn comes.
            whole = (begin for begin in found if begin + size <= ahead)
            self._profiles = {(begin, begin + size): found[begin] for begin in whole}
        return self._profiles.pop(wanted, [])

    def read(self, after: int, upto: int, groups: Sequence[Group], repeated: bool = False) -> Slice:
        """`repeated`: with null tombstones that only repeat the delete before them."""
        events = self._events(after, upto, groups)
        if len({g.table for g in groups}) > 1 and sum(g.count for g in groups) <= FEW:
            events = checkpoint(events)  # Each table reads them all.
        tombstones = self._placed(after, upto, groups, repeated)
        batches = self._batches(after, upto, events, groups, tombstones)
        self.schemas.learn(events, [g for b in batches for g in b.groups if g.kind == CHANGE])
        return Slice(after, upto, groups, events, tombstones, batches)

    def _events(self, after: int, upto: int, groups: Sequence[Group]) -> DataFrame:
        """The events of the slice, each where it stands."""
        if not any(group.may_be_adrift for group in groups):
            return self._bronze.between(after, upto)
        standing = stand(self._bronze.all_between(after, upto), self._before(after))
        chosen = self._bronze.chosen
        return standing if chosen is None else standing.where(or_unplaced(chosen))

    def _placed(self, after: int, upto: int, groups: Sequence[Group], repeated: bool) -> Placed:
        known, chosen = repeating(groups), self._bronze.chosen
        if known is not None and (not known.counts or (chosen is None and not repeated)):
            return known
        whole = self._bronze.all_between(after, upto)
        if any(group.may_be_adrift for group in groups):
            whole = stand(whole, self._before(after))
        return place(whole, self._before(after), self._topics(groups), chosen, repeated)

    def _before(self, after: int) -> Iterator[DataFrame]:
        """Bronze up to the batch `after`: the last batch, then all."""
        if after > 1:
            yield self._bronze.all_between(after - 1, after)
        yield self._bronze.all_between(0, after)

    def _topics(self, groups: Sequence[Group]) -> dict[str, str]:
        """topic → the one table in it, as declared or as seen."""
        here: dict[str, set[str]] = {}
        for group in groups:
            for topic in group.topics:
                if group.table is not None and group.problem is None:
                    here.setdefault(topic, set()).add(group.table)
        seen = {t: next(iter(tables)) for t, tables in here.items() if len(tables) == 1}
        return {**seen, **self._table_schemas.topic_tables(), **self._rules.table_topics}

    def _batches(
        self, after: int, upto: int, events: DataFrame, groups: Sequence[Group], tombstones: Placed
    ) -> list[TableBatch]:
        named = {g.table for g in groups if g.table is not None and g.kind in (CHANGE, "t")}
        named |= {table for table in tombstones.counts if table is not None}
        batches = []
        history = partial(self._bronze.all_between, 0, after)
        for table in sorted(t for t in named if self._rules.takes(t)):
            mine = [g for g in groups if g.table == table and g.kind in (CHANGE, "t")]
            count = tombstones.counts.get(table, (0, 0))[0]
            rest = None
            if tombstones.events is not None and table in tombstones.told:
                rest = tombstones.events.where(F.col("source_table") == table)
            highest = partial(self._highest_before, after, table)
            told = TableBatch(table, mine, events, rest, count, upto, history, highest, elsewhere=self._elsewhere)
            origins = tombstones.origins.get(table, ()) if rest is not None else ()
            batches.append(replace(told, tombstone_origins=origins, after=after))
        return batches

    def _highest_before(self, after: int, table: str) -> tuple[int, ...]:
        return highest_position(self._summary.log_ends(after), table)
