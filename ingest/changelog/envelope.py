"""From a Kafka record to a change event: table, op and position, read once, when the record lands in bronze.

Images stay in the raw value: they are decoded at the merge, straight from the value, by the types of their table
(an intermediate text would round numbers).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.origin import ORIGIN, UNNAMED, TableNames, origin
from ingest.changelog.position import (
    INCREMENTAL,
    POSITION,
    PROGRESS,
    SOURCE_FIELDS,
    numbers,
    position,
    progress,
    sequenced,
)
from ingest.changelog.projection import Projection
from ingest.spark.plain_json import CORRUPT, opened

RECORD = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("timestamp", T.TimestampType()),
        T.StructField(
            "headers",
            T.ArrayType(T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])),
        ),
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
    ]
)
"""A record as any source hands it over: coordinates, headers, raw key and raw value."""

EVENT = T.StructType(
    [
        *RECORD.fields,
        T.StructField("source_table", T.StringType()),
        T.StructField("op", T.StringType()),
        T.StructField("position", POSITION),
        T.StructField("source_ts", T.TimestampType()),
        T.StructField("wrapped", T.BooleanType()),
        T.StructField("schema_id", T.LongType()),
        T.StructField("problem", T.StringType()),
        T.StructField("ends_snapshot", T.BooleanType()),
        T.StructField("progress", PROGRESS),
        T.StructField(ORIGIN, T.StringType()),
    ]
)

BATCH = "batch"
CAPTURED = T.StructType([*EVENT.fields, T.StructField(BATCH, T.LongType())])
"""An event as bronze keeps it: with the number of the batch in which it was captured."""

CHANGES = ("c", "u", "d", "r")
TOMBSTONE = "tombstone"
CONTROL = "control"
"""Heartbeats, transaction boundaries, empty records: they say nothing about any row."""

_LAST_OF_SNAPSHOT = ("last", "last_in_data_collection")
"""What `source.snapshot` says in the last record that a snapshot reads of a table."""

ERASED = "ingest.erased"
"""The header of a record of which an erasure has left no more than its place in the log. Its value: the request."""

_READ_AS = 2
"""Another number for whoever makes other events of the same records."""

NOT_JSON = "not-json"
REGISTRY_FRAME = "schema-registry-frame"
CLOUD_EVENT = "cloud-event"
UNWRAPPED_ROW = "unwrapped-row"
UNKNOWN_OP = "unknown-op"
NO_SEQUENCE = "no-sequence"
NO_CHANGE_EVENT = (NOT_JSON, REGISTRY_FRAME, CLOUD_EVENT, UNWRAPPED_ROW)
"""Problems of values that have no envelope, so which of their parts are row images is unknown."""

_YEARS_1_TO_9999 = -62_135_596_800_000, 253_402_300_799_999
"""In milliseconds since 1970."""
_FRAME_BYTES = 5
"""A schema registry's frame: the byte 0, and four bytes of a schema id."""
_ENVELOPE_FIELDS = ("op", "before", "after", "source")


@dataclass(frozen=True)
class Naming:
    """How topics and tables are called where the envelope alone doesn't tell. `topic_tables`: (topic, table) pairs.
    `sequences`: (table, column) pairs, the column that puts the table's changes in order where the source has no
    position. `names`: by which these name their tables; bronze keeps `schema.table`."""

    topic_tables: tuple[tuple[str, str], ...] = ()
    sequences: tuple[tuple[str, str], ...] = ()
    names: TableNames = field(default_factory=TableNames)
    heartbeat_prefix: str = "__debezium-heartbeat"
    transaction_suffix: str = "transaction"

    @property
    def digest(self) -> str:
        """Is the same where the same records are read as the same events."""
        return hashlib.sha256(f"{_READ_AS} {self!r}".encode()).hexdigest()[:16]

    def control(self, topic: Column, op: Column) -> Column:
        """A table may be called "transaction" too: its records carry an op, the boundaries don't."""
        boundary = topic.endswith("." + self.transaction_suffix) & op.isNull()
        return topic.startswith(self.heartbeat_prefix + ".") | boundary

    def table(self, topic: Column, source: Column) -> Column:
        """`schema.table` as the source says; the topic where it says nothing."""
        space = F.coalesce(source["schema"], source["db"])
        said = F.when(source["table"].isNotNull(), F.concat_ws(".", space, source["table"]))
        named = F.coalesce(said, topic)
        if not self.topic_tables:
            return named
        pairs = [F.lit(text) for pair in self.topic_tables for text in pair]
        return F.coalesce(F.element_at(F.create_map(*pairs), topic), named)

    def origin(self, topic: Column, source: Column) -> Column:
        """Where the event's table is from; nowhere where its topic's table is named by `topic_tables`."""
        found = F.coalesce(origin(source), F.lit(UNNAMED))
        mapped = [name for name, _ in self.topic_tables]
        return F.when(topic.isin(*mapped), UNNAMED).otherwise(found) if mapped else found

    def sequence(self, table: Column, after: Column, before: Column) -> tuple[Column, Column]:
        """The number by which a table's own column orders the event, and whether the table has such a column."""
        number = F.lit(None).cast("bigint")
        for name, column in self.sequences:
            said = F.coalesce(after.getField(column), before.getField(column))
            number = F.when(table == name, said.try_cast("bigint")).otherwise(number)
        return number, table.isin(*(name for name, _ in self.sequences))


