"""Where a change event stands in its source's order: one struct, compared field by field, for every connector.

| field | Postgres | MySQL | SQL Server | a source without positions |
|---|---|---|---|---|
| epoch | the log's life | the log's life | the log's life | the log's life |
| major | lsn, or a later commit before it | number of the file | commit_lsn (VLF, block) | sequence column, or 0 |
| minor | 0 | pos | change_lsn (VLF, block) | 0 |
| ordinal | lsn less a later commit, where that is the major | row | change_lsn (slot), event_serial_no | 0 |
| streamed | 0 for a snapshot read, which loses to a streamed change at an equal position; else 1 | | | 1 |
| offset, partition | the transport's order breaks ties, and is the order where a source gives none | | | |

Postgres sends transactions in the order of their commits, and `source.sequence` names the last commit before an event.
A transaction may write before another one commits and commit after it: its events stand at that commit, by their lsn.
So does a read of an incremental snapshot, which has no lsn: it is newer than all that was committed before it, and
older than all that is sent after it. Per key this is the order of the lsn: a row lock keeps a second transaction from
writing before the first has committed. A read of which nothing tells that (`is_adrift`) gets the place of the change of
the same key before it in its partition, with a `streamed` of 2, where it is merged (`changelog.standing`).

For SQL Server the order per key is that of change_lsn: a row lock keeps a second transaction from changing the
row before the first has committed. A `streamed` of -1 stands before a snapshot: everything lower is older than it.

A log lives until positions begin anew: another server took over, a backup was restored, the log was reset. Bronze
keeps positions as they came, with epoch 0; the epoch is added where bronze is read, by the times that the pipeline
names (`in_epoch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

POSITION = T.StructType(
    [
        T.StructField("epoch", T.IntegerType()),
        T.StructField("major", T.LongType()),
        T.StructField("minor", T.LongType()),
        T.StructField("ordinal", T.LongType()),
        T.StructField("streamed", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("partition", T.IntegerType()),
    ]
)

PROGRESS = T.StructType(
    [
        T.StructField("server", T.StringType()),
        T.StructField("major", T.LongType()),
        T.StructField("minor", T.LongType()),
    ]
)
"""How far the log of a server had been sent."""

_PLACE = ("epoch", "major", "minor", "ordinal", "streamed")
INCREMENTAL = "incremental"
"""The value of `source.snapshot` in reads of an incremental snapshot."""
_ADRIFT = 2
_BELOW_ALL = -(1 << 62)
"""The ordinal of a read that stands at a commit: all that is sent after it, at that commit too, is newer."""

SOURCE_FIELDS = T.StructType(
    [
        T.StructField("connector", T.StringType()),
        T.StructField("name", T.StringType()),
        T.StructField("db", T.StringType()),
        T.StructField("schema", T.StringType()),
        T.StructField("table", T.StringType()),
        T.StructField("snapshot", T.StringType()),
        T.StructField("ts_ms", T.LongType()),
        T.StructField("lsn", T.LongType()),
        T.StructField("sequence", T.StringType()),
        T.StructField("file", T.StringType()),
        T.StructField("pos", T.LongType()),
        T.StructField("row", T.LongType()),
        T.StructField("commit_lsn", T.StringType()),
        T.StructField("change_lsn", T.StringType()),
        T.StructField("event_serial_no", T.LongType()),
    ]
)
"""What an envelope's `source` block says that matters here; anything else in it is left alone."""


def _hex(text: Column, part: int) -> Column:
    return F.conv(F.split(text, ":").getItem(part), 16, 10).cast("bigint")


def _sql_server(lsn: Column) -> tuple[Column, Column]:
    """`0000002a:00000a60:0003` → (VLF and block as one number, slot)."""
    return F.shiftleft(_hex(lsn, 0), 32) + _hex(lsn, 1), _hex(lsn, 2)


def _file_number(source: Column) -> Column:
    """Binlog files compare by their number: binlog.10 comes after binlog.9."""
    return F.regexp_extract(source["file"], r"(\d+)$", 1).try_cast("bigint")


def _in_sequence(source: Column, pattern: str) -> Column:
    """A number of Postgres's `sequence`, `["24023119","24023128"]`: the last commit before the event, then its lsn."""
    return F.regexp_extract(source["sequence"], pattern, 1).try_cast("bigint")


def numbers(source: Column) -> dict[str, Column]:
    """What `position` and `progress` take out of texts in an envelope's `source` (a `SOURCE_FIELDS` struct, may be
    null), as columns that have to stand beside it: each is read once, and written down once in a plan."""
    commit, _ = _sql_server(source["commit_lsn"])
    change, slot = _sql_server(source["change_lsn"])
    committed = _in_sequence(source, r'^\["?(\d+)')
    return {"_file": _file_number(source), "_commit": commit, "_change": change, "_slot": slot, "_committed": committed}


