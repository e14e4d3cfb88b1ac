"""SQL Server: events are ordered by the commits of their transactions, and by change within one.

| field | value |
|---|---|
| major | commit_lsn (VLF, block) |
| minor | change_lsn (VLF, block) |
| ordinal | change_lsn (slot), event_serial_no |

Per key this equals the order of change_lsn: a row lock keeps a second transaction from writing before the first has
committed.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.dialects.dialect import Dialect, LogEnd, Place


def _hex(lsn: Column, part: int) -> Column:
    """Returns a part of an LSN such as `0000002a:00000a60:0003`: VLF, block, slot; null for a text of another
    form."""
    return F.conv(F.get(F.split(lsn, ":"), part), 16, 10).cast("bigint")


def _block(lsn: Column) -> Column:
    return F.shiftleft(_hex(lsn, 0), 32) + _hex(lsn, 1)


def _numbers(source: Column) -> dict[str, Column]:
    commit, change = source["commit_lsn"], source["change_lsn"]
    return {"_commit": _block(commit), "_change": _block(change), "_slot": _hex(change, 2)}


def _place(source: Column, _: Column) -> Place:
    serial = F.coalesce(source["event_serial_no"], F.lit(0))
    return Place(F.col("_commit"), F.col("_change"), F.shiftleft("_slot", 32) + serial)


def _log_end(source: Column) -> LogEnd:
    return LogEnd(F.col("_commit"), F.when(source["commit_lsn"].isNotNull(), 0))


DIALECT = Dialect(
    connectors=("sqlserver",),
    fields=(
        T.StructField("commit_lsn", T.StringType()),
        T.StructField("change_lsn", T.StringType()),
        T.StructField("event_serial_no", T.LongType()),
    ),
    numbers=_numbers,
    place=_place,
    log_end=_log_end,
)
