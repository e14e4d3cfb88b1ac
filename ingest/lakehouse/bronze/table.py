"""Bronze: one append-only Delta table per source with every record as it came, in capture batches.

A record of another form is stored as Debezium's event (`changelog.forms`). The offsets up to which the source has been
read are in bronze itself: in the newest capture's commit (`userMetadata`, key `offsets`) and, if the log no longer has
that commit, in the rows. So no separate checkpoint can get lost or contradict the data, and a start reads one commit,
however long the history is.
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
from ingest.delta import compaction
from ingest.delta.data_file import DataFile, ReadyFile
from ingest.delta.txn_versions import TxnVersion
from ingest.lakehouse import row_rewrites
from ingest.lakehouse.bronze.batches import ORIGINS, BatchStats, BronzeBatches
from ingest.tuning import DEFAULT_TUNING, Tuning

_STATISTICS = ",".join(["batch", "timestamp", "topic", "partition", "offset", "source_table"])
"""Columns with statistics in the log: those by which batches and tables are looked up, and nothing of a key or a
value."""

Offsets = dict[str, dict[int, int]]
"""topic → partition → next offset to read."""
_TOPIC_IDS = "ingest.topicIds"
_LARGE = 4 << 20
"""Bytes from which a captured file is not compacted: of what a stream captures little by little, few are as large."""
_LOOKED_BACK = 200
"""Newest commits among which a capture's is searched. Few compactions and erasures commit in between."""

COORDINATES = ["topic", "partition", "offset"]


class EventCounter(Protocol):
    """Counts the events of one batch while they are written."""

    def observe(self, batch: Column, position: Column, table: Column) -> Column:
        """Returns the column `batch`, whose evaluation counts an event. `position`, `table`: of the event."""

    def groups_json(self) -> BatchStats | None:
        """Returns the statistics of all counted events; None if they are not complete."""


@dataclass(frozen=True)
class CaptureState:
    """How far a source has been captured. `batch`: the last batch. `offsets`: the next ones to read. `topic_ids`:
    topic → Kafka's id, which distinguishes it from another topic of its name."""

    batch: int = 0
    offsets: Offsets = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)


