"""How far each log had come in bronze by some batch: kept up to a batch, and read on from there.

A start asks for it (did the log go back? what is the highest position of a table?), and so does the request of an
erasure. Reading all of bronze for it would make both cost by history.
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
from ingest.lakehouse.bronze import Bronze, Offsets
from ingest.lakehouse.history_facts import HistoryFact, HistoryFacts

_KIND = "bronze summary"
_KEPT_EVERY = 500_000
"""Events: so many are read at most by who wants to know where the log stands. To read them takes a hundredth of the
time to merge them."""

Numbers = tuple[Any, ...]
_Place = tuple[str, int, str | None, str | None, int]


@dataclass(frozen=True)
class LogEnd:
    """The highest of what some events hold: those of a table (None: of none) in a topic partition, in one epoch of the
    log of a `server`. `progress`: how far that had been sent, a name and two numbers; None where no event says.
    `position`: of changes; `placed`: of those to which the source gave one; `next_offset`: after all of them."""

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
        """What tells it from others."""
        return self.topic, self.partition, self.table, self.server, self.epoch


class BronzeSummary:
    """Of one bronze."""

    def __init__(
        self,
        bronze: Bronze,
        reader: str,
        history: HistoryFacts | None = None,
        view: object = (),
        keeps: bool = True,
    ) -> None:
        """`history`: where it is kept, if it is. `view`: the settings by which bronze places its events and names
        their tables. `keeps`: what is read here is kept there, which is for who merges: what is kept has to be
        merged."""
        self._bronze = bronze
        self._reader = reader
        self._history = history
        self._keeps = keeps and history is not None
        self._basis = hashlib.sha256(repr((bronze.folder, view)).encode()).hexdigest()[:16]
        self._ends: dict[_Place, LogEnd] = {}
        self._upto = self._kept_upto = 0
        self._passed = 0
        self._asked = False
        self._lock = Lock()

    def log_ends(self, batch: int) -> list[LogEnd]:
        """Returns where the logs had come by the batch."""
        with self._lock:
            self._extend(batch)
            return [*self._ends.values()] if self._upto == batch else self._read(0, batch)

    def record_merged(self, batch: int, events: int) -> None:
        """Takes note that `events` more have been merged, up to the batch. Now and then the summary is kept."""
        self._passed += events
        if self._keeps and self._passed >= _KEPT_EVERY:
            self._passed = 0
            self.log_ends(batch)

    def _extend(self, batch: int) -> None:
        if not self._asked:
            self._asked = True
            known = None if self._history is None else self._history.load(self._reader, _KIND, self._identity())
            if known is not None:
                self._upto = self._kept_upto = known.through_batch
                self._ends = {end.place: end for end in map(_from_json, known.facts["ends"])}
        if batch <= self._upto:
            return
        new = self._read(self._upto, batch)
        for end in new:
            self._ends[end.place] = _higher(self._ends.get(end.place), end)
        self._upto = batch
        if self._history is None or not self._keeps:
            return
        if self._bronze.count_between(self._kept_upto, batch) >= _KEPT_EVERY:
            ends = [astuple(end) for end in self._ends.values()]
            try:
                self._history.store(self._reader, _KIND, self._identity(), HistoryFact(batch, {"ends": ends}))
            except Contended:
                # Another run of the pipeline has kept its own: as good as this one.
                self._history.load(self._reader, _KIND, self._identity())
            self._kept_upto = batch

    def _identity(self) -> str:
        """What the summary is of: this bronze, placed so."""
        return f"{self._basis} {self._bronze.identity}"

    def _read(self, after: int, upto: int) -> list[LogEnd]:
        changed = F.col("op").isin(*CHANGES)
        place = ("topic", "partition", "source_table")
        told = F.col("progress.server").alias("server"), F.col("position.epoch").alias("epoch")
        found = self._bronze.all_between(after, upto).groupBy(*place, *told)
        rows = found.agg(
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
                _plain(row["progress"]),
                _plain(row["position"]),
                _plain(row["placed"]),
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


def _plain(row: Any) -> Numbers | None:
    return None if row is None else tuple(row)


def _from_json(told: Sequence[Any]) -> LogEnd:
    topic, partition, table, server, epoch, progress, position, placed, next_offset = told
    ends = _plain(progress), _plain(position), _plain(placed)
    return LogEnd(topic, partition, table, server, epoch, ends[0], ends[1], ends[2], next_offset)
