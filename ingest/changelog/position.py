"""Positions: the place of a change event in its source's order, one struct for all connectors, compared field by field.

| field | Postgres | MySQL | SQL Server | a source without positions |
|---|---|---|---|---|
| epoch | number of the log | number of the log | number of the log | number of the log |
| major | lsn, or the last commit if above it | number of the file | commit_lsn (VLF, block) | sequence column, or 0 |
| minor | 0 | pos | change_lsn (VLF, block) | 0 |
| ordinal | lsn less the last commit, if that is the major | row | change_lsn (slot), event_serial_no | 0 |
| streamed | 0 for a snapshot read, which loses to a streamed change at an equal position; else 1 | | | 1 |
| offset, partition | of the record; they break ties, and are the order if the source gives none | | | |

Postgres sends transactions in the order of their commits, and `source.sequence` names the last commit before an event.
A transaction may write before another one commits and commit after it: its events get the position of that commit, and
are ordered by lsn within it. A read of an incremental snapshot, which has no lsn, gets the position of the last commit
too: it is newer than all that was committed before it, and older than all that is sent after it. Per key this equals
the order of the lsn: a row lock keeps a second transaction from writing before the first has committed. A read without
`sequence` is unplaced (`is_unplaced_read`). Before it is merged it gets the position of the preceding change of the
same key in its partition, with `streamed` 2 (`changelog.unplaced_reads`).

For SQL Server the order per key is that of change_lsn, by the same row lock. `streamed` -1 is a position right before a
snapshot: everything lower is older than the snapshot.

An epoch ends when positions restart: another server took over, a backup was restored, the log was reset. Bronze stores
epoch 0; the epoch is added when bronze is read, by the times in the pipeline's file (`in_epoch`).
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
"""How far a server's log had been sent when an event was sent."""

_PLACE = ("epoch", "major", "minor", "ordinal", "streamed")
INCREMENTAL = "incremental"
"""The value of `source.snapshot` in reads of an incremental snapshot."""
_UNPLACED = 2
_BELOW_ALL = -(1 << 62)
"""The ordinal of a read at the position of a commit: every event at that commit is newer."""

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
"""The fields that are read of an envelope's `source` block."""


def _hex(text: Column, part: int) -> Column:
    return F.conv(F.split(text, ":").getItem(part), 16, 10).cast("bigint")


def _sql_server(lsn: Column) -> tuple[Column, Column]:
    """Returns VLF and block as one number, and the slot, of an LSN such as `0000002a:00000a60:0003`."""
    return F.shiftleft(_hex(lsn, 0), 32) + _hex(lsn, 1), _hex(lsn, 2)


def _file_number(source: Column) -> Column:
    """Returns the number of a binlog file: binlog.10 comes after binlog.9."""
    return F.regexp_extract(source["file"], r"(\d+)$", 1).try_cast("bigint")


def _in_sequence(source: Column, pattern: str) -> Column:
    """Returns a number from Postgres' `sequence`, `["24023119","24023128"]`: the last commit before the event, its
    lsn."""
    return F.regexp_extract(source["sequence"], pattern, 1).try_cast("bigint")


def source_numbers(source: Column) -> dict[str, Column]:
    """Returns the columns that `position` and `progress` need besides `source`: numbers parsed from its texts.

    `source`: a `SOURCE_FIELDS` struct, may be null. Add them by a projection of their own, so that each text is parsed
    once.
    """
    commit, _ = _sql_server(source["commit_lsn"])
    change, slot = _sql_server(source["change_lsn"])
    committed = _in_sequence(source, r'^\["?(\d+)')
    return {"_file": _file_number(source), "_commit": commit, "_change": change, "_slot": slot, "_committed": committed}


def position(source: Column, op: Column, offset: Column, partition: Column) -> Column:
    """Returns the `POSITION` of an event from its envelope's `source`; the columns of `source_numbers` must exist."""
    serial = F.coalesce(source["event_serial_no"], F.lit(0))
    zero, lsn, committed = F.lit(0).cast("bigint"), source["lsn"], F.col("_committed")
    read = op == "r"
    behind = ~read & (committed > lsn)
    source_major = F.coalesce(
        lsn, "_file", "_commit", F.when(read, F.coalesce(committed, _in_sequence(source, r',\s*"?(\d+)"?\]$')))
    )
    incremental = (source["snapshot"] == INCREMENTAL) & (source["connector"] == "postgresql")
    # Without source positions snapshot reads are ordered by the transport too.
    unplaced = F.when(incremental, _UNPLACED).otherwise(1)
    return F.struct(
        F.lit(0).alias("epoch"),
        F.when(behind, committed).otherwise(F.coalesce(source_major, zero)).alias("major"),
        F.when(lsn.isNotNull(), zero).otherwise(F.coalesce(source["pos"], F.col("_change"), zero)).alias("minor"),
        # Below the event whose lsn equals the commit, which is the later one in its transaction.
        F.when(behind, lsn - committed)
        .when(read & (committed >= F.coalesce(lsn, committed)), F.lit(_BELOW_ALL))
        .when(lsn.isNotNull(), zero)
        .otherwise(F.coalesce(source["row"], F.shiftleft("_slot", 32) + serial, zero))
        .alias("ordinal"),
        F.when(read, F.when(source_major.isNull(), unplaced).otherwise(0)).otherwise(1).alias("streamed"),
        offset.alias("offset"),
        partition.alias("partition"),
    ).cast(POSITION)


