"""The record of a resync: a table was read again as a whole, so rows whose newest event is at or below its floor are
gone at the source.

It has the form of a change event without images. Its own position is that of the newest read, so that a table as of an
earlier position keeps these rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest.changelog.envelope import RESYNCED
from ingest.changelog.position import POSITION, highest_at

_FLOOR = "$.resync.floor"


def resync_record(
    table: tuple[str, str], origin: str, floor: tuple[int, ...], newest: tuple[int, ...], millis: int, signal: str
) -> dict[str, Any]:
    """Returns the value of a resync's record.

    Args:
        table: schema and name.
        origin: the table's server and database.
        floor: the highest position of a row before the resync; all events of the table since then are above it.
        newest: the highest position of the table's events since then.
        millis: the time of the record, in milliseconds since 1970.
        signal: the ID of the signal that asked for the reads.
    """
    server, _, database = origin.partition("/")
    named: Mapping[str, str] = {"name": server, "db": database, "schema": table[0], "table": table[1]}
    source: dict[str, Any] = {name: text for name, text in named.items() if text}
    source |= {"connector": "postgresql", "lsn": newest[1], "ts_ms": millis}
    # The record's epoch follows from its time, the floor's from its distance to it.
    place = [newest[0] - floor[0], *floor[1:4]]
    return {"op": RESYNCED, "ts_ms": millis, "source": source, "resync": {"floor": place, "signal": signal}}


def resync_floor() -> Column:
    """Returns the `POSITION` of the floor in an event with the op `RESYNCED`."""
    numbers = F.from_json(F.get_json_object(F.col("value").cast("string"), _FLOOR), "array<bigint>")
    epoch = (F.col("position.epoch") - numbers[0]).cast("int")
    return highest_at(epoch, numbers[1], numbers[2], numbers[3]).cast(POSITION)