def _narrow(naming: Naming) -> T.StructType:
    """What is read of a value."""
    envelope = [T.StructField("op", T.StringType()), T.StructField("source", SOURCE_FIELDS)]
    if naming.sequences:
        image = T.StructType([T.StructField(c, T.StringType()) for c in sorted({c for _, c in naming.sequences})])
        envelope += [T.StructField("before", image), T.StructField("after", image)]
    return T.StructType(
        [
            *envelope,
            T.StructField("schema", T.StringType()),
            T.StructField("specversion", T.StringType()),
            T.StructField("payload", T.StructType(envelope)),
            T.StructField(CORRUPT, T.StringType()),
        ]
    )


def marked(header: str) -> Column:
    """Whether a record has a header of this name."""
    return F.coalesce(F.array_contains(F.col("headers")["key"], header), F.lit(False))


def mark(header: str, value: Column) -> Column:
    """Headers: this one."""
    return F.array(F.struct(F.lit(header).alias("key"), value.cast("binary").alias("value")))


def key_json(key: Column) -> Column:
    """The JSON text of a record's key, out of its envelope where it has one."""
    text = key.cast("string")
    return F.coalesce(F.get_json_object(text, "$.payload"), text)


def emptied(request: Column) -> dict[str, Column]:
    """What an `EVENT` holds beside its place and time once an erasure has emptied it: what an empty record comes to."""
    kept = ("topic", "partition", "offset", "timestamp")
    nothing = {f.name: F.lit(None).cast(f.dataType) for f in EVENT if f.name not in kept}
    at = sequenced(F.lit(0), F.lit(CONTROL), F.col("offset"), F.col("partition"))
    told = {"op": F.lit(CONTROL), "position": at, "wrapped": F.lit(False), "ends_snapshot": F.lit(False)}
    return nothing | told | {ORIGIN: F.lit(UNNAMED)} | {"headers": mark(ERASED, request)}


def events(records: DataFrame, naming: Naming, also: Sequence[str] = ()) -> DataFrame:
    """`RECORD` rows → `EVENT` rows, one for one, with the columns `also` as they are. What can't be read keeps its
    record and names its `problem`."""
    return reduce(lambda rows, projection: projection.of(rows), _reading(naming, tuple(also)), records)


@lru_cache(maxsize=64)
def _reading(naming: Naming, also: tuple[str, ...]) -> tuple[Projection, ...]:
    """Projections, one over the other: the JSON of the value; what it says, wherever its envelope lies; what kind of
    event that is; the event. Whatever several columns are made of stands in one before them: written down in each,
    the plan would be many times as long. Kept: writing it down takes longer than a small batch."""
    kept, beside = [F.col(f.name) for f in RECORD.fields], [F.col(c) for c in also]
    said = _said(naming)
    steps = (
        [*kept, *beside, opened(F.col("value"), _narrow(naming)).alias("_json")],
        [*kept, *beside, *(column.alias(name) for name, column in said.items())],
        [*kept, *beside, *map(F.col, said), *(column.alias(name) for name, column in _kind(naming).items())],
        [*_event(naming), *beside],
    )
    return tuple(map(Projection, steps))


def _said(naming: Naming) -> dict[str, Column]:
    """What a value says of its event, and both images where some column in them orders a table."""
    wrapped, corrupt = F.col("_json.payload").isNotNull(), F.col("_json._corrupt").isNotNull()

    def inside(name: str) -> Column:
        return F.when(wrapped, F.col(f"_json.payload.{name}")).otherwise(F.col(f"_json.{name}"))

    own = {"_wrapped": wrapped, "_schema": F.col("_json.schema"), "_corrupt": corrupt}
    own["_specversion"] = F.col("_json.specversion")
    wanted = ("op", "source", *(("after", "before") if naming.sequences else ()))
    return own | {"_unread": F.col("_json").isNull() | corrupt} | {f"_{name}": inside(name) for name in wanted}


