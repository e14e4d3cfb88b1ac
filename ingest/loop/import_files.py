"""An archive's objects hold what bronze holds: read as the pipeline reads records, they become files of bronze as they
are, and what was counted when they were archived isn't counted again."""

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
    """How far it brings capture, by how many records, and how many more are archived."""

    upto: CaptureState
    records: int
    behind: int


class ArchiveImport:
    """Of what is archived of one pipeline when it begins, into a bronze of it whose folder all workers reach."""

    def __init__(
        self, spark: SparkSession, store: ObjectStore, pipeline: str, bronze: Bronze, read_as: str, counted: bool
    ) -> None:
        """`read_as`: the digest of the naming by which the pipeline reads records. `counted`: what was counted of the
        events holds for this pipeline too."""
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
        """The manifests that come next, about as many as hold `limit` records; None where the next one's records have
        to be read: it was written otherwise, or bronze holds a part of it."""
        left = [m for m in self._manifests if _is_new(m, captured.offsets)]
        taken: list[Manifest] = []
        upto = captured
        for manifest in left:
            if sum(m.records for m in taken) >= limit or not self._fits(manifest, upto):
                break
            taken.append(manifest)
            upto = CaptureState(manifest.upto_batch, _advanced(upto.offsets, manifest), captured.topic_ids)
        if not taken:
            return None
        objects = [o for m in taken for o in m.objects]
        self._bronze.create()
        copies = copy_objects(self._spark, self._store, objects, self._bronze.folder)
        self._bronze.import_files(list(map(_file, copies)), upto)
        self._tell(captured.batch, taken)
        records = sum(m.records for m in taken)
        return ImportStep(upto, records, sum(m.records for m in left) - records)

    def _fits(self, manifest: Manifest, captured: CaptureState) -> bool:
        begins = all(o.first_offset >= captured.offsets.get(o.topic, {}).get(o.partition, 0) for o in manifest.objects)
        return begins and manifest.after_batch >= captured.batch and manifest.read_as == self._read_as

    def _tell(self, after: int, manifests: Sequence[Manifest]) -> None:
        """`after`: the last batch before. Batches that a lakehouse of its own would have had in between aren't here."""
        for manifest in manifests:
            told = sum(group["count"] for part in manifest.parts for group in part["groups"])
            # What doesn't count every record is counted anew.
            for part in manifest.parts if self._counted and told == manifest.records else ():
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
    held = copy.source
    place = {"topic": held.topic, "partition": held.partition}
    lowest = {BATCH: copy.first_batch, **place, "offset": held.first_offset}
    highest = {BATCH: copy.last_batch, **place, "offset": held.last_offset}
    return ReadyFile(copy.name, held.size, held.records, lowest, highest)
