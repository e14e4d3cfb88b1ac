"""Reads Kafka records as change events: table, op and position, once, when the record is written to bronze.

Row images stay in the raw value. The merge decodes them from there by the types of their table: an intermediate text
would round numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.ddl_message import ddl_content, ddl_table
from ingest.changelog.dialects.registry import source_numbers
from ingest.changelog.forms import FORM_HEADER, is_row, rewritten
from ingest.changelog.naming import Naming
from ingest.changelog.origin import ORIGIN, UNNAMED
from ingest.changelog.position import (
    INCREMENTAL,
    POSITION,
    PROGRESS,
    position,
    position_in_sequence,
    progress,
    source_type,
)
from ingest.jvm.plain_json import CORRUPT, opened
from ingest.jvm.projection import Projection

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
"""A record of any source: coordinates, headers, raw key and raw value."""

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
"""A row of bronze: an event with the number of the batch in which it was captured."""

CHANGES = ("c", "u", "d", "r")
TOMBSTONE = "tombstone"
CONTROL = "control"
"""The op of heartbeats, transaction boundaries and empty records, which concern no row."""

RESYNCED = "resynced"
"""The op of a record by `changelog.resync_record`: a table was read again as a whole."""

_LAST_OF_SNAPSHOT = ("last", "last_in_data_collection")
"""Values of `source.snapshot` in the last record of a table's snapshot."""

ERASED = "ingest.erased"
"""The header of a record that an erasure has emptied, all but its coordinates. Its value is the request's ID."""

NOT_JSON = "not-json"
REGISTRY_FRAME = "schema-registry-frame"
CLOUD_EVENT = "cloud-event"
UNWRAPPED_ROW = "unwrapped-row"
UNKNOWN_OP = "unknown-op"
NO_SEQUENCE = "no-sequence"
TOO_LARGE = "too-large"
WITHOUT_ENVELOPE = (NOT_JSON, REGISTRY_FRAME, CLOUD_EVENT, UNWRAPPED_ROW, TOO_LARGE)
"""Problems of values without an envelope: which of their parts are row images is unknown."""

_YEARS_1_TO_9999 = -62_135_596_800_000, 253_402_300_799_999
"""In milliseconds since 1970-01-01."""
_FRAME_BYTES = 5
"""The size of a schema registry's frame: the byte 0 and four bytes of a schema ID."""


def _value_type(naming: Naming) -> T.StructType:
    """Returns the type by which a value is parsed: op, source, and the sequence columns in both images."""
    envelope = [T.StructField("op", T.StringType()), T.StructField("source", source_type())]
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


def has_header(header: str) -> Column:
    """Returns true if a record has a header of this name."""
    return F.coalesce(F.array_contains(F.col("headers")["key"], header), F.lit(False))


def single_header(header: str, value: Column) -> Column:
    """Returns headers that consist of this one."""
    return F.array(F.struct(F.lit(header).alias("key"), value.cast("binary").alias("value")))


def key_json(key: Column) -> Column:
    """Returns the JSON text of a record's key, without the schema that Connect may wrap it in. A key of a table with a
    column `payload` is none that is wrapped."""
    text = key.cast("string")
    names, payload = F.json_object_keys(text), F.get_json_object(text, "$.payload")
    has_others = F.size(F.array_except(names, F.array(F.lit("schema"), F.lit("payload")))) > 0
    inside = F.try_variant_get(F.try_parse_json(text), "$.payload", "variant")
    is_whole = F.array_contains(names, "schema") | F.schema_of_variant(inside).startswith("OBJECT")
    return F.coalesce(F.when(~has_others & is_whole, payload), text)


def emptied_event(request: Column) -> dict[str, Column]:
    """Returns the columns of an `EVENT` that an erasure has emptied, all but its coordinates and timestamp.

    They equal those of an empty record, plus the header `ERASED`. `request`: the ID of the request.
    """
    coordinates = ("topic", "partition", "offset", "timestamp")
    nulls = {f.name: F.lit(None).cast(f.dataType) for f in EVENT if f.name not in coordinates}
    lowest = position_in_sequence(F.lit(0), F.lit(CONTROL), F.col("offset"), F.col("partition"))
    empty_record = {
        "op": F.lit(CONTROL),
        "position": lowest,
        "wrapped": F.lit(False),
        "ends_snapshot": F.lit(False),
    }
    return nulls | empty_record | {ORIGIN: F.lit(UNNAMED)} | {"headers": single_header(ERASED, request)}


