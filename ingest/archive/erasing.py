"""Erases records from the archive: empties them in its objects and removes every older version of these objects.

The order makes a run repeatable after a crash at any point: write new objects, replace the manifests that name them,
remove the old objects. An object is removed only after this run has replaced the manifest that could name it, so that a
concurrent run that still has the old manifest fails its conditional write (ETag) and changes nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from ingest.archive.emptying import RewrittenObject, rewrite_objects
from ingest.archive.manifest import ArchivedObject, Manifest, manifests_folder, manifests_with_etags, objects_folder
from ingest.archive.store import ObjectInfo, ObjectStore, Version
from ingest.names import path_segment

_OBJECT_KEY = re.compile(r"(.+/)(\d{20})-[0-9a-f]{16}\.parquet")


@dataclass(frozen=True)
class ArchiveErasure:
    """The counts of a run.

    Attributes:
        objects: rewritten objects; `bytes`: their size; `records`: emptied records in them.
        versions: removed versions of objects and manifests.
        uploads: aborted multipart uploads.
        unnamed: objects that no manifest names yet, of a run that is under way or has died. They may hold the same
            records, and the next archive run names or rewrites them.
    """

    objects: int
    bytes: int
    records: int
    versions: int
    uploads: int
    unnamed: int


def erase_records(spark: SparkSession, store: ObjectStore, pipeline: str, coordinates: DataFrame) -> ArchiveErasure:
    """Empties the archived records of `coordinates` (`topic`, `partition`, `offset`, `request`), and removes all
    objects of the pipeline that its manifests have replaced. Records that are empty already or not archived are
    skipped.

    Raises Contended where another run changes the same manifests, ChangelogUnusable where an object differs from its
    manifest, and SourceRefused where the store refuses to delete a version."""
    manifests = manifests_with_etags(store, pipeline)
    rewritten = rewrite_objects(spark, store, pipeline, manifests, coordinates)
    renewed = _renewed(manifests, rewritten)
    leftovers = _Leftovers(manifests, {o.key for manifest in renewed.values() for o in manifest.objects})
    for version in store.versions(objects_folder(pipeline)):
        leftovers.add(version)
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    for listed, _ in manifests:
        if listed.key in leftovers.covering_manifests:
            text = replace(renewed[listed.key], written_at=now).to_json()
            store.replace(listed.key, text.encode(), listed.etag)
    versions = store.remove(leftovers.removable)
    past = [v for v in store.versions(manifests_folder(pipeline)) if not v.is_latest and v.key in renewed]
    return ArchiveErasure(
        objects=len(rewritten),
        bytes=sum(one.now.size for one in rewritten),
        records=sum(one.emptied for one in rewritten),
        versions=versions + store.remove(past),
        # ingest itself never uses multipart uploads.
        uploads=store.abort_uploads(f"{path_segment(pipeline)}/"),
        unnamed=len(leftovers.unnamed),
    )


def _renewed(
    manifests: Sequence[tuple[ObjectInfo, Manifest]], rewritten: Sequence[RewrittenObject]
) -> Mapping[str, Manifest]:
    """Returns manifest key → the manifest with the new objects in place of the old ones."""
    now = {one.replaced: one.now for one in rewritten}
    # The statistics in `parts` no longer hold once a record is emptied.
    return {
        listed.key: replace(manifest, objects=tuple(now.get(o.key, o) for o in manifest.objects), parts=())
        if any(o.key in now for o in manifest.objects)
        else manifest
        for listed, manifest in manifests
    }


class _Leftovers:
    """Sorts the versions of objects that no manifest names.

    Attributes:
        removable: versions to remove, since manifests cover their offsets.
        covering_manifests: the keys of the manifests that cover them.
        unnamed: keys of current objects beyond the last manifest.
    """

    def __init__(self, manifests: Sequence[tuple[ObjectInfo, Manifest]], named_keys: set[str]) -> None:
        self.removable: list[Version] = []
        self.covering_manifests: set[str] = set()
        self.unnamed: set[str] = set()
        self._named_keys = named_keys
        self._ends: dict[str, list[tuple[int, str]]] = {}
        """Folder of a topic partition → (last offset, manifest key) of its part in each manifest, in order."""
        for listed, manifest in manifests:
            ends: dict[str, int] = {}
            for one in manifest.objects:
                ends[_folder(one)] = max(one.last_offset, ends.get(_folder(one), 0))
            for folder, last in ends.items():
                self._ends.setdefault(folder, []).append((last, listed.key))

    def add(self, version: Version) -> None:
        begin = _OBJECT_KEY.fullmatch(version.key)
        if version.key in self._named_keys or begin is None:
            return
        ends = self._ends.get(begin[1], [])
        at = bisect_left(ends, (int(begin[2]), ""))
        if at < len(ends):
            self.removable.append(version)
            self.covering_manifests.add(ends[at][1])
        elif version.is_latest and not version.is_delete_marker:
            self.unnamed.add(version.key)


def _folder(one: ArchivedObject) -> str:
    return one.key[: one.key.rindex("/") + 1]
