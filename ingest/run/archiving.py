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

    def waiting(self) -> int:
        """How many events are not archived yet, at most."""
        return self._bronze.count_between(self._archived_upto(), self._bronze.last_batch())

    def step(self) -> Manifest | None:
        """One manifest more; None where there is nothing new. Raises Contended where another run was faster."""
        last = self._bronze.last_batch()
        after = self._archived_upto()
        if last <= after:
            return None
        upto = self._bronze.window_end(after, last, self._most)
        events = self._bronze.between(after, upto).select(*RECORD.names)
        objects = written(events, self._bronze.count_between(after, upto), self._store, self._pipeline)
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        manifest = Manifest(self._pipeline, after, upto, now, tuple(objects))
        key, body = manifest_key(self._pipeline, after), manifest.text().encode()
        # Where the answer to a write was lost, what is there is our own.
        if not self._store.put_once(key, body) and self._store.get(key) != body:
            raise Contended(
                f"another run archives {self._pipeline}: it was the first with what follows batch {after}",
                "run one archive job per pipeline; the same command goes on after the other one",
            )
        self._upto = upto
        return manifest

    def _archived_upto(self) -> int:
        if self._upto is None:
            self._upto = max((m.upto_batch for m in manifests(self._store, self._pipeline)), default=0)
        return self._upto
