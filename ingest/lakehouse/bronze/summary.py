"""The ends of the source's logs in bronze as of a batch, stored as history facts and extended from there.

A start needs them (has the log gone back? what is the highest position of a table?), and so does an erasure request. If
they had to be read from all of bronze, both would cost more with every day of history.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from threading import Lock
from typing import Any

from pyspark.sql import functions as F

from ingest.changelog.envelope import CHANGES
from ingest.changelog.position import has_source_position
from ingest.errors import Contended
from ingest.lakehouse.bronze.table import Bronze, Offsets
from ingest.lakehouse.history_facts import HistoryFact, HistoryFacts

_KIND = "bronze summary"

Numbers = tuple[Any, ...]
_Place = tuple[str, int, str | None, str | None, int]


@dataclass(frozen=True)
class LogEnd:
    """The highest values of the events of one table (None: no table's) in one topic partition and one epoch of the log
    of `server`. `progress`: how far the log had been sent, a name and two numbers; None if no event tells. `position`:
    of changes. `placed`: of changes to which the source gave a position. `next_offset`: after all of them."""

    topic: str
    partition: int
    table: str | None
    server: str | None
    epoch: int
    progress: Numbers | None
    position: Numbers | None
    placed: Numbers | None
    next_offset: int

    @property
    def place(self) -> _Place:
        """Returns what distinguishes it from other log ends."""
        return self.topic, self.partition, self.table, self.server, self.epoch


class BronzeSummary:
    """The log ends of one bronze."""

    def __init__(
        self,
        bronze: Bronze,
        reader: str,
        history: HistoryFacts | None = None,
        view: object = (),
        stores: bool = True,
    ) -> None:
        """`history`: where the summary is stored, if it is. `view`: the settings by which bronze places its events and
        names their tables. `stores`: the summary is stored when it was extended, which only a merge may do: stored
        batches have to be merged."""
        self._bronze = bronze
        self._reader = reader
        self._history = history
        self._stores = stores and history is not None
        self._basis = hashlib.sha256(repr((bronze.folder, view)).encode()).hexdigest()[:16]
        self._ends: dict[_Place, LogEnd] = {}
        self._through = self._stored_through = 0
        self._merged = 0
        self._is_loaded = False
        self._lock = Lock()

    def log_ends(self, batch: int) -> list[LogEnd]:
        """Returns the log ends as of the batch."""
        with self._lock:
            self._extend(batch)
            return [*self._ends.values()] if self._through == batch else self._read(0, batch)

    def record_merged(self, batch: int, events: int) -> None:
        """Records that `events` more events, up to the batch, are merged. Stores the summary from time to time."""
        self._merged += events
        if self._stores and self._merged >= self._bronze.tuning.events_per_stored_summary:
            self._merged = 0
            self.log_ends(batch)

    def _extend(self, batch: int) -> None:
        if not self._is_loaded:
            self._is_loaded = True
            known = None if self._history is None else self._history.load(self._reader, _KIND, self._identity())
            if known is not None:
                self._through = self._stored_through = known.through_batch
                self._ends = {end.place: end for end in map(_from_json, known.facts["ends"])}
        if batch <= self._through:
            return
        new = self._read(self._through, batch)
        for end in new:
            self._ends[end.place] = _higher(self._ends.get(end.place), end)
        self._through = batch
        if self._history is None or not self._stores:
            return
        unstored = self._bronze.count_between(self._stored_through, batch)
        if unstored >= self._bronze.tuning.events_per_stored_summary:
            ends = [astuple(end) for end in self._ends.values()]
            try:
                self._history.store(self._reader, _KIND, self._identity(), HistoryFact(batch, {"ends": ends}))
            except Contended:
                # Another run of the pipeline has stored its summary, which is as good.
                self._history.load(self._reader, _KIND, self._identity())
            self._stored_through = batch

    def _identity(self) -> str:
        """Returns the basis of the stored facts: this bronze, by these settings."""
        return f"{self._basis} {self._bronze.identity}"

    def _read(self, after: int, through_batch: int) -> list[LogEnd]:
        changed = F.col("op").isin(*CHANGES)
        place = ("topic", "partition", "source_table")
        log = F.col("progress.server").alias("server"), F.col("position.epoch").alias("epoch")
        groups = self._bronze.all_between(after, through_batch).groupBy(*place, *log)
        rows = groups.agg(
            F.max("progress").alias("progress"),
            F.max(F.when(changed, F.col("position"))).alias("position"),
            F.max(F.when(changed & has_source_position(F.col("position")), F.col("position"))).alias("placed"),
            F.max("offset").alias("last"),
        ).collect()  # a row per topic partition and table
        return [
            LogEnd(
                row["topic"],
                row["partition"],
                row["source_table"],
                row["server"],
                row["epoch"],
                _numbers(row["progress"]),
                _numbers(row["position"]),
                _numbers(row["placed"]),
                row["last"] + 1,
            )
            for row in rows
        ]


def offsets_of(ends: Iterable[LogEnd]) -> Offsets:
    """Returns topic → partition → the offset after the last event."""
    found: Offsets = {}
    for end in ends:
        partitions = found.setdefault(end.topic, {})
        partitions[end.partition] = max(end.next_offset, partitions.get(end.partition, 0))
    return found


def highest_position(ends: Iterable[LogEnd], table: str) -> Numbers:
    """Returns the highest position of a table's changes; empty where it has none."""
    return max((end.position for end in ends if end.table == table and end.position is not None), default=())


def _higher(known: LogEnd | None, end: LogEnd) -> LogEnd:
    if known is None:
        return end
    return LogEnd(
        *end.place,
        _highest(known.progress, end.progress),
        _highest(known.position, end.position),
        _highest(known.placed, end.placed),
        max(known.next_offset, end.next_offset),
    )


def _highest(one: Numbers | None, other: Numbers | None) -> Numbers | None:
    return max((numbers for numbers in (one, other) if numbers is not None), default=None)


def _numbers(row: Any) -> Numbers | None:
    return None if row is None else tuple(row)


def _from_json(values: Sequence[Any]) -> LogEnd:
    topic, partition, table, server, epoch, progress, position, placed, next_offset = values
    ends = _numbers(progress), _numbers(position), _numbers(placed)
    return LogEnd(topic, partition, table, server, epoch, ends[0], ends[1], ends[2], next_offset)
