"""Archives bronze: the batches since the last manifest become objects and one more manifest."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.archive import Manifest, ObjectStore
from ingest.archive.manifest import manifest_key, manifests
from ingest.archive.writing import write_objects
from ingest.batches.group_stats import groups_by_slice
from ingest.changelog.envelope import BATCH, RECORD, events
from ingest.changelog.naming import Naming
from ingest.config import Pipeline
from ingest.errors import Contended
from ingest.lakehouse.bronze import Bronze
from ingest.pipeline.composition import archive_of, bronze_of, rules_of

_EVENTS_A_MANIFEST = 5_000_000
_PLAIN = Naming()


def archiving_of(spark: SparkSession, pipeline: Pipeline) -> Archiving:
    """Returns the archiving of a pipeline. Raises ConfigError if it has no archive, or a connector writes it."""
    store, part = archive_of(pipeline), pipeline.batch.merged_at_once
    bronze, naming = bronze_of(spark, pipeline), rules_of(pipeline).naming
    return Archiving(spark, bronze, store, pipeline.name, events_a_part=part, naming=naming)


class Archiving:
    """Archives one pipeline. The archive itself tells how far it has come: an interrupted run leaves only objects that
    no manifest names, and the next run writes them again under the same names."""

    def __init__(
        self,
        spark: SparkSession,
        bronze: Bronze,
        store: ObjectStore,
        pipeline: str,
        events_a_manifest: int = _EVENTS_A_MANIFEST,
        events_a_part: int = _EVENTS_A_MANIFEST,
        naming: Naming = _PLAIN,
    ) -> None:
        """`events_a_part`: about the number of events whose statistics are collected together, equal to the size of a
        merge. `naming`: how the pipeline assigns records to tables."""
        self._spark = spark
        self._bronze = bronze
        self._store = store
        self._pipeline = pipeline
        self._naming = naming
        self._events_a_manifest = events_a_manifest
        self._events_a_part = events_a_part
        self._through_batch: int | None = None

    def waiting(self) -> int:
        """Returns the maximum number of events that are not archived yet."""
        return self._bronze.count_between(self._archived_through(), self._bronze.last_batch())

    def step(self) -> Manifest | None:
        """Writes one more manifest; returns None if nothing is new. Raises Contended if another run has written it
        first."""
        last = self._bronze.last_batch()
        after = self._archived_through()
        if last <= after:
            return None
        through_batch = self._bronze.window_end(after, last, self._events_a_manifest)
        records = self._bronze.between(after, through_batch).select(*RECORD.names, BATCH)
        # Parsed again by the current naming; capture may have used another.
        read = events(records, self._naming, (BATCH,))
        objects = write_objects(read, self._bronze.count_between(after, through_batch), self._store, self._pipeline)
        parts = self._parts(read, after, through_batch)
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        manifest = Manifest(self._pipeline, after, through_batch, now, tuple(objects), self._naming.digest, parts)
        key, body = manifest_key(self._pipeline, after), manifest.to_json().encode()
        # If only the response of the write was lost, the stored manifest is this one.
        if not self._store.put_once(key, body) and self._store.get(key) != body:
            raise Contended(
                f"another run archives {self._pipeline}: it has written the batches after {after} first",
                "run one archive job per pipeline; the same command continues after the other one",
            )
        self._through_batch = through_batch
        return manifest

    def _parts(self, read: DataFrame, after: int, through_batch: int) -> tuple[Mapping[str, Any], ...]:
        """Returns the statistics of these batches that a merge reads before it decodes any of their events."""
        size = self._bronze.window_end(after, through_batch, self._events_a_part) - after
        number = F.floor((F.col(BATCH) - 1 - F.lit(after)) / size).cast("bigint")
        found = groups_by_slice(read, after + number * size)
        ends = ((begin, min(begin + size, through_batch)) for begin in range(after, through_batch, size))
        return tuple({"upto": end, "groups": [g.to_json() for g in found.get(begin, ())]} for begin, end in ends)

    def _archived_through(self) -> int:
        if self._through_batch is None:
            self._through_batch = max((m.upto_batch for m in manifests(self._store, self._pipeline)), default=0)
        return self._through_batch