def _kind(naming: Naming) -> dict[str, Column]:
    """The numbers of its source, whose event it is (`source_table`), and whether it says anything of rows."""
    value, source = F.col("value"), F.col("_source")
    silent = F.when(value.isNull(), _key().isNull()).otherwise(F.length(value) == 0)
    control = silent | (value.isNotNull() & naming.control(F.col("topic"), F.col("_op")))
    # A null tombstone is of the table of the change before it, which its place in the log decides later.
    table = F.when(~control & value.isNotNull(), naming.table(F.col("topic"), source))
    return numbers(source) | {"_control": control, "source_table": table}


def _key() -> Column:
    # A tombstone that an erasure wrote says whose it is to nobody but the topic's cleaner.
    return F.when(F.col("value").isNotNull() | ~marked(ERASED), F.col("key"))


def _event(naming: Naming) -> list[Column]:
    """The columns of `EVENT`."""
    value, source, said_op, table = (F.col(name) for name in ("value", "_source", "_op", "source_table"))
    at = position(source, said_op, F.col("offset"), F.col("partition"))
    unordered = F.lit(False)
    if naming.sequences:
        name = naming.names.named(table, naming.origin(F.col("topic"), source))
        number, ordered = naming.sequence(name, F.col("_after"), F.col("_before"))
        unordered = said_op.isin(*CHANGES) & ordered & number.isNull()
        own = sequenced(number, said_op, F.col("offset"), F.col("partition"))
        at = F.when(ordered & number.isNotNull(), own).otherwise(at)
    known = said_op.isin(*CHANGES, "t", "m") & ~F.col("_corrupt") & ~unordered
    op = F.when(F.col("_control"), CONTROL).when(value.isNull(), TOMBSTONE).when(known, said_op)
    return [
        *(_key().alias("key") if f.name == "key" else F.col(f.name) for f in RECORD.fields),
        table,
        op.alias("op"),
        at.alias("position"),
        _moment(source["ts_ms"]).alias("source_ts"),
        F.col("_wrapped").alias("wrapped"),
        F.when(F.col("_schema").isNotNull(), F.xxhash64("_schema")).alias("schema_id"),
        F.when(op.isNull(), _problem(unordered)).alias("problem"),
        _ends_snapshot(source["snapshot"]).alias("ends_snapshot"),
        progress(source, said_op).alias("progress"),
        naming.origin(F.col("topic"), source).alias(ORIGIN),
    ]


def _moment(millis: Column) -> Column:
    """Returns the timestamp of milliseconds since 1970; null outside of the years 1 to 9999, which some readers of
    Delta tables can't hold."""
    return F.when(millis.between(*_YEARS_1_TO_9999), F.timestamp_millis(millis))


def _problem(unordered: Column) -> Column:
    """Names why a value is no change event that can be placed. `unordered`: its table's own sequence is missing."""
    value = F.col("value")
    framed = (F.length(value) > _FRAME_BYTES) & (F.substring(value, 1, 1) == F.lit(b"\0"))
    other = F.when(_is_unwrapped_row(value), UNWRAPPED_ROW).otherwise(UNKNOWN_OP)
    return (
        F.when(framed, REGISTRY_FRAME)
        .when(F.col("_specversion").isNotNull() & F.col("_op").isNull(), CLOUD_EVENT)
        .when(F.col("_unread"), NOT_JSON)
        .when(unordered, NO_SEQUENCE)
        .otherwise(other)
    )


def _is_unwrapped_row(value: Column) -> Column:
    """Returns true for an object, with or without Connect's schema around it, that has fields but none of an
    envelope."""
    text = value.cast("string")
    names = F.json_object_keys(F.when(F.col("_wrapped"), F.get_json_object(text, "$.payload")).otherwise(text))
    fields = F.array(*map(F.lit, _ENVELOPE_FIELDS))
    return F.coalesce((F.size(names) > 0) & ~F.arrays_overlap(names, fields), F.lit(False))


def _ends_snapshot(snapshot: Column) -> Column:
    """Whether the event is the last read of a snapshot; null for a read of one that reads rows again while the log goes
    on: that one never tells which rows there are not."""
    ends = F.coalesce(snapshot.isin(*_LAST_OF_SNAPSHOT), F.lit(False))
    return F.when(~F.coalesce(snapshot == INCREMENTAL, F.lit(False)), ends)