def events(records: DataFrame, naming: Naming, also: Sequence[str] = ()) -> DataFrame:
    """Returns `RECORD` rows as `EVENT` rows, one for one, and passes the columns `also` on. An event that can't be read
    has a `problem` and no op."""
    return reduce(lambda rows, projection: projection.of(rows), _projections(naming, tuple(also)), records)


@lru_cache(maxsize=64)
def _projections(naming: Naming, also: tuple[str, ...]) -> tuple[Projection, ...]:
    """Returns successive projections: parse the value, rewrite other forms, unwrap the envelope, classify the event,
    build its columns.

    An expression that several columns need is a column of an earlier projection: inlined, the plan would be many times
    as long. Cached, since building them takes longer than a small batch.
    """
    record, passed_on = [F.col(f.name) for f in RECORD.fields], [F.col(c) for c in also]
    envelope = _envelope(naming)
    steps = (
        [*record, *passed_on, opened(_limited(naming), _value_type(naming)).alias("_json")],
        *(_rewriting(naming, passed_on) if naming.may_have_other_forms else ()),
        [*record, *passed_on, *(column.alias(name) for name, column in envelope.items())],
        [
            *record,
            *passed_on,
            *map(F.col, envelope),
            *(column.alias(name) for name, column in _classified(naming).items()),
        ],
        [*_event(naming), *passed_on],
    )
    return tuple(map(Projection, steps))


def _limited(naming: Naming) -> Column:
    """Returns the value; null if it is too large to be read."""
    return F.when(F.length("value") <= naming.event_bytes, F.col("value"))


def _rewriting(naming: Naming, passed_on: Sequence[Column]) -> list[list[Column]]:
    """Returns the projections that rewrite records of other forms, and parse again those that were."""
    before = [*map(F.col, RECORD.names), *passed_on, F.col("_json")]
    op = F.coalesce("_json.op", "_json.payload.op")
    steps, names = list[list[Column]](), list[str]()
    is_control, named = naming.is_control(F.col("topic"), op), [topic for topic, _ in naming.topic_tables]
    for columns in rewritten(is_control, dict(naming.forms), named):
        steps.append([*before, *map(F.col, names), *(column.alias(name) for name, column in columns.items())])
        names += columns
    new = F.col("_rewritten")
    form = F.array(F.struct(F.lit(FORM_HEADER).alias("key"), new["form"].alias("value")))
    headers = F.concat(F.coalesce("headers", F.array().cast(RECORD["headers"].dataType)), form)
    changed = {"headers": headers, "value": new["value"], "_json": opened(new["value"], _value_type(naming))}
    after = {name: F.when(new.isNotNull(), column).otherwise(F.col(name)) for name, column in changed.items()}
    record = [after.get(name, F.col(name)).alias(name) for name in (*RECORD.names, "_json")]
    return [*steps, [*record, *passed_on]]


def _envelope(naming: Naming) -> dict[str, Column]:
    """Returns the envelope's fields, wrapped or not, with both images if a sequence column is read from them."""
    wrapped, corrupt = F.col("_json.payload").isNotNull(), F.col(f"_json.{CORRUPT}").isNotNull()

    def inside(name: str) -> Column:
        return F.when(wrapped, F.col(f"_json.payload.{name}")).otherwise(F.col(f"_json.{name}"))

    fields = {"_wrapped": wrapped, "_schema": F.col("_json.schema"), "_corrupt": corrupt}
    fields["_specversion"] = F.col("_json.specversion")
    names = ("op", "source", *(("after", "before") if naming.sequences else ()))
    return fields | {"_unread": F.col("_json").isNull() | corrupt} | {f"_{name}": inside(name) for name in names}


