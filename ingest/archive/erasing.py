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

from ingest.archive.emptying import Rewritten, rewritten
from ingest.archive.manifest import ArchivedObject, Manifest, manifests_folder, objects_folder, renewable
from ingest.archive.store import Listed, ObjectStore, Version
from ingest.names import path_segment

_OBJECT_KEY = re.compile(r"(.+/)(\d{20})-[0-9a-f]{16}\.parquet")


@dataclass(frozen=True)
class Erased:
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


def erased(spark: SparkSession, store: ObjectStore, pipeline: str, coordinates: DataFrame) -> Erased:
    """Empties the archived records of `coordinates` (`topic`, `partition`, `offset`, `request`), and removes all
    objects of the pipeline that its manifests have replaced. Records that are empty already or not archived are
    skipped.

    Raises Contended where another run changes the same manifests, ChangelogUnusable where an object differs from its
    manifest, and SourceRefused where the store refuses to delete a version."""
    kept = renewable(store, pipeline)
    done = rewritten(spark, store, pipeline, kept, coordinates)
    named = _renewed(kept, done)
    leftovers = _Leftovers(kept, {o.key for said in named.values() for o in said.objects})
    for version in store.versions(objects_folder(pipeline)):
        leftovers.take(version)
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    for listed, _ in kept:
        if listed.key in leftovers.of_manifests:
            text = replace(named[listed.key], written_at=now).text()
            store.replace(listed.key, text.encode(), listed.etag)
    versions = store.remove(leftovers.going)
    past = [v for v in store.versions(manifests_folder(pipeline)) if not v.latest and v.key in named]
    return Erased(
        objects=len(done),
        bytes=sum(one.now.size for one in done),
        records=sum(one.emptied for one in done),
        versions=versions + store.remove(past),
        # ingest itself never uses multipart uploads.
        uploads=store.abort_uploads(f"{path_segment(pipeline)}/"),
        unnamed=len(leftovers.unnamed),
    )


def _renewed(kept: Sequence[tuple[Listed, Manifest]], done: Sequence[Rewritten]) -> Mapping[str, Manifest]:
    """Returns manifest key → the manifest with the new objects in place of the old ones."""
    now = {one.replaced: one.now for one in done}
    # The statistics in `parts` no longer hold once a record is emptied.
    return {
        listed.key: replace(said, objects=tuple(now.get(o.key, o) for o in said.objects), parts=())
        if any(o.key in now for o in said.objects)
        else said
        for listed, said in kept
    }


class _Leftovers:
    """Sorts the versions of objects that no manifest names.

    Attributes:
        going: versions to remove, since manifests cover their offsets.
        of_manifests: the keys of the manifests that cover them.
        unnamed: keys of current objects beyond the last manifest.
    """

    def __init__(self, kept: Sequence[tuple[Listed, Manifest]], named: set[str]) -> None:
        self.going: list[Version] = []
        self.of_manifests: set[str] = set()
        self.unnamed: set[str] = set()
        self._named = named
        self._ends: dict[str, list[tuple[int, str]]] = {}
        """Folder of a topic partition → (last offset, manifest key) of its part in each manifest, in order."""
        for listed, said in kept:
            ends: dict[str, int] = {}
            for one in said.objects:
                ends[_folder(one)] = max(one.last_offset, ends.get(_folder(one), 0))
            for folder, last in ends.items():
                self._ends.setdefault(folder, []).append((last, listed.key))

    def take(self, version: Version) -> None:
        begin = _OBJECT_KEY.fullmatch(version.key)
        if version.key in self._named or begin is None:
            return
        ends = self._ends.get(begin[1], [])
        at = bisect_left(ends, (int(begin[2]), ""))
        if at < len(ends):
            self.going.append(version)
            self.of_manifests.add(ends[at][1])
        elif version.latest and not version.marker:
            self.unnamed.add(version.key)


def _folder(one: ArchivedObject) -> str:
    return one.key[: one.key.rindex("/") + 1]
