"""What the commits of a Delta table say of themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ingest.delta.classes import DeltaClasses

WRITER, THROUGH_BATCH = "writer", "upto_batch"
"""What a commit of a slice tells: whose it is, and its last capture batch."""


@dataclass(frozen=True)
class CommitSummary:
    """What the commit `version` says of itself."""

    version: int
    user_metadata: Mapping[str, Any]


def file_of(delta: DeltaClasses, log: Any, version: int) -> Any:
    """Where a commit is, or would be: a Hadoop `Path`. `log`: a `DeltaLog`."""
    return delta.commit_files.unsafeDeltaFile(log.logPath(), version)


def actions(delta: DeltaClasses, log: Any, version: int) -> list[tuple[str, dict[str, Any]]]:
    """What was done in a commit: each line, as it stands there and as JSON. Raises Py4JJavaError where it has gone."""
    lines = log.store().read(file_of(delta, log, version), log.newDeltaHadoopConf()).mkString("\n")
    return [(line, json.loads(line)) for line in str(lines).split("\n")]


def commits(delta: DeltaClasses, log: Any, newest: int, most: int | None = None) -> Iterator[CommitSummary]:
    """Those that say something, from the version `newest` backwards, as far as the log goes, or over `most` commits."""
    configuration = log.newDeltaHadoopConf()
    for version in range(newest, -1 if most is None else max(-1, newest - most), -1):
        path = file_of(delta, log, version)
        if not path.getFileSystem(configuration).exists(path):
            return
        every = (action for _, action in actions(delta, log, version))
        said = next((a["commitInfo"].get("userMetadata") for a in every if "commitInfo" in a), None)
        if said is not None:
            yield CommitSummary(version, json.loads(said))
