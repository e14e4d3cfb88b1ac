"""Manifests: the objects that hold the records of a range of capture batches, with the hashes to verify them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ingest.archive.layout import StoredObject, row_type
from ingest.archive.store import ObjectInfo, ObjectStore
from ingest.errors import ChangelogUnusable
from ingest.names import path_segment

_VERSION = 2
_VERSIONS = (1, _VERSION)
"""Objects of version 1 hold raw records only, without parsed columns."""
_RESTORE = "restore it from a version or a copy of the bucket; what it held is only as whole as bronze and the topics"


@dataclass(frozen=True)
class ArchivedObject(StoredObject):
    """An object of a manifest. `sha256`: in hexadecimal. `first_written`, `last_written`: the least and the greatest
    record timestamp in milliseconds; 0 where no record has one."""

    first_written: int
    last_written: int
    sha256: str

    def written_between(self, begin: float | None, end: float | None) -> bool:
        late = end is not None and self.first_written >= end
        # Timestamps are truncated to milliseconds.
        return not late and (begin is None or self.last_written + 1 > begin)


OBJECT = row_type(ArchivedObject)


@dataclass(frozen=True)
class Manifest:
    """The manifest of the capture batches `after_batch` < batch ≤ `upto_batch`.

    Attributes:
        read_as: the digest of the naming by which the records were parsed; empty where objects hold raw records only.
        parts: statistics of these batches as the merge counts them; empty after an erasure has changed the records.
    """

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

    def to_json(self) -> str:
        """Returns the manifest as JSON, with a SHA-256 of its content."""
        fields = {"version": _VERSION, **asdict(self)}
        return json.dumps({**fields, "sha256": _hash(fields)}, indent=1) + "\n"


def objects_folder(pipeline: str) -> str:
    return f"{path_segment(pipeline)}/objects/"


def manifests_folder(pipeline: str) -> str:
    return f"{path_segment(pipeline)}/manifests/"


def manifest_key(pipeline: str, after_batch: int) -> str:
    """Returns the object key of the manifest that follows `after_batch`. Concurrent runs that archive the same batches
    compete for one key, so only one of them succeeds."""
    return f"{manifests_folder(pipeline)}{after_batch:020d}.json"


def manifests(store: ObjectStore, pipeline: str) -> Iterator[Manifest]:
    """Returns a pipeline's manifests in order. Raises ChangelogUnusable where one is missing or damaged."""
    keys = store.keys(manifests_folder(pipeline))
    return (found for _, found in _checked(pipeline, ((key, store.get(key)) for key in keys)))


def manifests_with_etags(store: ObjectStore, pipeline: str) -> list[tuple[ObjectInfo, Manifest]]:
    """Returns the manifests in order, each with its listing, whose ETag makes a later replacement conditional.

    Raises Contended where a manifest is replaced meanwhile, ChangelogUnusable as `manifests`."""
    listed = {found.key: found for found in store.listed(manifests_folder(pipeline))}
    read = ((key, store.get(key, found.etag)) for key, found in listed.items())
    return [(listed[key], found) for key, found in _checked(pipeline, read)]


def _checked(pipeline: str, bodies: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, Manifest]]:
    through_batch = 0
    seen_keys: set[str] = set()
    for key, body in bodies:
        found = _from_json(key, body)
        if found.after_batch != through_batch or key != manifest_key(pipeline, found.after_batch):
            raise ChangelogUnusable(
                f"the archive of {pipeline} has no manifest of capture batches {through_batch + 1} to "
                f"{found.after_batch}",
                _RESTORE,
            )
        for one in found.objects:
            if one.key in seen_keys:
                raise ChangelogUnusable(f"{key} in the archive names {one.key} again: {one.description}", _RESTORE)
            seen_keys.add(one.key)
        through_batch = found.upto_batch
        yield key, found


def _from_json(key: str, body: bytes) -> Manifest:
    try:
        fields: dict[str, Any] = json.loads(body)
        digest = fields.pop("sha256")
        is_whole = digest == _hash(fields)
        version = fields.pop("version")
        objects = tuple(ArchivedObject(**o) for o in fields.pop("objects"))
        manifest = Manifest(**fields | {"parts": tuple(fields.get("parts", ()))}, objects=objects)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ChangelogUnusable(f"{key} in the archive is no manifest ({type(error).__name__})", _RESTORE) from error
    if version not in _VERSIONS:
        raise ChangelogUnusable(f"{key} in the archive has the format {version}", "read it with a newer ingest")
    if not is_whole:
        raise ChangelogUnusable(f"{key} in the archive was changed after it was written", _RESTORE)
    return manifest


def _hash(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
