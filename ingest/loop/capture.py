"""Capture: what a source has, into bronze, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession

from ingest.batches.batch_stats import Tally
from ingest.batches.group_stats import FEW
from ingest.changelog.envelope import Naming, events
from ingest.errors import SourceRefused
from ingest.lakehouse.bronze import Bronze, CaptureState
from ingest.loop.import_files import ArchiveImport
from ingest.sources.contract import ChangelogSource, Offsets
from ingest.spark.checkpoints import checkpoint_scope


class Capture:
    """Moves one source's records into bronze, batch by batch; bronze alone remembers how far it came."""

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
    ) -> None:
        """`stops_at_new_topic`: where another topic has taken a captured one's name. `seal`: what becomes of events
        before they are kept. `archive_import`: brings what the source holds in bronze's own form already. `merges`:
        who merges it next is in this process: it need neither count nor, of a small batch, read it."""
        self._spark = spark
        self._source = source
        self._bronze = bronze
        self._naming = naming
        self._limit = limit
        self._stops_at_new_topic = stops_at_new_topic
        self._seal = seal
        self._adoption = archive_import
        self._merges = merges
        self.captured = bronze.resume()
        self.behind = 0
        """How many offsets waited at the source after the last batch."""

    def pin_end(self) -> None:
        """From here on only what the source holds at this moment is captured."""
        self._source.pin_end()

    @checkpoint_scope()
    def step(self) -> int:
        """One batch. How many records it spans: 0 means that there was nothing new.

        Raises SourceRefused where a topic is not the one that was captured before."""
        if self._adoption is not None and (adopted := self._adoption.step(self.captured, self._limit)) is not None:
            self.captured, self.behind = adopted.upto, adopted.behind
            return adopted.records
        span = self._source.pending(self.captured.offsets, self._limit)
        self.behind = 0 if span is None else span.behind
        if span is None:
            return 0
        ids = {**self.captured.topic_ids, **span.topic_ids}
        if self._stops_at_new_topic:
            self._require_same(ids)
        few = span.size <= FEW
        batch = self._seal(events(self._source.read(self._spark, span), self._naming))
        upto = CaptureState(self.captured.batch + 1, _advanced(self.captured.offsets, span.end), ids)
        counting = Tally(self._spark) if self._merges and Tally.counts(self._spark) else None
        self._bronze.append(batch, upto, counting, at_hand=few and self._merges)
        self.captured = upto
        return span.size

    def _require_same(self, ids: Mapping[str, str]) -> None:
        """Its offsets begin anew: bronze would take them for those that it holds, and skip them."""
        for topic, id_ in self.captured.topic_ids.items():
            if ids[topic] != id_:
                raise SourceRefused(
                    f"topic {topic} is another one than bronze holds: it was deleted and created again",
                    "capture it under a new pipeline name; or, where the new one goes on at the old one's offsets "
                    "(it was restored), run once with source: {recreated_topics: ignore}",
                )


def _advanced(offsets: Offsets, by: Offsets) -> Offsets:
    moved = {topic: dict(partitions) for topic, partitions in offsets.items()}
    for topic, partitions in by.items():
        moved.setdefault(topic, {}).update(partitions)
    return moved
