"""Parses options that name a point of a changelog."""

from __future__ import annotations

from ingest.changelog.point import Point
from ingest.errors import ConfigError


def point(option: str, text: str, epoch: int) -> Point:
    """Returns the point that `text` names. `epoch`: the log's epoch for a position. Raises ConfigError that names
    `option`."""
    try:
        return Point.parse(text, epoch)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}", "correct it") from None
