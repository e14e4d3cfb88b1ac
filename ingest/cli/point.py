"""A point of a changelog, as an option says it."""

from __future__ import annotations

from ingest.changelog.point import Point
from ingest.errors import ConfigError


def point(option: str, text: str, epoch: int) -> Point:
    """What is said under `option`, of the life `epoch` of the log. Raises ConfigError."""
    try:
        return Point.parsed(text, epoch)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}", "correct it") from None
