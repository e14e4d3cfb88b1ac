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
    """Returns the schema of a Parquet object after `plain`, read from its footer only; None for another format."""
    tail = store.tail(key, _TAIL)
    if not tail.endswith(magic):
        return None
    size = int.from_bytes(tail[-_ENDING : -len(magic)], "little") + _ENDING
    if size > len(tail):
        tail = store.tail(key, size)
    return plain(pq.read_schema(pa.BufferReader(tail)))


def plain(schema: pa.Schema) -> pa.Schema:
    """Returns the schema with the types of Kafka Connect's JSON."""
    return pa.schema([field.with_type(_plain(field.type)) for field in schema])


def _plain(of: pa.DataType) -> pa.DataType:
    if pt.is_timestamp(of) or pt.is_time64(of):
        return pa.int64()
    if pt.is_date(of) or pt.is_time32(of):
        return pa.int32()
    if pt.is_null(of) or pt.is_dictionary(of):
        return pa.string()
    if pt.is_struct(of):
        return pa.struct([field.with_type(_plain(field.type)) for field in of])
    if pt.is_map(of):
        return pa.map_(_plain(of.key_type), _plain(of.item_type))
    if pt.is_list(of) or pt.is_large_list(of):
        return pa.list_(_plain(of.value_type))
    return of
