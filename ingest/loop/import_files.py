"""Imports archived objects into bronze: written under the same naming, their files become files of bronze as they are,
and their statistics are reused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import SparkSession

from ingest.archive import Manifest, ManifestArchive, ObjectStore
from ingest.archive.object_copies import Copy, copy_objects
from ingest.changelog.envelope import BATCH
from ingest.delta.data_file import ReadyFile
from ingest.lakehouse.bronze import Bronze, CaptureState, Offsets


@dataclass(frozen=True)
class ImportStep:
    """One import: `state`, where capture stands after it, its number of records, and the number still archived."""

    state: CaptureState
    records: int
    behind: int


class ArchiveImport:
    """Imports what is archived of one pipeline when it starts. All workers must reach bronze's folder."""

    def __init__(
        self, spark: SparkSession, store: ObjectStore, pipeline: str, bronze: Bronze, read_as: str, counted: bool
    ) -> None:
        """`read_as`: digest of the naming by which the pipeline reads records. `counted`: the archived statistics hold
        for this pipeline too."""
        self._spark = spark
        self._store = store
        self._pipeline = pipeline
        self._bronze = bronze
        self._read_as = read_as
        self._counted = counted

    @cached_property
    def _manifests(self) -> Sequence[Manifest]:
        return ManifestArchive(self._store, self._pipeline).manifests()

    def step(self, captured: CaptureState, limit: int) -> ImportStep | None:
        """Imports the next manifests, about as many as hold `limit` records. None where the next one's records have to
        be read: it was written under another naming, or bronze holds a part of it."""
        waiting = [m for m in self._manifests if _is_new(m, captured.offsets)]
        taken: list[Manifest] = []
        state = captured
        for manifest in waiting:
            if sum(m.records for m in taken) >= limit or not self._fits(manifest, state):
                break
            taken.append(manifest)
            state = CaptureState(manifest.upto_batch, _advanced(state.offsets, manifest), captured.topic_ids)
        if not taken:
            return None
        objects = [o for m in taken for o in m.objects]
        self._bronze.create()
        copies = copy_objects(self._spark, self._store, objects, self._bronze.folder)
        self._bronze.import_files(list(map(_file, copies)), state)
        self._record_batch_stats(captured.batch, taken)
        records = sum(m.records for m in taken)
        return ImportStep(state, records, sum(m.records for m in waiting) - records)

    def _fits(self, manifest: Manifest, captured: CaptureState) -> bool:
        begins = all(o.first_offset >= captured.offsets.get(o.topic, {}).get(o.partition, 0) for o in manifest.objects)
        return begins and manifest.after_batch >= captured.batch and manifest.read_as == self._read_as

    def _record_batch_stats(self, after: int, manifests: Sequence[Manifest]) -> None:
        """Records the archived statistics in bronze. `after`: last batch before. Batches that only another lakehouse
        has are not among them."""
        for manifest in manifests:
            counted = sum(group["count"] for part in manifest.parts for group in part["groups"])
            # Statistics that don't count every record are computed again.
            for part in manifest.parts if self._counted and counted == manifest.records else ():
                self._bronze.record_batch_stats(after, part["upto"], part["groups"])
                after = part["upto"]
            after = manifest.upto_batch


def _is_new(manifest: Manifest, captured: Offsets) -> bool:
    return any(o.last_offset >= captured.get(o.topic, {}).get(o.partition, 0) for o in manifest.objects)


def _advanced(offsets: Offsets, manifest: Manifest) -> Offsets:
    moved = {topic: dict(partitions) for topic, partitions in offsets.items()}
    for one in manifest.objects:
        moved.setdefault(one.topic, {})[one.partition] = one.last_offset + 1
    return moved


def _file(copy: Copy) -> ReadyFile:
    archived = copy.source
    place = {"topic": archived.topic, "partition": archived.partition}
    lowest = {BATCH: copy.first_batch, **place, "offset": archived.first_offset}
    highest = {BATCH: copy.last_batch, **place, "offset": archived.last_offset}
    return ReadyFile(copy.name, archived.size, archived.records, lowest, highest)
