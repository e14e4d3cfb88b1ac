"""A manifest: which objects hold the records of some capture batches, and by what they are known to be whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ingest.archive.store import ObjectStore
from ingest.errors import ChangelogUnusable
from ingest.names import path_segment

_VERSION = 1
_RESTORE = "restore it from a version or a copy of the bucket; what it held is only as whole as bronze and the topics"


@dataclass(frozen=True)
class ArchivedObject:
    """Records of one topic partition, in the order of their offsets. `size`: bytes. `sha256`: in hexadecimal."""

    key: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    size: int
    sha256: str

    @property
    def told(self) -> str:
        """Which events it holds, for an error."""
        offsets = f"offsets {self.first_offset} to {self.last_offset}"
        return f"{self.records} records of topic {self.topic}, partition {self.partition}, {offsets}"


@dataclass(frozen=True)
class Manifest:
    """Of the capture batches `after_batch` < batch ≤ `upto_batch`. `offsets`: topic → partition → the next offset."""

    pipeline: str
    after_batch: int
    upto_batch: int
    written_at: str
    offsets: Mapping[str, Mapping[int, int]]
    objects: tuple[ArchivedObject, ...]

    @property
    def records(self) -> int:
        return sum(o.records for o in self.objects)

    def text(self) -> str:
        """As JSON, with a hash of what it says."""
        # As it will be read: names of JSON are texts, and in another order than numbers.
        said = json.loads(json.dumps({"version": _VERSION, **asdict(self)}))
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
    upto = 0
    for key in store.keys(manifests_folder(pipeline)):
        found = _parsed(key, store.get(key))
        if found.after_batch != upto or key != manifest_key(pipeline, found.after_batch):
            raise ChangelogUnusable(
                f"the archive of {pipeline} has no manifest of capture batches {upto + 1} to {found.after_batch}",
                _RESTORE,
            )
        upto = found.upto_batch
        yield found


def _parsed(key: str, body: bytes) -> Manifest:
    try:
        said: dict[str, Any] = json.loads(body)
        claimed = said.pop("sha256")
        whole = claimed == _hash(said)
        version = said.pop("version")
        objects = tuple(ArchivedObject(**o) for o in said.pop("objects"))
        offsets = {t: {int(p): int(o) for p, o in ps.items()} for t, ps in said.pop("offsets").items()}
        manifest = Manifest(**said, offsets=offsets, objects=objects)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ChangelogUnusable(f"{key} in the archive is no manifest ({type(error).__name__})", _RESTORE) from error
    if version != _VERSION:
        raise ChangelogUnusable(f"{key} in the archive has the format {version}", "read it with a newer ingest")
    if not whole:
        raise ChangelogUnusable(f"{key} in the archive was changed after it was written", _RESTORE)
    return manifest


def _hash(said: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
