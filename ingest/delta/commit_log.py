"""The commits of a Delta log: their actions and their user metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ingest.delta.classes import DeltaClasses

WRITER, THROUGH_BATCH = "writer", "upto_batch"
"""Keys of the user metadata of a slice's commit: the writer's name, and the last capture batch of the slice."""


@dataclass(frozen=True)
class CommitSummary:
    """The user metadata of the commit `version`."""

    version: int
    user_metadata: Mapping[str, Any]


def commit_file(delta: DeltaClasses, log: Any, version: int) -> Any:
    """Returns the Hadoop `Path` of a commit, whether it exists or not. `log`: a `DeltaLog`."""
    return delta.file_names.unsafeDeltaFile(log.logPath(), version)


def actions(delta: DeltaClasses, log: Any, version: int) -> list[tuple[str, dict[str, Any]]]:
    """Returns the actions of a commit, each as its line and as parsed JSON. Raises Py4JJavaError if the commit's file
    does not exist any more."""
    lines = log.store().read(commit_file(delta, log, version), log.newDeltaHadoopConf()).mkString("\n")
    return [(line, json.loads(line)) for line in str(lines).split("\n")]


def commits(delta: DeltaClasses, log: Any, newest: int, most: int | None = None) -> Iterator[CommitSummary]:
    """Yields the commits with user metadata, from the version `newest` backwards to the log's beginning, or among the
    newest `most` commits."""
    configuration = log.newDeltaHadoopConf()
    for version in range(newest, -1 if most is None else max(-1, newest - most), -1):
        path = commit_file(delta, log, version)
        if not path.getFileSystem(configuration).exists(path):
            return
        parsed = (action for _, action in actions(delta, log, version))
        metadata = next((a["commitInfo"].get("userMetadata") for a in parsed if "commitInfo" in a), None)
        if metadata is not None:
            yield CommitSummary(version, json.loads(metadata))
