"""What the commits of a Delta table say of themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ingest.tables.delta_jvm import DeltaClasses, items

WRITER, UPTO = "writer", "upto_batch"
"""What a commit of a slice tells: whose it is, and its last capture batch."""


@dataclass(frozen=True)
class Told:
    """What the commit `version` says of itself."""

    version: int
    said: Mapping[str, Any]


def commits(delta: DeltaClasses, log: Any, newest: int) -> Iterator[Told]:
    """Those that say something, from the version `newest` backwards, as far as the log goes. `log`: a `DeltaLog`."""
    configuration = log.newDeltaHadoopConf()
    for version in range(newest, -1, -1):
        path = delta.commit_files.unsafeDeltaFile(log.logPath(), version)
        if not path.getFileSystem(configuration).exists(path):
            return
        lines = (json.loads(line) for line in items(log.store().read(path, configuration)))
        said = next((a["commitInfo"].get("userMetadata") for a in lines if "commitInfo" in a), None)
        if said is not None:
            yield Told(version, json.loads(said))
