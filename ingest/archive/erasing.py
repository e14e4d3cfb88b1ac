"""Records out of the archive, for good: they are emptied in its objects, and no version of what held them stays.

New objects come first, then the manifests that name them, then the old ones go: a run that died anywhere is repeated.
An object goes only after this run has renewed the manifest that could name it: who had read that manifest before, and
was about to name the object, comes too late and changes nothing.
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
    """What a run did: `objects` written anew, of so many `bytes`, with so many `records` emptied in them; `versions` of
    objects and manifests removed, and `uploads` that nobody had finished. `unnamed`: objects that no manifest names
    yet, of a run that is under way, or that died and what comes after it writes again. They may hold the same
    records."""

    objects: int
    bytes: int
    records: int
    versions: int
    uploads: int
    unnamed: int


def erased(spark: SparkSession, store: ObjectStore, pipeline: str, coordinates: DataFrame) -> Erased:
    """Empties the archived records of `coordinates` (`topic`, `partition`, `offset`, `request`) and removes, of the
    whole pipeline, what no manifest names. What is emptied already, or not archived, is left as it is.

    Raises Contended where another run changes the same manifests, ChangelogUnusable where an object is not what was
    written, and SourceRefused where the store would not let go of it."""
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
        # What this project writes is never sent in parts.
        uploads=store.abort_uploads(f"{path_segment(pipeline)}/"),
        unnamed=len(leftovers.unnamed),
    )


def _renewed(kept: Sequence[tuple[Listed, Manifest]], done: Sequence[Rewritten]) -> Mapping[str, Manifest]:
    """Key → what the manifest is to name."""
    now = {one.replaced: one.now for one in done}
    # Where a record was emptied, what was counted of them holds no more.
    return {
        listed.key: replace(said, objects=tuple(now.get(o.key, o) for o in said.objects), parts=())
        if any(o.key in now for o in said.objects)
        else said
        for listed, said in kept
    }


class _Leftovers:
    """Versions of objects that no manifest names: `going`, where what they hold is archived, with the manifests
    `of_manifests` that name it now. Beyond that they are `unnamed` yet."""

    def __init__(self, kept: Sequence[tuple[Listed, Manifest]], named: set[str]) -> None:
        self.going: list[Version] = []
        self.of_manifests: set[str] = set()
        self.unnamed: set[str] = set()
        self._named = named
        self._ends: dict[str, list[tuple[int, str]]] = {}
        """Folder of a topic partition → where its part in each manifest ends, in order."""
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