class Bronze(BronzeBatches):
    """The bronze table of one pipeline."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        epochs: Sequence[datetime] = (),
        names: TableNaming | None = None,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        """`epochs`: the times at which the source's log began anew. `names`: how tables are named."""
        super().__init__(spark, path, epochs, names, tuning)
        self._topic_ids: Mapping[str, str] = {}

    @property
    def is_part(self) -> bool:
        """Returns True if these are some of the events of a bronze table."""
        return False

    def captured(self) -> CaptureState:
        """Returns how far the source has been captured, from the newest capture's commit or, if the log no longer has
        it, from the rows."""
        if not self._table.exists():
            return CaptureState()
        self._topic_ids = json.loads(self._table.property(_TOPIC_IDS) or "{}")
        return self._committed() or self._read_from_rows()

    def resume(self) -> CaptureState:
        """Returns what `captured` does, for the capture that continues there. What had to be read from the rows is
        written into a commit of its own, which the next start reads."""
        if not self._table.exists():
            return CaptureState()
        found = self.captured()
        if found.offsets and self._committed() is None:
            self._table.commit(None, user_metadata=_user_metadata(found))
        return found

    def _committed(self) -> CaptureState | None:
        """Returns the state in the newest commit that has user metadata; None if it is older than the files, or has no
        offsets."""
        last = self.last_batch()
        newest = next(self._table.commits(_LOOKED_BACK), None)
        metadata = {} if newest is None else newest.user_metadata
        if metadata.get("batch", -1) < last or not metadata.get("offsets"):
            return None
        offsets = {t: {int(p): int(end) for p, end in ends.items()} for t, ends in metadata["offsets"].items()}
        return CaptureState(metadata["batch"], offsets, self._topic_ids)

    def _read_from_rows(self) -> CaptureState:
        """Reads all of bronze: correct even if the log has expired or files were rewritten."""
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
        """Returns topic → Kafka's id, of the topics that were read from Kafka."""
        known: dict[str, str] = json.loads(self._table.property(_TOPIC_IDS) or "{}") if self._table.exists() else {}
        return known

    def compact(self, through_batch: int) -> bool:
        """Compacts small files of batches up to `through_batch`, which are merged, if that is due. The rows stay what
        they are, in the order of their capture. Returns True if it was due."""
        if not self._table.exists():
            return False
        tuning = self.tuning
        open_files = (f for f in self._table.files().values() if f.rows < tuning.bronze_file_rows)
        bounds = ((f, f.bounds(BATCH)) for f in open_files)
        last = {f.name: batches[1] for f, batches in bounds if batches and batches[1] <= through_batch}
        due = compaction.files_due(self._table.files_named(last), _LARGE, tuning.append_only_files_per_size)
        files = _filling(sorted(due, key=lambda f: last[f.name]), tuning)
        return compaction.compact(self._table, files, lambda due: _laid_out(self._table.rows_in(due), 1))

    def empty(self, erased: DataFrame, within: Sequence[tuple[int, int]] | None = None) -> int:
        """Empties events: leaves their coordinates and a mark with the erasure's request. `erased`: `COORDINATES` and
        `request`. `within`: ranges of batches, `after` < batch ≤ `through_batch`, that hold them, if known: files of
        other batches are not opened. Returns the number of rewritten files."""

        def may_hold(file: DataFile) -> bool:
            batches = file.bounds(BATCH)
            return batches is None or within is None or any(batches[0] <= u and batches[1] > a for a, u in within)

        places, columns = erased.select(*COORDINATES, "request"), set(self._table.rows().columns)
        values = {name: value for name, value in emptied_event(F.col("_request")).items() if name in columns}
        return row_rewrites.update_rows(self._table, places, COORDINATES, values, _laid_out, may_hold)

    def emptied(self) -> DataFrame:
        """Returns `COORDINATES`, `timestamp` and `request` of the emptied events."""
        marks = F.filter("headers", lambda header: header["key"] == ERASED)
        # The op comes first: its statistics exclude most files.
        empty = self.rows().where((F.col("op") == CONTROL) & F.col("key").isNull() & F.col("value").isNull())
        empty = empty.where(F.size(marks) == 1)
        return empty.select(*COORDINATES, "timestamp", F.element_at(marks, 1)["value"].cast("string").alias("request"))

    def append(self, events: DataFrame, state: CaptureState, counter: EventCounter | None = None) -> None:
        """Appends the events of the batch `state.batch`, in one commit with `state`. `counter`: counts them while they
        are written.

        Raises Contended if another capture has written this batch."""
        self._drop_outdated_stats()
        batch = F.lit(state.batch).cast("bigint")
        if counter is not None:
            batch = counter.observe(batch, self._view.position(), self._view.table())
        self._commit(events.withColumn(BATCH, batch).select(*CAPTURED.names), [], state)
        stats = None if counter is None else counter.groups_json()
        if stats is not None:
            self.record_batch_stats(state.batch - 1, state.batch, stats)

    def import_files(self, files: Sequence[ReadyFile], state: CaptureState) -> None:
        """Adds files that lie in `folder` already, with `CAPTURED` rows of batches up to `state.batch`, in one commit
        with `state`.

        Raises Contended if another capture has written the last of these batches."""
        self._commit(None, files, state)

    def create(self) -> None:
        """Creates the table, empty, if it does not exist: Delta creates no table in a folder that has files."""
        if not self._table.exists():
            self._table.create(CAPTURED, self._properties(json.dumps(dict(self._topic_ids))))

    def _commit(self, frame: DataFrame | None, files: Sequence[ReadyFile], state: CaptureState) -> None:
        ids = json.dumps(dict(state.topic_ids))
        if state.topic_ids != self._topic_ids:
            if self._table.exists():
                self._table.set_property(_TOPIC_IDS, ids)
            self._topic_ids = state.topic_ids
        columns = CAPTURED if self._lacks_origins() and ORIGIN not in self._table.rows().columns else None
        self._table.commit(
            frame,
            user_metadata=_user_metadata(state),
            txn_version=TxnVersion("capture", state.batch),
            properties=self._properties(ids) if columns is None else {},
            columns=columns,
            ready=files,
        )

    @staticmethod
    def _properties(ids: str) -> dict[str, str]:
        return {"delta.dataSkippingStatsColumns": _STATISTICS, _TOPIC_IDS: ids, ORIGINS: "kept"}


def _user_metadata(state: CaptureState) -> dict[str, Any]:
    """Returns the user metadata of a capture's commit."""
    return {"batch": state.batch, "offsets": state.offsets}


def _filling(files: Sequence[DataFile], tuning: Tuning) -> Sequence[DataFile]:
    """Returns the first of `files` that fill one compacted file."""
    rows = size = 0
    for count, file in enumerate(files, start=1):
        rows, size = rows + file.rows, size + file.size
        if rows >= tuning.bronze_file_rows or size >= tuning.bronze_file_bytes:
            return files[:count]
    return files


def _laid_out(rows: DataFrame, files: int) -> DataFrame:
    """Returns rows in the order of their capture, so that each file has few batches."""
    order = [BATCH, *COORDINATES]
    return (rows.repartitionByRange(files, *order) if files > 1 else rows.coalesce(1)).sortWithinPartitions(*order)