def position(source: Column, op: Column, offset: Column, partition: Column) -> Column:
    """`POSITION` of an event out of its envelope's `source`, and the `numbers` of that."""
    serial = F.coalesce(source["event_serial_no"], F.lit(0))
    none, lsn, committed = F.lit(0).cast("bigint"), source["lsn"], F.col("_committed")
    read = op == "r"
    behind = ~read & (committed > lsn)
    given = F.coalesce(
        lsn, "_file", "_commit", F.when(read, F.coalesce(committed, _in_sequence(source, r',\s*"?(\d+)"?\]$')))
    )
    adrift = (source["snapshot"] == INCREMENTAL) & (source["connector"] == "postgresql")
    # Without any position the transport's order is that of reads too.
    unplaced = F.when(adrift, _ADRIFT).otherwise(1)
    return F.struct(
        F.lit(0).alias("epoch"),
        F.when(behind, committed).otherwise(F.coalesce(given, none)).alias("major"),
        F.when(lsn.isNotNull(), none).otherwise(F.coalesce(source["pos"], F.col("_change"), none)).alias("minor"),
        # Below an event that begins where the commit ends: of one transaction that one is the later.
        F.when(behind, lsn - committed)
        .when(read & (committed >= F.coalesce(lsn, committed)), F.lit(_BELOW_ALL))
        .when(lsn.isNotNull(), none)
        .otherwise(F.coalesce(source["row"], F.shiftleft("_slot", 32) + serial, none))
        .alias("ordinal"),
        F.when(read, F.when(given.isNull(), unplaced).otherwise(0)).otherwise(1).alias("streamed"),
        offset.alias("offset"),
        partition.alias("partition"),
    ).cast(POSITION)


def sequenced(number: Column, op: Column, offset: Column, partition: Column) -> Column:
    """`POSITION` of an event of a table that a column of its own puts in order."""
    none = F.lit(0).cast("bigint")
    streamed = F.when(op == "r", 0).otherwise(1)
    return F.struct(F.lit(0), number, none, none, streamed, offset, partition).cast(POSITION)


def in_epoch(position: Column, timestamp: Column, begins: Sequence[datetime]) -> Column:
    """A position in the life of the log that had begun when its record was written. `begins`: of every life but the
    first, a time."""
    later = [F.when(timestamp >= F.lit(begin), 1).otherwise(0) for begin in begins]
    return position.withField("epoch", reduce(lambda one, other: one + other, later, F.lit(0)))


def progress(source: Column, op: Column) -> Column:
    """`PROGRESS` when an event was sent: a connector sends transactions in the order in which they were committed, so
    it goes back only where events are sent again, or where the log begins anew. Null for snapshots and where the
    source doesn't tell. Beside `source` stand its `numbers`."""
    of_postgres = source["lsn"].isNotNull()
    major = F.when(of_postgres, F.col("_committed")).otherwise(F.coalesce("_file", "_commit"))
    minor = F.when(of_postgres, 0).otherwise(F.coalesce(source["pos"], F.lit(0)))
    told = F.struct(F.coalesce(source["name"], F.lit("")), major, minor).cast(PROGRESS)
    return F.when((op != "r") & major.isNotNull(), told)


def literal(at: tuple[int, ...]) -> Column:
    """A position of plain numbers as a `POSITION` column."""
    return F.struct(*(F.lit(v).cast(f.dataType).alias(f.name) for v, f in zip(at, POSITION.fields, strict=True)))


def right_after(predecessor: Column, own: Column) -> Column:
    """The position of a null tombstone: that of the change of the same key before it, then its own place in the
    transport. Without a predecessor (a compacted topic) only the transport's order is left."""
    none = F.lit(0).cast("bigint")
    return F.struct(
        F.coalesce(predecessor["epoch"], own["epoch"]).alias("epoch"),
        F.coalesce(predecessor["major"], none).alias("major"),
        F.coalesce(predecessor["minor"], none).alias("minor"),
        F.coalesce(predecessor["ordinal"], none).alias("ordinal"),
        F.coalesce(predecessor["streamed"], F.lit(1)).alias("streamed"),
        own["offset"].alias("offset"),
        own["partition"].alias("partition"),
    ).cast(POSITION)


def is_adrift(position: Column) -> Column:
    """Whether it is that of a snapshot read of which the event doesn't tell where it stands among changes that have
    positions."""
    return (position["streamed"] == _ADRIFT) & ~is_placed(position)


def is_adrift_at(position: tuple[int, ...]) -> bool:
    """`is_adrift` of plain numbers."""
    return position[1:3] == (0, 0) and position[4] == _ADRIFT


def above(position: Column) -> Column:
    """A position above a change, however often that is delivered again, and below whatever the source did later."""
    return position.withField("streamed", F.lit(_ADRIFT))


def right_after_change(predecessor: Column, own: Column) -> Column:
    """The position of a read that is adrift: `above` the change of the same key before it; `own` where there is
    none."""
    at = above(predecessor).withField("offset", own["offset"]).withField("partition", own["partition"])
    return F.when(predecessor.isNotNull(), at).otherwise(own)


def place(position: Column) -> Column:
    """A position in the source's own order, without the transport's."""
    return F.struct(*(position[name].alias(name) for name in _PLACE))


def is_placed(position: Column) -> Column:
    """Whether the source gave the position; without one, nothing tells an event that comes again from another."""
    return (position["major"] != 0) | (position["minor"] != 0)


def comes_again(position: Column, known: Column) -> Column:
    """Whether an event stands where `known` does in the source: the same once more, if it says the same."""
    # Field by field: two structs would be made of them, for each row.
    same = reduce(lambda one, other: one & other, (position[name].eqNullSafe(known[name]) for name in _PLACE))
    return F.coalesce(is_placed(position) & same, F.lit(False))


def right_before_snapshot(at: tuple[int, ...]) -> tuple[int, ...]:
    """The position, as plain numbers, of which everything lower is older than a snapshot whose reads stand at `at`."""
    return (*at[:4], -1, 0, 0)
