"""Maps Arrow types to those of the same values in Kafka Connect's JSON: times become integers since the epoch or
midnight."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from ingest.archive.store import ObjectStore

_TAIL = 64 << 10
_ENDING = 8
"""Bytes at a Parquet file's end: the footer's size (4) and the magic (4)."""


def footer_schema(store: ObjectStore, key: str, magic: bytes) -> pa.Schema | None:
    """Returns the schema of a Parquet object, with `connect_json_types`, from its footer; None for another format."""
    tail = store.tail(key, _TAIL)
    if not tail.endswith(magic):
        return None
    size = int.from_bytes(tail[-_ENDING : -len(magic)], "little") + _ENDING
    if size > len(tail):
        tail = store.tail(key, size)
    return connect_json_types(pq.read_schema(pa.BufferReader(tail)))


def connect_json_types(schema: pa.Schema) -> pa.Schema:
    """Returns the schema with the types of Kafka Connect's JSON."""
    return pa.schema([field.with_type(_connect_json_type(field.type)) for field in schema])


def _connect_json_type(type_: pa.DataType) -> pa.DataType:
    if pt.is_timestamp(type_) or pt.is_time64(type_):
        return pa.int64()
    if pt.is_date(type_) or pt.is_time32(type_):
        return pa.int32()
    if pt.is_null(type_) or pt.is_dictionary(type_):
        return pa.string()
    if pt.is_struct(type_):
        return pa.struct([field.with_type(_connect_json_type(field.type)) for field in type_])
    if pt.is_map(type_):
        return pa.map_(_connect_json_type(type_.key_type), _connect_json_type(type_.item_type))
    if pt.is_list(type_) or pt.is_large_list(type_):
        return pa.list_(_connect_json_type(type_.value_type))
    return type_
