"""Postgres: events are ordered by the commits of their transactions, and by LSN within one.

| field | value |
|---|---|
| major | lsn, or the last commit if above it |
| minor | 0 |
| ordinal | lsn less the last commit, if that is the major |

Postgres sends transactions in the order of their commits, and `source.sequence` names the last commit before an event.
A transaction may write before another one commits and commit after it: its events get the position of that commit, and
are ordered by lsn within it. A read of an incremental snapshot, which has no lsn, gets the position of the last commit
too: it is newer than all that was committed before it, and older than all that is sent after it. Per key this equals
the order of the lsn: a row lock keeps a second transaction from writing before the first has committed. A read without
`sequence` is unplaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.dialects.dialect import AsOfCut, Dialect, LogEnd, Place, PositionText

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_LAST_COMMIT, _OWN_LSN = r'^\["?(\d+)', r',\s*"?(\d+)"?\]$'
"""Patterns of the numbers in `sequence`, `["24023119","24023128"]`."""
_BELOW_ALL = -(1 << 62)
"""The ordinal of a read at the position of a commit: every event at that commit is newer."""


def _in_sequence(source: Column, pattern: str) -> Column:
    return F.regexp_extract(source["sequence"], pattern, 1).try_cast("bigint")


def _numbers(source: Column) -> dict[str, Column]:
    return {"_committed": _in_sequence(source, _LAST_COMMIT)}


def _place(source: Column, op: Column) -> Place:
    zero, lsn, committed = F.lit(0).cast("bigint"), source["lsn"], F.col("_committed")
    is_read = op == "r"
    is_behind = ~is_read & (committed > lsn)
    read = F.when(is_read, F.coalesce(committed, _in_sequence(source, _OWN_LSN)))
    return Place(
        major=F.when(is_behind, committed).otherwise(F.coalesce(lsn, read)),
        minor=F.when(lsn.isNotNull(), zero),
        # Below the event whose lsn equals the commit, which is the later one in its transaction.
        ordinal=F.when(is_behind, lsn - committed)
        .when(is_read & (committed >= F.coalesce(lsn, committed)), F.lit(_BELOW_ALL))
        .when(lsn.isNotNull(), zero),
    )


def _log_end(source: Column) -> LogEnd:
    is_placed = source["lsn"].isNotNull()
    return LogEnd(major=F.when(is_placed, F.col("_committed")), minor=F.when(is_placed, 0))


def _parse(text: str) -> tuple[int, int | None] | None:
    lsn = _LSN.fullmatch(text)
    return None if lsn is None else ((int(lsn[1], 16) << 32) + int(lsn[2], 16), None)


def _as_of_cut(major: int) -> AsOfCut:
    """Returns the cut by commits.

    An event carries the position of the commit before its own transaction, which was committed by `major` once a later
    event carries a commit at or before it.
    """
    commit_before, own = F.col("progress.major"), F.col("position.major")
    aggregates = {
        "commit": F.max(F.when(commit_before <= major, commit_before)),
        "last": F.max_by(own, F.struct(commit_before, own)),
        "newest": F.max(commit_before),
    }

    def committed(found: Mapping[str, Any]) -> Column:
        commit = -1 if found["commit"] is None else int(found["commit"])
        if found["last"] is not None and found["newest"] == commit < major >= found["last"]:
            commit += 1  # The last transaction ends before the cut, and no event follows it.
        return commit_before < commit

    return AsOfCut(commit_before.isNotNull() & (F.col("position.minor") == 0), aggregates, committed)


def _dump_fields(major: int, minor: int | None) -> Mapping[str, Any] | None:
    return {"lsn": major} if minor is None else None


DIALECT = Dialect(
    connectors=("postgresql",),
    fields=(T.StructField("lsn", T.LongType()), T.StructField("sequence", T.StringType())),
    numbers=_numbers,
    place=_place,
    log_end=_log_end,
    position_text=PositionText("an LSN", "0/16B3748", _parse),
    as_of_cut=_as_of_cut,
    dump_fields=_dump_fields,
    unplaced_reads=True,
)
