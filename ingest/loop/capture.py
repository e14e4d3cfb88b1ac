"""Captures the records of a source into bronze, each once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession

from ingest.batches.batch_stats import BatchCounter
from ingest.batches.record_decoding import RecordDecoding
from ingest.changelog.envelope import events
from ingest.changelog.naming import Naming
from ingest.errors import SourceRefused
from ingest.lakehouse.bronze import Bronze, CaptureState
from ingest.loop.import_files import ArchiveImport
from ingest.loop.suppression.landing import Landing
from ingest.sources.contract import ChangelogSource, OffsetRange, Offsets
from ingest.spark.checkpoints import checkpoint_scope


class Capture:
    """Captures one source's records, batch by batch. Only bronze records how far it is."""

    def __init__(
        self,
        spark: SparkSession,
        source: ChangelogSource,
        bronze: Bronze,
        naming: Naming,
        limit: int,
        stops_at_new_topic: bool = True,
        seal: Callable[[DataFrame], DataFrame] = lambda events: events,
        archive_import: ArchiveImport | None = None,
        merges: bool = False,
        decoding: RecordDecoding | None = None,
        landing: Landing | None = None,
    ) -> None:
        """`limit`: most records per batch. `stops_at_new_topic`: stop where a captured topic was deleted and created
        anew. `seal`: encrypts events before they are stored. `archive_import`: imports what is archived in bronze's own
        form. `merges`: the batch is merged in this process next, so it is counted while it is written.
        `decoding`: decodes records by the schemas of a registry. `landing`: empties events of erased subjects."""
        self._spark = spark
        self._source = source
        self._bronze = bronze
        self._naming = naming
        self._limit = limit
        self._stops_at_new_topic = stops_at_new_topic
        self._seal = seal
        self._archive_import = archive_import
        self._merges = merges
        self._decoding = decoding
        self._landing = landing
        self.captured = bronze.resume()
        self.behind = 0
        """Number of offsets that waited at the source after the last batch."""

    def pin_end(self) -> None:
        """Pins the end of the source: records that arrive later are not captured."""
        self._source.pin_end()

    @checkpoint_scope()
    def step(self) -> int:
        """Captures one batch. Returns the number of records that it spans; 0: nothing new.

        Raises SourceRefused where a topic is not the one that was captured before."""
        if (
            self._archive_import is not None
            and (self._landing is None or not self._landing.is_needed)
            and (imported := self._archive_import.step(self.captured, self._limit)) is not None
        ):
            self.captured, self.behind = imported.state, imported.behind
            return imported.records
        span = self._source.pending(self.captured.offsets, self._limit)
        self.behind = 0 if span is None else span.behind
        if span is None:
            return 0
        ids = {**self.captured.topic_ids, **span.topic_ids}
        if self._stops_at_new_topic:
            self._require_same(ids)
        state = CaptureState(self.captured.batch + 1, _advanced(self.captured.offsets, span.end), ids)
        records = self._source.read(self._spark, span)
        if self._decoding is None:
            self._append(records, span, state)
        else:
            try:
                self._append(self._decoding.of(records), span, state)
            except Exception as error:
                if not self._decoding.learns_from(error, records):
                    raise
                self._append(self._decoding.of(records), span, state)
        self.captured = state
        return span.size

    def _append(self, records: DataFrame, span: OffsetRange, state: CaptureState) -> None:
        batch = self._seal(events(records, self._naming))
        if span.size <= self._bronze.tuning.small_slice_events:
            # Each of many topics has a few events: a file per core is enough.
            batch = batch.coalesce(self._spark.sparkContext.defaultParallelism)
        groups = None
        if self._landing is not None:
            batch, groups = self._landing.emptied(batch, self._bronze, state.batch, span.size)
        counts = groups is None and self._merges and BatchCounter.is_available(self._spark)
        counter = BatchCounter(self._spark, self._bronze.tuning) if counts else None
        self._bronze.append(batch, state, counter)
        if groups is not None and self._merges:
            self._bronze.record_batch_stats(state.batch - 1, state.batch, [group.to_json() for group in groups])

    def _require_same(self, ids: Mapping[str, str]) -> None:
        """Raises SourceRefused where a topic was created anew: its offsets begin anew too, so its records would be
        skipped as captured."""
        for topic, id_ in self.captured.topic_ids.items():
            if ids[topic] != id_:
                raise SourceRefused(
                    f"topic {topic} is not the topic that bronze has captured: it was deleted and created again",
                    "capture it under a new pipeline name; or, if it was restored and continues at the old offsets, "
                    "run once with source: {recreated_topics: ignore}",
                )


def _advanced(offsets: Offsets, by: Offsets) -> Offsets:
    moved = {topic: dict(partitions) for topic, partitions in offsets.items()}
    for topic, partitions in by.items():
        moved.setdefault(topic, {}).update(partitions)
    return moved
