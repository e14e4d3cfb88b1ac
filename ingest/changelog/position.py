"""Where a change event stands in its source's order: one struct, compared field by field, for every connector.

| field | Postgres | MySQL | SQL Server | a source without positions |
|---|---|---|---|---|
| epoch | the log's life | the log's life | the log's life | 0 |
| major | lsn | number of the binlog file | commit_lsn (VLF, block) | 0 |
| minor | 0 | pos | change_lsn (VLF, block) | 0 |
| ordinal | 0 | row | change_lsn (slot), event_serial_no | 0 |
| streamed | 0 for a snapshot read, which loses to a streamed change at an equal position; else 1 | | | |
| offset, partition | the transport's order breaks ties, and is the order where a source gives none | | | |

For SQL Server the order per key is that of change_lsn: a row lock keeps a second transaction from changing the
row before the first has committed. A `streamed` of -1 stands before a snapshot: everything lower is older than it.
"""

from __future__ import annotations

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

SOURCE_FIELDS = T.StructType(
    [
        T.StructField("connector", T.StringType()),
        T.StructField("db", T.StringType()),
        T.StructField("schema", T.StringType()),
        T.StructField("table", T.StringType()),
        T.StructField("snapshot", T.StringType()),
        T.StructField("ts_ms", T.LongType()),
        T.StructField("lsn", T.LongType()),
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


def position(source: Column, op: Column, offset: Column, partition: Column) -> Column:
    """`POSITION` of an event out of its envelope's `source` (a `SOURCE_FIELDS` struct, may be null)."""
    commit, _ = _sql_server(source["commit_lsn"])
    change, slot = _sql_server(source["change_lsn"])
    # Binlog files compare by their number: binlog.10 comes after binlog.9.
    file_number = F.regexp_extract(source["file"], r"(\d+)$", 1).try_cast("bigint")
    serial = F.coalesce(source["event_serial_no"], F.lit(0))
    none = F.lit(0).cast("bigint")
    return F.struct(
        F.lit(0).alias("epoch"),
        F.coalesce(source["lsn"], file_number, commit, none).alias("major"),
        F.when(source["lsn"].isNotNull(), none).otherwise(F.coalesce(source["pos"], change, none)).alias("minor"),
        F.when(source["lsn"].isNotNull(), none)
        .otherwise(F.coalesce(source["row"], F.shiftleft(slot, 32) + serial, none))
        .alias("ordinal"),
        F.when(op == "r", 0).otherwise(1).alias("streamed"),
        offset.alias("offset"),
        partition.alias("partition"),
    ).cast(POSITION)


def right_after(predecessor: Column, offset: Column, partition: Column) -> Column:
    """The position of a null tombstone: that of the change of the same key before it, then its own place in the
    transport. Without a predecessor (a compacted topic) only the transport's order is left."""
    none = F.lit(0).cast("bigint")
    return F.struct(
        F.coalesce(predecessor["epoch"], F.lit(0)).alias("epoch"),
        F.coalesce(predecessor["major"], none).alias("major"),
        F.coalesce(predecessor["minor"], none).alias("minor"),
        F.coalesce(predecessor["ordinal"], none).alias("ordinal"),
        F.coalesce(predecessor["streamed"], F.lit(1)).alias("streamed"),
        offset.alias("offset"),
        partition.alias("partition"),
    ).cast(POSITION)


def right_before_snapshot(at: tuple[int, ...]) -> tuple[int, ...]:
    """The position, as plain numbers, of which everything lower is older than a snapshot whose reads stand at `at`."""
    return (*at[:4], -1, 0, 0)