def position_in_sequence(number: Column, op: Column, offset: Column, partition: Column) -> Column:
    """Returns the `POSITION` of an event that is ordered by `number`, its table's sequence column."""
    zero = F.lit(0).cast("bigint")
    streamed = F.when(op == "r", 0).otherwise(1)
    return F.struct(F.lit(0), number, zero, zero, streamed, offset, partition).cast(POSITION)


def in_epoch(position: Column, timestamp: Column, begins: Sequence[datetime]) -> Column:
    """Returns `position` with its epoch: the number of times in `begins` that are at or before the record's timestamp.

    `begins`: the time at which each epoch but the first began.
    """
    later = [F.when(timestamp >= F.lit(begin), 1).otherwise(0) for begin in begins]
    return position.withField("epoch", reduce(lambda one, other: one + other, later, F.lit(0)))


def progress(source: Column, op: Column) -> Column:
    """Returns the `PROGRESS` of the log when an event was sent; null for snapshot reads and if the source gives none.

    Connectors send transactions in the order of their commits, so progress goes back only if events are sent again or a
    new epoch begins. The columns of `source_numbers` must exist.
    """
    of_postgres = source["lsn"].isNotNull()
    major = F.when(of_postgres, F.col("_committed")).otherwise(F.coalesce("_file", "_commit"))
    minor = F.when(of_postgres, 0).otherwise(F.coalesce(source["pos"], F.lit(0)))
    sent = F.struct(F.coalesce(source["name"], F.lit("")), major, minor).cast(PROGRESS)
    return F.when((op != "r") & major.isNotNull(), sent)


def position_literal(at: tuple[int, ...]) -> Column:
    """Returns the `POSITION` column of plain numbers, in the order of its fields."""
    return F.struct(*(F.lit(v).cast(f.dataType).alias(f.name) for v, f in zip(at, POSITION.fields, strict=True)))


def tombstone_position(predecessor: Column, received: Column) -> Column:
    """Returns the position of a null tombstone: that of the preceding change of its key, with its own offset and
    partition. Without a predecessor (in a compacted topic) only offset and partition remain."""
    zero = F.lit(0).cast("bigint")
    return F.struct(
        F.coalesce(predecessor["epoch"], received["epoch"]).alias("epoch"),
        F.coalesce(predecessor["major"], zero).alias("major"),
        F.coalesce(predecessor["minor"], zero).alias("minor"),
        F.coalesce(predecessor["ordinal"], zero).alias("ordinal"),
        F.coalesce(predecessor["streamed"], F.lit(1)).alias("streamed"),
        received["offset"].alias("offset"),
        received["partition"].alias("partition"),
    ).cast(POSITION)


def is_unplaced_read(position: Column) -> Column:
    """Returns true for the position of an unplaced read: a read of an incremental snapshot without a source
    position."""
    return (position["streamed"] == _UNPLACED) & ~has_source_position(position)


def is_unplaced_read_at(position: tuple[int, ...]) -> bool:
    """Returns `is_unplaced_read` for a position of plain numbers."""
    return position[1:3] == (0, 0) and position[4] == _UNPLACED


def right_above(position: Column) -> Column:
    """Returns the position right above a change: above its duplicate deliveries, and below later changes."""
    return position.withField("streamed", F.lit(_UNPLACED))


def read_position(predecessor: Column, received: Column) -> Column:
    """Returns the position of an unplaced read: right above the preceding change of its key; `received` without
    one."""
    at = right_above(predecessor).withField("offset", received["offset"]).withField("partition", received["partition"])
    return F.when(predecessor.isNotNull(), at).otherwise(received)


def source_position(position: Column) -> Column:
    """Returns a position's source fields: without offset and partition."""
    return F.struct(*(position[name].alias(name) for name in _PLACE))


def has_source_position(position: Column) -> Column:
    """Returns true if the source gave the position. Without one, duplicates can't be recognized."""
    return (position["major"] != 0) | (position["minor"] != 0)


def is_same_source_position(position: Column, known: Column) -> Column:
    """Returns true if an event has the source position `known`: a duplicate delivery, if its content is equal too."""
    # Field by field: a comparison of structs would build both of them for each row.
    same = reduce(lambda one, other: one & other, (position[name].eqNullSafe(known[name]) for name in _PLACE))
    return F.coalesce(has_source_position(position) & same, F.lit(False))


def right_before_snapshot(at: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the position right before a snapshot whose reads are at `at`, as plain numbers."""
    return (*at[:4], -1, 0, 0)
