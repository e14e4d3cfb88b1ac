"""Merge: a slice of bronze into the silver tables it touches, and the accounts of what became of each event."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.accounting import Account, by_table
from ingest.changelog.envelope import CONTROL, NO_SEQUENCE, NOT_JSON, TOMBSTONE, UNKNOWN_OP
from ingest.cut import released
from ingest.names import Lakehouse
from ingest.run.placement import Placed, place
from ingest.run.profile import CHANGE, Group, profiles
from ingest.run.restarts import Restarts
from ingest.run.rules import Rules
from ingest.run.schemas import Schemas
from ingest.run.table_batch import TableBatch
from ingest.run.table_merge import TableMerge
from ingest.tables.accounts import Accounts
from ingest.tables.bronze import BATCH, Bronze
from ingest.tables.quarantine import Quarantine

NO_TABLE = ""
"""Under which heartbeats, transaction boundaries and the like are accounted for."""

_REASONS = {
    NOT_JSON: "the value is no JSON object of a change event",
    UNKNOWN_OP: "the event has no op that is known (c, u, d, r, t, m)",
    NO_SEQUENCE: "neither image holds a whole number in the column that orders the table",
}
_TABLES_AT_ONCE = 4
_MOST_BATCHES = 1000
"""Of a slice, however few events they hold."""
_READ_AHEAD = 64
_FEW = 5000
"""Events whose positions are compared one after the other while they are counted."""


class Merge:
    """Folds bronze into silver, slice by slice. The accounts say how far it came: a slice that was cut off in the
    middle is merged again as a whole, which changes nothing that is there already."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: str,
        lakehouse: Lakehouse,
        rules: Rules,
        bronze: Bronze,
        slice_events: int = 500_000,
    ) -> None:
        """`slice_events`: about so many are merged at once where more wait, whole batches of them."""
        self._bronze = bronze
        self._rules = rules
        self._most = slice_events
        self._quarantine = Quarantine(spark, lakehouse.quarantine, pipeline)
        self._accounts = Accounts(spark, lakehouse.accounts, pipeline)
        self.tables = TableMerge(spark, pipeline, lakehouse, rules, self._quarantine)
        self._schemas = Schemas()
        self._profiles: dict[tuple[int, int], list[Group]] = {}
        # Kept: each of its threads has a connection to the JVM.
        self._side_by_side = ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="merge")
        self._asked = False
        self._restarts = Restarts(spark, bronze, rules.stops_at_restart)
        self.merged = self._accounts.merged_upto()
        self.newest: datetime | None = None
        """When the newest change that this run has merged was made at its source."""

    def step(self, captured: int | None = None) -> list[Account]:
        """One slice. `captured`: the last batch in bronze, where the caller knows. Empty: nothing was new."""
        last = self._last_batch() if captured is None else captured
        if last <= self.merged:
            return []
        begun = None if self._asked else self.tables.begun(self.merged)
        self._asked = True
        # What a run that died had begun is merged again as a whole.
        upto = self._slice_end(last) if begun is None else begun
        groups = self._profile(upto, last)
        self._restarts.check(self.merged, upto, groups)
        with released():
            accounts = self._slice_accounts(upto, groups)
        self._accounts.add(self.merged, upto, accounts)
        self.merged = upto
        self._bronze.fold(upto)
        times = [datetime.fromtimestamp(g.newest / 1000, UTC) for g in groups if g.newest is not None]
        self.newest = max([*times, *([self.newest] if self.newest else [])], default=None)
        # Py4j's objects are in cycles: until Python looks for these, the JVM keeps all rows and plans of the slice.
        gc.collect()
        return accounts

    def _slice_end(self, last: int) -> int:
        """The last batch of the next slice, of those that wait up to `last`."""
        known = next((end for begin, end in self._profiles if begin == self.merged), None)
        if known is not None:
            return known
        waiting = last - self.merged
        events = self._bronze.count_upto(self.merged, last)
        return self.merged + min(waiting, _MOST_BATCHES, max(1, waiting * self._most // max(events, 1)))

    def _profile(self, upto: int, last: int) -> list[Group]:
        """Of the slice up to `upto`. Where more slices wait, theirs are read in the same job."""
        wanted = (self.merged, upto)
        if wanted not in self._profiles:
            size = upto - self.merged
            ahead = min(last, self.merged + _READ_AHEAD * size)
            number = F.floor((F.col(BATCH) - 1 - self.merged) / size)
            few = self._bronze.count_upto(self.merged, ahead) <= _FEW
            found = profiles(self._bronze.between(self.merged, ahead), self.merged + number * size, few)
            # A last slice that isn't full yet will be longer when its turn comes.
            whole = (begin for begin in found if begin + size <= ahead)
            self._profiles = {(begin, begin + size): found[begin] for begin in whole}
        return self._profiles.pop(wanted, [])

    def _last_batch(self) -> int:
        row = self._bronze.rows().agg(F.max(BATCH).alias("last")).first()
        return int(row["last"] or 0) if row else 0

    def _slice_accounts(self, upto: int, groups: Sequence[Group]) -> list[Account]:
        events = self._bronze.between(self.merged, upto)
        tombstones = Placed(None, {})
        if any(g.kind == TOMBSTONE for g in groups):
            tombstones = place(events, self._bronze.between(0, self.merged), self._topics(groups))
        accounts = self._without_table(events, groups, tombstones)
        batches = self._batches(upto, events, groups, tombstones)
        self._schemas.learn(events, [g for b in batches for g in b.groups if g.kind == CHANGE])
        accounts += self._side_by_side.map(lambda batch: self.tables.merge(batch, self._schemas), batches)
        return by_table(accounts)

    def _topics(self, groups: Sequence[Group]) -> dict[str, str]:
        """topic → the one table in it, as declared or as seen."""
        here: dict[str, set[str]] = {}
        for group in groups:
            for topic in group.topics:
                if group.table is not None and group.problem is None:
                    here.setdefault(topic, set()).add(group.table)
        seen = {t: next(iter(tables)) for t, tables in here.items() if len(tables) == 1}
        return {**seen, **self.tables.topic_tables(), **self._rules.table_topics}

    def _batches(self, upto: int, events: DataFrame, groups: Sequence[Group], tombstones: Placed) -> list[TableBatch]:
        named = {g.table for g in groups if g.table is not None and g.kind in (CHANGE, "t")}
        named |= {table for table in tombstones.counts if table is not None}
        batches = []
        history = partial(self._bronze.between, 0, self.merged)
        for table in sorted(t for t in named if self._rules.takes(t)):
            mine = [g for g in groups if g.table == table and g.kind in (CHANGE, "t")]
            count, repeated = tombstones.counts.get(table, (0, 0))
            rest = None
            if tombstones.events is not None and count > repeated:
                rest = tombstones.events.where(F.col("source_table") == table)
            batches.append(TableBatch(table, mine, events, rest, count, upto, history))
        return batches

    def _without_table(self, events: DataFrame, groups: Sequence[Group], tombstones: Placed) -> list[Account]:
        """What no table takes: control records, messages, tables that are left out; and what can't be read."""
        accounts = []
        for group in groups:
            table = group.table or NO_TABLE
            if group.problem is not None:
                accounts.append(Account(table, group.count, quarantined=group.count))
            elif group.kind in (CONTROL, "m") or not (group.table is None or self._rules.takes(group.table)):
                accounts.append(Account(table, group.count, suppressed=group.count))
        for name, (count, _) in tombstones.counts.items():
            if name is None or not self._rules.takes(name):
                accounts.append(Account(name or NO_TABLE, count, suppressed=count))
        if any(g.problem is not None for g in groups):
            self._set_aside(events.where(F.col("problem").isNotNull()))
        return accounts

    def _set_aside(self, unreadable: DataFrame) -> None:
        pairs = [F.lit(text) for pair in _REASONS.items() for text in pair]
        reason = F.element_at(F.create_map(*pairs), F.col("problem"))
        named = unreadable.withColumn("table", F.col("source_table"))
        self._quarantine.add(named.withColumn("code", F.col("problem")).withColumn("reason", reason))
