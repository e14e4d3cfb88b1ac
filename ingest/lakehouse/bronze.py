"""Bronze: one append-only Delta table per source, every record as it came, in capture batches.

How far a source has been read stands in bronze itself: in the newest capture's commit (`userMetadata`, key
`offsets`), and, where the log has expired, in the rows. So there is no checkpoint that could be lost, or disagree with
the data, and a start reads one commit, however long the history is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.envelope import BATCH, CAPTURED, CONTROL, ERASED, emptied_event
from ingest.changelog.origin import ORIGIN, TableNaming
from ingest.delta import compaction, delta_table
from ingest.delta.compaction import BackgroundCompaction
from ingest.delta.data_file import DataFile, ReadyFile
from ingest.delta.txn_versions import TxnVersion
from ingest.lakehouse import row_rewrites
from ingest.lakehouse.bronze_view import BronzeView
from ingest.spark.checkpoints import checkpoint_until_unpersisted, unpersist
from ingest.spark.non_foldable import non_foldable

_STATISTICS = ",".join(["batch", "timestamp", "topic", "partition", "offset", "source_table"])
"""Nothing out of a record's key or value, and no more than a reader of some batches or of a table needs."""

Offsets = dict[str, dict[int, int]]
"""topic → partition → next offset to read."""
_TOPIC_IDS = "ingest.topicIds"
_ORIGINS = "ingest.origins"
"""Set where every row has its origin."""
_ROWS_A_TASK = 5000
_LARGE = 4 << 20
"""Bytes of a file that stays as it was captured: of what a stream brings in little by little, few are left."""
_COMPACTED_BYTES, _COMPACTED_ROWS = 16 << 20, 250_000
"""Compaction fills a file up to one of them. An erasure rewrites each file that it touches, so that its cost must not
grow with the history around the events."""
_ROWS_SKIPPED = 100_000
"""Rows of a file in which pages are skipped by their batches."""

_WINDOW_BYTES = 1 << 30

_LOOKED_BACK = 200
"""Commits: among so many newest ones a capture's is looked for. Compactions and erasures commit seldom in between."""

COORDINATES = ["topic", "partition", "offset"]

BatchStats = Sequence[Mapping[str, Any]]
"""What is told of the events of a batch, as JSON has it."""


class EventCounter(Protocol):
    """Counts the events of one batch."""

    def observe(self, batch: Column, position: Column, table: Column) -> Column:
        """`batch`, for each event once: selected beside it, it is counted. `position`: where it stands. `table`: whose
        it is."""

    def groups_json(self) -> BatchStats | None:
        """Of all that have passed by; None where it can't be told."""


@dataclass(frozen=True)
class CaptureState:
    """How far capture has come: the number of its last batch, where each partition goes on, and of which topics."""

    batch: int = 0
    offsets: Offsets = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """topic → what tells it from another one of its name."""


