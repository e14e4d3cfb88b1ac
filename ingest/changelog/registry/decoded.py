"""Decodes records whose schemas are in a registry into Debezium's JSON with its schema, so that bronze holds one form
and no later step needs the registry. Keys become JSON without a schema.

An integer, a decimal's bytes or a date stay as the connector wrote them: the schema in the value tells what they are,
as it does where Connect's JsonConverter writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from ingest.changelog.envelope import RECORD, has_header
from ingest.changelog.registry.avro_schema import READ_FIELD
from ingest.changelog.registry.frames import Part, body_of, frame_of
from ingest.changelog.registry.map_entries import with_pairs
from ingest.changelog.registry.registered_schema import Kind, ReadSchema
from ingest.jvm.projection import Projection

ENCODING_HEADER = "ingest.encoding"
"""Header of a record that was decoded. Its value is the language of its schema: avro, json-schema or connect-json."""
UNKNOWN_SCHEMA = "ingest: a record's schema is not known: "
"""Beginning of the message with which a decoding fails for a frame that is not among the known ones."""
_READ = f'{{"{READ_FIELD}":true'
_NOT_READ = f'{{"{READ_FIELD}":null'
_PARTS: tuple[Part, ...] = ("key", "value")


def decoding(schemas: Mapping[bytes, ReadSchema | None]) -> tuple[Projection, ...]:
    """Returns successive projections of `RECORD` rows to decoded ones.

    Records without a frame, and those that their schema can't read, stay as they are. A frame that is not among the
    schemas fails the job with `UNKNOWN_SCHEMA`. `schemas`: frame → how it is read; None: stays as it is."""
    record = [F.col(f.name) for f in RECORD.fields]
    is_decoded = has_header(ENCODING_HEADER)
    frames = [F.when(~is_decoded, frame_of(part)).alias(f"_{part}_frame") for part in _PARTS]
    texts = [_text(part, schemas).alias(f"_{part}_text") for part in _PARTS]
    framed = [F.col(f"_{part}_frame") for part in _PARTS]
    return tuple(map(Projection, ([*record, *frames], [*record, *framed, *texts], _record(schemas))))


def frames_in() -> Column:
    """Returns the frames of a `RECORD`'s key and value that are to be decoded, as an array."""
    return F.array_compact(F.array(*(F.when(~has_header(ENCODING_HEADER), frame_of(part)) for part in _PARTS)))


def _chosen(
    part: Part, schemas: Mapping[bytes, ReadSchema | None], column: Callable[[bytes, ReadSchema], Column]
) -> Column:
    """Returns a column by the schema of a part; null for parts without one."""
    frame, found = F.col(f"_{part}_frame"), F.when(F.col(f"_{part}_frame").isNull(), F.lit(None).cast("string"))
    for known, schema in schemas.items():
        found = found.when(
            frame == F.lit(known), F.lit(None).cast("string") if schema is None else column(known, schema)
        )
    return found


def _text(part: Part, schemas: Mapping[bytes, ReadSchema | None]) -> Column:
    """Returns the JSON text of a part, with the field `READ_FIELD` first if it was Avro."""

    def text(frame: bytes, schema: ReadSchema) -> Column:
        body = body_of(part, frame)
        if schema.kind is not Kind.AVRO:
            return body.cast("string")
        row = from_avro(body, schema.writer, {"avroSchema": schema.reader, "mode": "PERMISSIVE"})
        return F.to_json(with_pairs(row, schema.read_connect), {"ignoreNullFields": "false"})

    frame = F.col(f"_{part}_frame")
    return _chosen(part, schemas, text).otherwise(F.raise_error(F.concat(F.lit(UNKNOWN_SCHEMA), F.hex(frame))))


def _record(schemas: Mapping[bytes, ReadSchema | None]) -> list[Column]:
    key, value = _payload("key"), _payload("value")
    head = _chosen("value", schemas, lambda _, schema: F.lit(f'{{"schema":{schema.embedded},"payload":'))
    event = F.concat(head, value, F.lit("}"))
    kinds = [_chosen(part, schemas, lambda _, schema: F.lit(schema.kind.value)) for part in ("value", "key")]
    kind = F.coalesce(F.when(event.isNotNull(), kinds[0]), F.when(key.isNotNull(), kinds[1]))
    mark = F.array(F.struct(F.lit(ENCODING_HEADER).alias("key"), kind.cast("binary").alias("value")))
    headers = F.concat(F.coalesce("headers", F.array().cast(RECORD["headers"].dataType)), mark)
    changed = {
        "headers": F.when(kind.isNotNull(), headers).otherwise(F.col("headers")),
        "key": F.coalesce(key.cast("binary"), "key"),
        "value": F.coalesce(event.cast("binary"), "value"),
    }
    return [changed.get(name, F.col(name)).alias(name) for name in RECORD.names]


def _payload(part: Part) -> Column:
    """Returns the text of a part as Connect's JsonConverter writes it; null where it could not be read."""
    text = F.col(f"_{part}_text")
    fields = F.ltrim(F.substring(text, len(_READ) + 1, 2**31 - 1), F.lit(","))
    cut = F.when(text.startswith(_READ), F.concat(F.lit("{"), fields))
    return cut.when(text.startswith(_NOT_READ), F.lit(None).cast("string")).otherwise(text)
