"""A manifest: which objects hold the records of some capture batches, and by what they are known to be whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ingest.archive.layout import StoredObject, rows_of
from ingest.archive.store import Listed, ObjectStore
from ingest.errors import ChangelogUnusable
from ingest.names import path_segment

_VERSION = 2
_VERSIONS = (1, _VERSION)
"""Objects of the first one hold records as they came, and nothing of what they were read as."""
_RESTORE = "restore it from a version or a copy of the bucket; what it held is only as whole as bronze and the topics"


@dataclass(frozen=True)
class ArchivedObject(StoredObject):
    """`sha256`: in hexadecimal. `first_written`, `last_written`: the least and the greatest of its records' timestamps,
    in milliseconds; 0 where none has one."""

    first_written: int
    last_written: int
    sha256: str

    def written_between(self, begin: float | None, end: float | None) -> bool:
        late = end is not None and self.first_written >= end
        # Its times are cut off after the millisecond.
        return not late and (begin is None or self.last_written + 1 > begin)


OBJECT = rows_of(ArchivedObject)


@dataclass(frozen=True)
class Manifest:
    """Of the capture batches `after_batch` < batch ≤ `upto_batch`. `read_as`: the digest of the naming by which its
    records were read; empty where objects hold nothing but records. `parts`: what is known of these batches without
    reading them, part by part, as the merge counts them; none where an erasure has changed them."""

    pipeline: str
    after_batch: int
    upto_batch: int
    written_at: str
    objects: tuple[ArchivedObject, ...]
    read_as: str = ""
    parts: tuple[Mapping[str, Any], ...] = ()

    @property
    def records(self) -> int:
        return sum(o.records for o in self.objects)

    def text(self) -> str:
        """As JSON, with a hash of what it says."""
        said = {"version": _VERSION, **asdict(self)}
        return json.dumps({**said, "sha256": _hash(said)}, indent=1) + "\n"


def objects_folder(pipeline: str) -> str:
    return f"{path_segment(pipeline)}/objects/"


def manifests_folder(pipeline: str) -> str:
    return f"{path_segment(pipeline)}/manifests/"


def manifest_key(pipeline: str, after_batch: int) -> str:
    """Two runs that archive the same want the same name: one of them gets it."""
    return f"{manifests_folder(pipeline)}{after_batch:020d}.json"


def manifests(store: ObjectStore, pipeline: str) -> Iterator[Manifest]:
    """All of a pipeline, in order. Raises ChangelogUnusable where one is missing, or is not what was written."""
    keys = store.keys(manifests_folder(pipeline))
    return (found for _, found in _checked(pipeline, ((key, store.get(key)) for key in keys)))


def renewable(store: ObjectStore, pipeline: str) -> list[tuple[Listed, Manifest]]:
    """`manifests`, with what tells whether one was renewed since. Raises Contended where one is just now."""
    listed = {found.key: found for found in store.listed(manifests_folder(pipeline))}
    read = ((key, store.get(key, found.etag)) for key, found in listed.items())
    return [(listed[key], found) for key, found in _checked(pipeline, read)]


def _checked(pipeline: str, bodies: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, Manifest]]:
    upto = 0
    named: set[str] = set()
    for key, body in bodies:
        found = _parsed(key, body)
        if found.after_batch != upto or key != manifest_key(pipeline, found.after_batch):
            raise ChangelogUnusable(
                f"the archive of {pipeline} has no manifest of capture batches {upto + 1} to {found.after_batch}",
                _RESTORE,
            )
        for one in found.objects:
            if one.key in named:
                raise ChangelogUnusable(f"{key} in the archive names {one.key} again: {one.told}", _RESTORE)
            named.add(one.key)
        upto = found.upto_batch
        yield key, found


def _parsed(key: str, body: bytes) -> Manifest:
    try:
        said: dict[str, Any] = json.loads(body)
        claimed = said.pop("sha256")
        whole = claimed == _hash(said)
        version = said.pop("version")
        objects = tuple(ArchivedObject(**o) for o in said.pop("objects"))
        manifest = Manifest(**said | {"parts": tuple(said.get("parts", ()))}, objects=objects)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ChangelogUnusable(f"{key} in the archive is no manifest ({type(error).__name__})", _RESTORE) from error
    if version not in _VERSIONS:
        raise ChangelogUnusable(f"{key} in the archive has the format {version}", "read it with a newer ingest")
    if not whole:
        raise ChangelogUnusable(f"{key} in the archive was changed after it was written", _RESTORE)
    return manifest


def _hash(said: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