def _classified(naming: Naming) -> dict[str, Column]:
    """Returns the `source_numbers` of the source, `source_table`, `_definition` (content of a message about a table's
    definition), and `_control` (true: the event concerns no row)."""
    value, source = F.col("value"), F.col("_source")
    silent = F.when(value.isNull(), _key().isNull()).otherwise(F.length(value) == 0)
    is_control = silent | (value.isNotNull() & naming.is_control(F.col("topic"), F.col("_op")))
    # A null tombstone belongs to the table of the preceding change of its key, which is looked up later.
    table = F.when(~is_control & value.isNotNull(), naming.table(F.col("topic"), source))
    definition = F.when(F.col("_op") == "m", ddl_content(value))
    return source_numbers(source) | {"_control": is_control, "source_table": table, "_definition": definition}


def _key() -> Column:
    # The key of a tombstone that an erasure wrote is meant for the topic's log cleaner only.
    return F.when(F.col("value").isNotNull() | ~has_header(ERASED), F.col("key"))


def _event(naming: Naming) -> list[Column]:
    """Returns the columns of `EVENT`."""
    value, source, source_op, table = (F.col(name) for name in ("value", "_source", "_op", "source_table"))
    event_position = position(source, source_op, F.col("offset"), F.col("partition"))
    unordered = F.lit(False)
    if naming.sequences:
        name = naming.names.qualified(table, naming.origin(F.col("topic"), source))
        number, ordered = naming.sequence(name, F.col("_after"), F.col("_before"))
        unordered = source_op.isin(*CHANGES) & ordered & number.isNull()
        in_sequence = position_in_sequence(number, source_op, F.col("offset"), F.col("partition"))
        event_position = F.when(ordered & number.isNotNull(), in_sequence).otherwise(event_position)
    too_large = F.length(value) > naming.event_bytes
    known = source_op.isin(*CHANGES, "t", "m", RESYNCED) & ~F.col("_corrupt") & ~unordered & ~too_large
    op = F.when(F.col("_control"), CONTROL).when(value.isNull(), TOMBSTONE).when(known, source_op)
    return [
        *(_key().alias("key") if f.name == "key" else F.col(f.name) for f in RECORD.fields),
        F.when(source_op == "m", ddl_table(F.col("_definition"))).otherwise(table).alias("source_table"),
        op.alias("op"),
        event_position.alias("position"),
        _timestamp(source["ts_ms"]).alias("source_ts"),
        F.col("_wrapped").alias("wrapped"),
        F.when(F.col("_schema").isNotNull(), F.xxhash64("_schema")).alias("schema_id"),
        F.when(op.isNull(), F.when(too_large, TOO_LARGE).otherwise(_problem(unordered))).alias("problem"),
        _ends_snapshot(source["snapshot"]).alias("ends_snapshot"),
        progress(source, source_op).alias("progress"),
        naming.origin(F.col("topic"), source).alias(ORIGIN),
    ]


def _timestamp(millis: Column) -> Column:
    """Returns the timestamp of milliseconds since 1970-01-01; null outside of the years 1 to 9999, which some readers
    of Delta tables can't represent."""
    return F.when(millis.between(*_YEARS_1_TO_9999), F.timestamp_millis(millis))


def _problem(unordered: Column) -> Column:
    """Returns the problem of a value that is no usable change event. `unordered`: its sequence column has no value."""
    value = F.col("value")
    framed = (F.length(value) > _FRAME_BYTES) & (F.substring(value, 1, 1) == F.lit(b"\0"))
    row = F.when(F.col("_wrapped"), F.get_json_object(value.cast("string"), "$.payload")).otherwise(
        value.cast("string")
    )
    other = F.when(is_row(row), UNWRAPPED_ROW).otherwise(UNKNOWN_OP)
    return (
        F.when(framed, REGISTRY_FRAME)
        .when(F.col("_specversion").isNotNull() & F.col("_op").isNull(), CLOUD_EVENT)
        .when(F.col("_unread"), NOT_JSON)
        .when(unordered, NO_SEQUENCE)
        .otherwise(other)
    )


def _ends_snapshot(snapshot: Column) -> Column:
    """Returns true for the last read of a table's snapshot; null for reads of an incremental snapshot, from which
    missing rows can't be inferred."""
    ends = F.coalesce(snapshot.isin(*_LAST_OF_SNAPSHOT), F.lit(False))
    return F.when(~F.coalesce(snapshot == INCREMENTAL, F.lit(False)), ends)
