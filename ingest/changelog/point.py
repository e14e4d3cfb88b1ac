"""Points of a changelog: a time, or a position of the source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest.changelog.dialects.registry import parse_position, position_examples
from ingest.changelog.envelope import TOMBSTONE
from ingest.changelog.position import is_unplaced_read, position_literal

_NUMBER = re.compile(r"\d+")
_NUMBERS = re.compile(r"(\d+):(\d+)")


@dataclass(frozen=True)
class Point:
    """A time, or a position: the fields `epoch`, `major` and `minor` of `changelog.position`."""

    time: datetime | None = None
    epoch: int = 0
    major: int = 0
    minor: int | None = None

    @classmethod
    def parse(cls, text: str, epoch: int = 0) -> Point:
        """Returns the point of a text: a time in ISO 8601 (UTC if it has no offset), a position in a dialect's form
        (`0/16B3748`, `mysql-bin.000003:4567`), or its numbers (`24023128`, `3:4567`).

        `epoch`: that of a position. Raises ValueError for any other text.
        """
        if _NUMBER.fullmatch(text):
            return cls(epoch=epoch, major=int(text))
        if (time := _time(text)) is not None:
            return cls(time=time)
        if numbers := _NUMBERS.fullmatch(text):
            return cls(epoch=epoch, major=int(numbers[1]), minor=int(numbers[2]))
        if (found := parse_position(text)) is None:
            raise ValueError(
                f"{text!r} is neither a time (2026-01-31T12:00:00Z) nor a position ({position_examples()})"
            )
        major, minor = found
        return cls(epoch=epoch, major=major, minor=minor)

    @property
    def text(self) -> str:
        """The text of the point, which `parse` reads."""
        if self.time is not None:
            return self.time.isoformat()
        return str(self.major) if self.minor is None else f"{self.major}:{self.minor}"

    def after(self, written: Column, position: Column) -> Column:
        """Returns true for an event at or after this point: by `written`, its record's timestamp, if the point is a
        time, else by its `position`."""
        if self.time is not None:
            return written >= F.lit(self.time)
        return position >= position_literal((self.epoch, self.major, self.minor or 0, -1, -1, -1, -1))


def _time(text: str) -> datetime | None:
    """Returns the time of a text in ISO 8601; None for other texts."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def within(begin: Point | None, end: Point | None) -> Column:
    """Returns the filter of `EVENT` rows at or after `begin` and before `end`; None: no bound. A null tombstone counts
    by the position that it was given."""
    written, position = F.col("timestamp"), F.col("position")
    chosen = F.lit(True)
    if begin is not None:
        chosen = chosen & begin.after(written, position)
    if end is not None:
        chosen = chosen & ~end.after(written, position)
    return F.coalesce(chosen, F.lit(False))


def or_unplaced(chosen: Column) -> Column:
    """Returns the filter `chosen` or null tombstone or unplaced read: those get their position from an earlier
    event."""
    return chosen | (F.col("op") == TOMBSTONE) | is_unplaced_read(F.col("position"))
