"""From bronze into the archive: what was captured since the last manifest, as one manifest more."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import SparkSession

from ingest.archive import Manifest, ObjectStore
from ingest.archive.manifest import manifest_key, manifests
from ingest.archive.writing import written
from ingest.changelog.envelope import RECORD
from ingest.errors import Contended
from ingest.tables.bronze import Bronze

_EVENTS_A_MANIFEST = 5_000_000


class Archiving:
    """Archives one pipeline. The archive itself remembers how far it came: a run that died has left nothing but
    objects that no manifest names, which the next one writes under the same names."""

    def __init__(
        self,
        spark: SparkSession,
        bronze: Bronze,
        store: ObjectStore,
        pipeline: str,
        events_a_manifest: int = _EVENTS_A_MANIFEST,
    ) -> None:
        self._spark = spark
        self._bronze = bronze
        self._store = store
        self._pipeline = pipeline
        self._most = events_a_manifest
        self._upto: int | None = None

    def step(self) -> Manifest | None:
        """One manifest more; None where there is nothing new. Raises Contended where another run was faster."""
        captured = self._bronze.captured()
        if self._upto is None:
            self._upto = max((m.upto_batch for m in manifests(self._store, self._pipeline)), default=0)
        if captured.batch <= self._upto:
            return None
        after, upto = self._upto, self._window_end(captured.batch)
        events = self._bronze.between(after, upto)
        objects = written(
            events.select(*RECORD.names), self._bronze.count_upto(after, upto), self._store, self._pipeline
        )
        offsets: dict[str, dict[int, int]] = {}
        for one in objects:
            partitions = offsets.setdefault(one.topic, {})
            partitions[one.partition] = max(partitions.get(one.partition, 0), one.last_offset + 1)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        manifest = Manifest(self._pipeline, after, upto, now, offsets, tuple(objects))
        if not self._store.put_once(manifest_key(self._pipeline, after), manifest.text().encode()):
            raise Contended(
                f"another run archives {self._pipeline}: it was the first with what follows batch {after}",
                "run one archive job per pipeline; the same command goes on after the other one",
            )
        self._upto = upto
        return manifest

    def _window_end(self, last: int) -> int:
        assert self._upto is not None
        waiting = last - self._upto
        events = self._bronze.count_upto(self._upto, last)
        return self._upto + max(1, min(waiting, waiting * self._most // max(events, 1)))