class Bronze:
    """The bronze table of one pipeline."""

    chosen: Column | None = None
    """Which events of a part of bronze are its own."""
    begins_after = 0
    """A merge begins after this batch."""

    def __init__(
        self, spark: SparkSession, path: str, epochs: Sequence[datetime] = (), names: TableNaming | None = None
    ) -> None:
        """`epochs`: when the source's log began anew. `names`: how tables are named."""
        self._view = BronzeView(tuple(epochs), names or TableNaming())
        self._has_origins = False
        self._table = delta_table.Table(spark, path)
        self._compaction = BackgroundCompaction(self._table)
        self._topic_ids: Mapping[str, str] = {}
        self._counted: dict[int, tuple[int, BatchStats]] = {}
        self._at_hand: tuple[int, DataFrame] | None = None

    def record_batch_stats(self, after: int, upto: int, told: BatchStats) -> None:
        """Whoever brought the batches `after` < batch ≤ `upto` knows this of them."""
        self._counted[after] = upto, told

    def batch_stats(self) -> dict[int, tuple[int, BatchStats]]:
        """What is known of some batches: after which one, up to which, and what. Nothing where somebody else has
        written since they came: of events that were erased it would say what they have been."""
        self._forget_changed()
        return self._counted

    def _forget_changed(self) -> None:
        if self._counted and not self._table.is_unchanged():
            self._counted.clear()

    def captured(self) -> CaptureState:
        """Returns how far capture has come: as the newest capture's commit says, or, where the log no longer holds
        that commit, as the rows say."""
        if not self._table.exists():
            return CaptureState()
        self._topic_ids = json.loads(self._table.property(_TOPIC_IDS) or "{}")
        return self._committed() or self._read_from_rows()

    def resume(self) -> CaptureState:
        """Returns what `captured` returns, for the capture that goes on there. What had to be read from the rows is
        written into a commit of its own: the next start reads that commit."""
        if not self._table.exists():
            return CaptureState()
        found = self.captured()
        if found.offsets and self._committed() is None:
            self._table.commit(None, user_metadata=_told(found))
        return found

    def _committed(self) -> CaptureState | None:
        """Returns what the newest commit says that tells of a capture; None where it says less than the files do, or
        does not name offsets."""
        last = self.last_batch()
        newest = next(self._table.commits(_LOOKED_BACK), None)
        if newest is None or newest.user_metadata.get("batch", -1) < last or not newest.user_metadata.get("offsets"):
            return None
        offsets = {
            t: {int(p): int(end) for p, end in ends.items()} for t, ends in newest.user_metadata["offsets"].items()
        }
        return CaptureState(newest.user_metadata["batch"], offsets, self._topic_ids)

    def _read_from_rows(self) -> CaptureState:
        """Reads all of bronze: right even after the log has expired or files were rewritten."""
        ends = (
            self.rows()
            .groupBy("topic", "partition")
            .agg(F.max("offset").alias("last"), F.max(BATCH).alias(BATCH))
            .collect()  # one row per topic partition
        )
        offsets: Offsets = {}
        for row in ends:
            offsets.setdefault(row.topic, {})[row.partition] = row["last"] + 1
        return CaptureState(max((r[BATCH] for r in ends), default=0), offsets, self._topic_ids)

    def topic_ids(self) -> Mapping[str, str]:
        """topic → what tells it from another one of its name, where a reader of Kafka has seen it."""
        known: dict[str, str] = json.loads(self._table.property(_TOPIC_IDS) or "{}") if self._table.exists() else {}
        return known

    def rows(self) -> DataFrame:
        return self._placed(self._table.rows(CAPTURED))

    def between(self, after: int, upto: int) -> DataFrame:
        """The events of the capture batches `after` < batch ≤ `upto`."""
        if not self._table.exists():
            return self.rows()
        if self._at_hand is not None and (after + 1, upto) == (self._at_hand[0], self._at_hand[0]):
            return self._placed(self._at_hand[1]).coalesce(1)
        files = self._files(after, upto)
        rows = self._placed(self._table.rows_in([f for f, _, _ in files]))
        if sum(f.rows for f, _, _ in files) <= _ROWS_A_TASK:
            # In one partition nothing needs a shuffle.
            rows = rows.coalesce(1)
        partly = [f for f, low, high in files if low <= after or high > upto]
        if not partly:
            return rows
        # Parquet skips pages by constants alone, and each constant is code that Spark compiles anew.
        number = F.lit if any(f.rows > _ROWS_SKIPPED for f in partly) else non_foldable
        return rows.where((F.col(BATCH) > number(after)) & (F.col(BATCH) <= number(upto)))

    def all_between(self, after: int, upto: int) -> DataFrame:
        """What `between` gives, and of a part of bronze the events beside its own."""
        return self.between(after, upto)

    def last_batch(self) -> int:
        """Returns the number of the last capture batch that has rows, by the files' statistics; 0 where there is none.
        Of files without statistics the rows are read."""
        if not self._table.exists():
            return 0
        self._table.version()  # Another process may be capturing.
        files = list(self._table.files().values())
        known = [bounds[1] for f in files if (bounds := f.bounds(BATCH)) is not None]
        unknown = [f for f in files if f.bounds(BATCH) is None]
        if unknown:
            row = self._table.rows_in(unknown).agg(F.max(BATCH).alias("last")).first()
            known += [row["last"]] if row is not None and row["last"] is not None else []
        return int(max(known, default=0))

    def window_end(self, after: int, last: int, events: int) -> int:
        """The batch up to which, after `after`, about so many events lie, of those up to `last`; one batch at least,
        and no more than a gigabyte where batches are smaller."""
        waiting = last - after
        share = self._share(after, last, events)
        return last if share <= 1 else after + max(1, round(waiting / share))

    def has_full_window(self, after: int, last: int, events: int) -> bool:
        """Whether what `window_end` counts is there already between these batches."""
        return self._share(after, last, events) >= 1

    def _share(self, after: int, last: int, events: int) -> float:
        """How much of a window they fill; several where above one."""
        files = [f for f, _, _ in self._files(after, last)] if self._table.exists() else []
        return max(sum(f.rows for f in files) / events, sum(f.size for f in files) / _WINDOW_BYTES)

    def count_between(self, after: int, upto: int) -> int:
        """So many events `between` gives at most, as the log says."""
        return sum(f.rows for f, _, _ in self._files(after, upto)) if self._table.exists() else 0

    def _files(self, after: int, upto: int) -> list[tuple[DataFile, int, int]]:
        """The files in which these batches lie, and the lowest and the highest batch of each."""
        bounds = ((f, f.bounds(BATCH) or (after, upto)) for f in self._table.files().values())
        return [(f, low, high) for f, (low, high) in bounds if low <= upto and high > after]

    def _placed(self, rows: DataFrame) -> DataFrame:
        """The rows as the pipeline's file reads them now."""
        return self._view.of(rows, have_origins=not self._lacks_origins())

    def _lacks_origins(self) -> bool:
        """Whether the table is older than origins are kept."""
        if not self._has_origins:
            self._has_origins = not self._table.exists() or self._table.property(_ORIGINS) is not None
        return not self._has_origins

    def compact(self, upto: int) -> bool:
        """Writes small files together, where it is time to: of batches up to `upto`, which nobody reads one by one any
        more. The rows stay what they are, in the order in which they were captured. Whether it was time."""
        if not self._table.exists():
            return False
        bounds = {f.name: f.bounds(BATCH) for f in self._table.files().values() if f.rows < _COMPACTED_ROWS}
        last = {name: batches[1] for name, batches in bounds.items() if batches and batches[1] <= upto}
        merged = (f for f in self._table.files().values() if f.name in last)
        due = compaction.files_due(merged, _LARGE, compaction.FILES_PER_SIZE_UNREAD)
        files = _filling(sorted(due, key=lambda f: last[f.name]))
        return self._compaction.compact(files, lambda due: _laid_out(self._table.rows_in(due), 1))

    def empty(self, erased: DataFrame, within: Sequence[tuple[int, int]] | None = None) -> int:
        """Leaves of the events at `COORDINATES` no more than their place, and which `request` it was. `within`: they
        lie in these batches, `after` < batch ≤ `upto`, where that is known: files of others are not opened. How many
        files were written anew for it."""

        def may_hold(file: DataFile) -> bool:
            batches = file.bounds(BATCH)
            return batches is None or within is None or any(batches[0] <= u and batches[1] > a for a, u in within)

        places, there = erased.select(*COORDINATES, "request"), set(self._table.rows().columns)
        told = {name: value for name, value in emptied_event(F.col("_request")).items() if name in there}
        return row_rewrites.update_rows(self._table, places, COORDINATES, told, _laid_out, may_hold)

    def emptied(self) -> DataFrame:
        """`COORDINATES`, `timestamp` and `request` of the events of which an erasure has left no more than that."""
        marks = F.filter("headers", lambda header: header["key"] == ERASED)
        # By the op first: what holds none such is not opened.
        empty = self.rows().where((F.col("op") == CONTROL) & F.col("key").isNull() & F.col("value").isNull())
        empty = empty.where(F.size(marks) == 1)
        return empty.select(*COORDINATES, "timestamp", F.element_at(marks, 1)["value"].cast("string").alias("request"))

    def append(
        self, events: DataFrame, upto: CaptureState, counting: EventCounter | None = None, at_hand: bool = False
    ) -> None:
        """One commit: the events of batch `upto.batch` and the offsets that follow them. `counting`: counts them on
        their way. `at_hand`: they are few, and about to be read: they stay at hand until the next batch.

        Raises Contended where another capture has written this batch."""
        self._forget_changed()
        batch = non_foldable(upto.batch)
        if counting is not None:
            batch = counting.observe(batch, self._view.position(), self._view.table())
        frame = events.withColumn(BATCH, batch).select(*CAPTURED.names)
        if self._at_hand is not None:
            unpersist(self._at_hand[1])
            self._at_hand = None
        if at_hand:
            # Of many topics each has a few: a file for each core is enough.
            frame = checkpoint_until_unpersisted(frame.coalesce(frame.sparkSession.sparkContext.defaultParallelism))
        self._commit(frame, [], upto)
        told = None if counting is None else counting.groups_json()
        if told is not None:
            self.record_batch_stats(upto.batch - 1, upto.batch, told)
        if at_hand:
            self._at_hand = upto.batch, frame

    def import_files(self, files: Sequence[ReadyFile], upto: CaptureState) -> None:
        """One commit: files that lie in `folder` already, with `CAPTURED` rows of batches up to `upto.batch`, and the
        offsets that follow them.

        Raises Contended where another capture has written the last of these batches."""
        self._commit(None, files, upto)

    @property
    def folder(self) -> str:
        """Where its files lie."""
        return self._table.path

    @property
    def identity(self) -> str:
        """What tells it from another one in the same place, or with other names of tables; empty where it is not there
        yet."""
        names = self._view.names
        table = self._table.identity() if self._table.exists() else ""
        return table if names.is_unqualified or not table else f"{table} {names.parts}"

    def create(self) -> None:
        """Makes it, empty, where it isn't there: Delta makes no table of a folder with files in it."""
        if not self._table.exists():
            self._table.create(CAPTURED, self._properties(json.dumps(dict(self._topic_ids))))

    def _commit(self, frame: DataFrame | None, files: Sequence[ReadyFile], upto: CaptureState) -> None:
        progress = TxnVersion("capture", upto.batch)
        ids = json.dumps(dict(upto.topic_ids))
        if upto.topic_ids != self._topic_ids:
            if self._table.exists():
                self._table.set_property(_TOPIC_IDS, ids)
            self._topic_ids = upto.topic_ids
        columns = CAPTURED if self._lacks_origins() and ORIGIN not in self._table.rows().columns else None
        new = self._properties(ids) if columns is None else {}
        self._table.commit(
            frame, user_metadata=_told(upto), txn_version=progress, properties=new, columns=columns, ready=files
        )

    @staticmethod
    def _properties(ids: str) -> dict[str, str]:
        return {"delta.dataSkippingStatsColumns": _STATISTICS, _TOPIC_IDS: ids, _ORIGINS: "kept"}


def _told(captured: CaptureState) -> dict[str, Any]:
    """Returns what a commit says of how far capture has come."""
    return {"batch": captured.batch, "offsets": captured.offsets}


def _filling(files: Sequence[DataFile]) -> Sequence[DataFile]:
    """Returns the first of `files` that fill one compacted file."""
    for count in range(1, len(files)):
        if (
            sum(f.rows for f in files[:count]) >= _COMPACTED_ROWS
            or sum(f.size for f in files[:count]) >= _COMPACTED_BYTES
        ):
            return files[:count]
    return files


def _laid_out(rows: DataFrame, files: int) -> DataFrame:
    """In the order in which they were captured: a file has few batches."""
    order = [BATCH, *COORDINATES]
    return (rows.repartitionByRange(files, *order) if files > 1 else rows.coalesce(1)).sortWithinPartitions(*order)
