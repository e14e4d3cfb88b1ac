"""Positions: the place of a change event in its source's order, one struct for all connectors, compared field by field.

| field | value |
|---|---|
| epoch | number of the log |
| major, minor, ordinal | the place in the log, by the connector's module in `changelog.dialects` |
| streamed | -1 for a message, 0 for a snapshot read, which loses to a streamed change at an equal position; else 1 |
| offset, partition | of the record; they break ties, and are the order if the source gives none |

`streamed` -1 is also a position right before a snapshot: everything lower is older than the snapshot. Postgres gives a
message the end of its record in the log and a change the start, so that a message may have the LSN of the change that
follows it in its transaction. A read of an
incremental snapshot may come without a position: it is unplaced (`is_unplaced_read`). Before it is merged it gets the
position of the preceding change of the same key in its partition, with `streamed` 2 (`changelog.unplaced_reads`).

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

from ingest.changelog.dialects import registry
from ingest.changelog.dialects.dialect import Place
from ingest.changelog.dialects.sequence import place_in_sequence, place_in_topic

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

_NAMING_FIELDS = (
    T.StructField("connector", T.StringType()),
    T.StructField("name", T.StringType()),
    T.StructField("db", T.StringType()),
    T.StructField("schema", T.StringType()),
    T.StructField("table", T.StringType()),
    T.StructField("snapshot", T.StringType()),
    T.StructField("ts_ms", T.LongType()),
)


def source_type() -> T.StructType:
    """Returns the type of the fields that are read of an envelope's `source` block."""
    return T.StructType([*_NAMING_FIELDS, *registry.source_fields()])


def position(source: Column, op: Column, offset: Column, partition: Column) -> Column:
    """Returns the `POSITION` of an event from its envelope's `source`, a `source_type` struct that may be null; the
    columns of `registry.source_numbers` must exist."""
    found, in_topic = registry.place(source, op), place_in_topic()
    is_incremental = (source["snapshot"] == INCREMENTAL) & registry.may_be_unplaced(source)
    # Without source positions snapshot reads are ordered by the transport too.
    unplaced = F.when(is_incremental, _UNPLACED).otherwise(1)
    place = Place(
        F.coalesce(found.major, in_topic.major),
        F.coalesce(found.minor, in_topic.minor),
        F.coalesce(found.ordinal, in_topic.ordinal),
    )
    read = F.when(found.major.isNull(), unplaced).otherwise(0)
    streamed = F.when(op == "r", read).when(op == "m", -1).otherwise(1)
    return _position(place, streamed, offset, partition)


def position_in_sequence(number: Column, op: Column, offset: Column, partition: Column) -> Column:
    """Returns the `POSITION` of an event that is ordered by `number`, its table's sequence column."""
    return _position(place_in_sequence(number), F.when(op == "r", 0).otherwise(1), offset, partition)


def _position(place: Place, streamed: Column, offset: Column, partition: Column) -> Column:
    in_log = {"epoch": F.lit(0), "major": place.major, "minor": place.minor, "ordinal": place.ordinal}
    fields = in_log | {"streamed": streamed, "offset": offset, "partition": partition}
    return F.struct(*(column.alias(name) for name, column in fields.items())).cast(POSITION)


def in_epoch(position: Column, timestamp: Column, begins: Sequence[datetime]) -> Column:
    """Returns `position` with its epoch: the number of times in `begins` that are at or before the record's timestamp.

    `begins`: the time at which each epoch but the first began.
    """
    later = [F.when(timestamp >= F.lit(begin), 1).otherwise(0) for begin in begins]
    return position.withField("epoch", reduce(lambda one, other: one + other, later, F.lit(0)))


def progress(source: Column, op: Column) -> Column:
    """Returns the `PROGRESS` of the log when an event was sent; null for snapshot reads and if the source gives none.

    Connectors send transactions in the order of their commits, so progress goes back only if events are sent again or a
    new epoch begins. The columns of `registry.source_numbers` must exist.
    """
    end = registry.log_end(source)
    sent = F.struct(F.coalesce(source["name"], F.lit("")), end.major, F.coalesce(end.minor, F.lit(0))).cast(PROGRESS)
    return F.when((op != "r") & end.major.isNotNull(), sent)


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


def is_read_without_position(position: Column) -> Column:
    """Returns true for the position of a read that came without one, whether it has got the position of the preceding
    change of its key (`read_position`) or not: it may be older than its columns."""
    return position["streamed"] == _UNPLACED


def is_unplaced_read_at(position: tuple[int, ...]) -> bool:
    """Returns `is_unplaced_read` for a position of plain numbers."""
    return position[1:3] == (0, 0) and position[4] == _UNPLACED


def right_above(position: Column) -> Column:
    """Returns the position right above a change: above its duplicate deliveries, and below later changes."""
    return position.withField("streamed", F.lit(_UNPLACED))


def highest_at(epoch: Column, major: Column, minor: Column, ordinal: Column) -> Column:
    """Returns the highest position at a place of the log."""
    offset, partition = F.lit((1 << 63) - 1), F.lit((1 << 31) - 1)
    fields = (epoch, major, minor, ordinal, F.lit(_UNPLACED), offset, partition)
    return F.struct(*(field.alias(f.name) for field, f in zip(fields, POSITION.fields, strict=True)))


def highest_position_at(position: tuple[int, ...]) -> tuple[int, ...]:
    """Returns `highest_at` of the place of `position`, as plain numbers."""
    return (*position[:4], _UNPLACED, (1 << 63) - 1, (1 << 31) - 1)


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
