"""A point of a changelog: a time, or a place in the order of its source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest.changelog.envelope import TOMBSTONE
from ingest.changelog.position import is_adrift, literal

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_BINLOG = re.compile(r"[\w.-]*?(\d+):(\d+)")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Point:
    """Either a `time` or a place: the numbers `major` and `minor` of a position (`changelog.position`), of the life
    `epoch` of the log."""

    time: datetime | None = None
    epoch: int = 0
    major: int = 0
    minor: int | None = None

    @classmethod
    def parsed(cls, text: str, epoch: int = 0) -> Point:
        """Of a time in ISO 8601 (UTC unless it says otherwise), an LSN of Postgres (`0/16B3748`, or as a number), or a
        place in a binlog (`mysql-bin.000003:4567`). `epoch`: which life of the log a place is in. Raises ValueError."""
        if lsn := _LSN.fullmatch(text):
            return cls(epoch=epoch, major=(int(lsn[1], 16) << 32) + int(lsn[2], 16))
        if _NUMBER.fullmatch(text):
            return cls(epoch=epoch, major=int(text))
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            if binlog := _BINLOG.fullmatch(text):
                return cls(epoch=epoch, major=int(binlog[1]), minor=int(binlog[2]))
            raise ValueError(
                f"{text!r} is neither a time (2026-01-31T12:00:00Z) nor a position (0/16B3748, binlog.000003:4567)"
            ) from None
        return cls(time=time if time.tzinfo else time.replace(tzinfo=UTC))

    @property
    def said(self) -> str:
        """As `parsed` reads it."""
        if self.time is not None:
            return self.time.isoformat()
        return str(self.major) if self.minor is None else f"{self.major}:{self.minor}"

    def after(self, written: Column, position: Column) -> Column:
        """Whether an event comes after this point or stands at it: by the time at which its record was written, or by
        its position."""
        if self.time is not None:
            return written >= F.lit(self.time)
        return position >= literal((self.epoch, self.major, self.minor or 0, -1, -1, -1, -1))


def within(begin: Point | None, end: Point | None) -> Column:
    """Chooses the events from `begin` on and before `end`; a null tombstone by where it was placed."""
    written, position = F.col("timestamp"), F.col("position")
    chosen = F.lit(True)
    if begin is not None:
        chosen = chosen & begin.after(written, position)
    if end is not None:
        chosen = chosen & ~end.after(written, position)
    return F.coalesce(chosen, F.lit(False))


def or_unplaced(chosen: Column) -> Column:
    """Selects also null tombstones and reads that are adrift: only the event before each tells where it stands."""
    return chosen | (F.col("op") == TOMBSTONE) | is_adrift(F.col("position"))
