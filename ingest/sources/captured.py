"""Reads from bronze's Delta log how far its source is captured, without Spark and without opening a data file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ingest.errors import ChangelogUnusable, ConfigError

if TYPE_CHECKING:
    from ingest.sources.contract import Offsets


def is_remote(path: str) -> bool:
    """Returns True if `path` is the URI of an object store, whose credentials only Spark has."""
    return "://" in path and not path.startswith("file://")


def captured_offsets(path: str) -> Offsets | None:
    """Returns topic → partition → next offset, from the newest commit at `path` whose metadata holds offsets.

    None where there is no table yet, or no commit left in its log holds offsets. Raises ConfigError for a lakehouse
    that is no local folder, ChangelogUnusable for a log that can't be read.
    """
    if is_remote(path):
        raise ConfigError(
            f"the captured offsets of {path} can only be read from a lakehouse on this machine",
            "leave out --live, or read the lakehouse with Spark",
        )
    try:
        if not DeltaTable.is_deltatable(path):
            return None
        commits = DeltaTable(path).history()
    except (DeltaError, OSError) as error:
        raise ChangelogUnusable(
            f"the Delta log of {path} can't be read ({type(error).__name__})",
            "check the folder's permissions and that no commit file is damaged",
        ) from None
    return next((offsets for commit in commits if (offsets := _offsets(commit)) is not None), None)


def _offsets(commit: dict[str, Any]) -> Offsets | None:
    """Returns the offsets in a commit's metadata; None for other commits, such as compactions."""
    try:
        metadata = json.loads(commit.get("userMetadata") or "null")
    except ValueError:
        return None
    offsets = metadata.get("offsets") if isinstance(metadata, dict) else None
    if not isinstance(offsets, dict):
        return None
    return {topic: {int(p): int(offset) for p, offset in ps.items()} for topic, ps in offsets.items()}
