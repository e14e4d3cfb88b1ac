"""Writes objects as Kafka Connect's S3 sink connectors do, from records of a changelog."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.changelogs import Record

Objects = dict[str, bytes]
"""Name → body."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONG = pa.int64()
_SOURCE = pa.struct(
    [("connector", pa.string()), ("schema", pa.string()), ("table", pa.string()), ("lsn", _LONG), ("ts_ms", _LONG)]
)


def compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def flushes(records: Sequence[Record], size: int) -> Iterator[list[Record]]:
    """Yields each topic partition's records in groups of `size`."""
    place = {(r["topic"], r["partition"]): None for r in records}
    for topic, partition in place:
        own = [r for r in records if (r["topic"], r["partition"]) == (topic, partition)]
        yield from (own[i : i + size] for i in range(0, len(own), size))


def confluent(
    records: Sequence[Record], size: int, keys: bool = True, zipped: bool = False, by_hour: bool = False
) -> Objects:
    """Returns objects of JsonFormat with behavior.on.null.values=write. `keys`: store.kafka.keys. Headers are written
    if the first record has any. `by_hour`: the time-based partitioner, with a new object for each hour."""
    found: Objects = {}
    for flush in flushes(records, size):
        for folder, some in groupby(sorted(flush, key=lambda r: _folder(r, by_hour)), lambda r: _folder(r, by_hour)):
            written = list(some)
            name = f"{written[0]['topic']}/{folder}/{_stem(written[0])}"
            parts = {"": None if folder == "tombstone" else [r["value"] for r in written]}
            parts[".keys"] = [r["key"] for r in written] if keys or folder == "tombstone" else None
            if "headers" in written[0]:
                parts[".headers"] = [{"headers": r["headers"]} for r in written]
            for part, values in parts.items():
                if values is not None:
                    body = b"".join(compact(v) + b"\n" for v in values)
                    found[f"{name}{part}.json" + (".gz" if zipped else "")] = gzip.compress(body) if zipped else body
    return found


def _stem(first: Record) -> str:
    return f"{first['topic']}+{first['partition']}+{first['offset']:010d}"


def _folder(record: Record, by_hour: bool) -> str:
    if record["value"] is None:
        return "tombstone"
    if not by_hour:
        return f"partition={record['partition']}"
    at = _EPOCH + timedelta(milliseconds=record["timestamp"])
    return at.strftime("year=%Y/month=%m/day=%d/hour=%H")


def confluent_parquet(records: Sequence[Record], size: int) -> Objects:
    """Returns objects of ParquetFormat, with keys in JSON objects."""
    found = confluent(records, size)
    for flush in flushes(records, size):
        name = f"{flush[0]['topic']}/partition={flush[0]['partition']}/{_stem(flush[0])}"
        del found[f"{name}.json"]
        rows = pa.Table.from_pylist([r["value"] for r in flush], schema=pa.schema(list(envelope(flush))))
        found[f"{name}.snappy.parquet"] = _parquet(rows, "snappy")
    return found


def aiven(records: Sequence[Record], size: int, *left_out: str) -> Objects:
    """Returns objects with format.output.type=jsonl, file.compression.type=gzip, and all fields except `left_out`."""
    found: Objects = {}
    for flush in flushes(records, size):
        lines = [{k: v for k, v in _fields(r).items() if k not in left_out} for r in flush]
        found[f"{_aiven_name(flush[0])}.gz"] = gzip.compress(b"\n".join(compact(line) for line in lines))
    return found


def aiven_parquet(records: Sequence[Record], size: int) -> Objects:
    """Returns objects with format.output.type=parquet and file.compression.type=none, whose names have no extension."""
    found: Objects = {}
    for flush in flushes(records, size):
        key = pa.struct([("id", pa.int32())])
        value = envelope(flush)
        schema = [("key", key), ("offset", _LONG), ("timestamp", _LONG), ("headers", pa.map_(pa.string(), pa.string()))]
        rows = [
            {"key": r["key"], "offset": r["offset"], "timestamp": r["timestamp"], "headers": {}, "value": r["value"]}
            for r in flush
        ]
        table = pa.Table.from_pylist(rows, schema=pa.schema([*schema, ("value", value)]))
        found[_aiven_name(flush[0])] = _parquet(table, "none")
    return found


def _aiven_name(first: Record) -> str:
    return f"{first['topic']}-{first['partition']}-{first['offset']}"


def _fields(record: Record) -> dict[str, Any]:
    at = _EPOCH + timedelta(milliseconds=record["timestamp"])
    iso = at.isoformat(timespec="milliseconds" if at.microsecond else "seconds").replace("+00:00", "Z")
    own = {k: record[k] for k in ("key", "value", "offset")}
    return own | {"timestamp": iso, "headers": record.get("headers", [])}


def envelope(records: Sequence[Record]) -> pa.StructType:
    """Returns the Arrow type of the records' values, whose columns are integers and strings."""
    images = [r["value"][i] for r in records if r["value"] for i in ("before", "after") if r["value"][i]]
    columns = {c: pa.int32() if isinstance(v, int) else pa.string() for image in images for c, v in image.items()}
    image = pa.struct(list(columns.items()))
    return pa.struct([("before", image), ("after", image), ("source", _SOURCE), ("op", pa.string())])


def _parquet(table: pa.Table, compression: str) -> bytes:
    body = io.BytesIO()
    pq.write_table(table, body, compression=compression)
    return body.getvalue()
