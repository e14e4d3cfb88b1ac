"""Reads a sink connector's object into rows, after verifying its offsets against its name and the next object's."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from ingest.archive.connect.json_types import connect_json_types
from ingest.archive.connect.listing import ConnectorObject, TopicSelection
from ingest.archive.reading import OpenResult
from ingest.archive.store import ObjectMissing, ObjectStore

PARQUET = b"PAR1"
_GZIP = b"\x1f\x8b"
_UNREADABLE = (pa.ArrowException, OSError, EOFError, zlib.error)
_FIELDS = pj.ParseOptions(
    explicit_schema=pa.schema([("offset", pa.int64()), ("timestamp", pa.string())]), unexpected_field_behavior="ignore"
)
_TIME = pa.timestamp("ms", "UTC")


class _Damaged(Exception):
    """The message describes what is wrong with an object."""


@dataclass(frozen=True)
class ObjectContents:
    """Opens objects. `gaps`: offsets may be missing. `timed`: each record must have a timestamp."""

    store: ObjectStore
    connector: str
    selection: TopicSelection
    gaps: bool
    timed: bool

    def open_object(self, one: ConnectorObject) -> OpenResult:
        """Returns the object's rows; or None and a description of its damage.

        Columns: topic, partition, offset, timestamp, and key, headers and line as bytes. Of a Parquet object a struct
        column `row` with the file's columns takes the place of `line`."""
        try:
            rows = self._confluent(one) if self.connector == "confluent" else self._aiven(one)
            self._require_whole(one, rows["offset"])
        except ObjectMissing as absent:
            return None, "is missing" if str(absent) == one.key else f"lacks {absent}, which is missing"
        except _Damaged as damaged:
            return None, str(damaged)
        except _UNREADABLE as error:
            return None, f"can't be read to its end ({type(error).__name__})"
        count = len(rows["offset"])
        same = {
            "topic": pa.repeat(one.topic, count),
            "partition": pa.repeat(pa.scalar(one.partition, pa.int32()), count),
        }
        return pa.table(same | rows), None

    def _confluent(self, one: ConnectorObject) -> dict[str, pa.Array]:
        body = self.store.get(one.key, one.etag)
        keys = _lines(self.store.get(one.keys)) if one.keys else None
        headers = _lines(self.store.get(one.headers)) if one.headers else None
        if one.part == "tombstones":
            keys = _lines(body)
            rows = {"line": pa.nulls(len(keys), pa.binary())}
        elif body.startswith(PARQUET):
            rows = {"row": _table(body).to_struct_array().combine_chunks()}
        else:
            rows = {"line": _lines(body)}
        (values,) = rows.values()
        for what, others in (("keys", keys), ("headers", headers)):
            if others is not None and len(others) != len(values):
                raise _Damaged(f"holds {len(values)} values, and the object with their {what} {len(others)}")
        if keys is None and "line" in rows and pc.any(pc.equal(values, b"null")).as_py():
            raise _Damaged("holds null values, and no keys tell what was deleted")
        offsets = pa.array(np.arange(len(values), dtype=np.int64) + one.first_offset)
        unknown = pa.nulls(len(values), pa.binary())
        parts = {"key": unknown if keys is None else keys, "headers": unknown if headers is None else headers}
        return {"offset": offsets, "timestamp": pa.nulls(len(values), _TIME), **parts, **rows}

    def _aiven(self, one: ConnectorObject) -> dict[str, pa.Array]:
        body = self.store.get(one.key, one.etag)
        if body.startswith(PARQUET):
            table = _table(body)
            self._require_fields(one, set(table.column_names))
            row = table.to_struct_array().combine_chunks()
            offsets = table["offset"].combine_chunks()
            times = table["timestamp"].cast(_TIME).combine_chunks() if "timestamp" in table.column_names else None
            return self._timed({"offset": offsets, "row": row}, times)
        text = _text(body)
        first = text.split(b"\n", 1)[0]
        try:
            fields = json.loads(first)
        except ValueError as error:
            raise _Damaged("begins with no line of JSON (format.output.type=jsonl)") from error
        self._require_fields(one, set(fields) if isinstance(fields, dict) else set())
        lines = pa.array(text.removesuffix(b"\n").split(b"\n"), pa.binary())
        options = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
        parsed = pj.read_json(pa.BufferReader(text), read_options=options, parse_options=_FIELDS)
        if len(parsed) != len(lines):
            raise _Damaged(f"holds {len(lines)} lines and {len(parsed)} records")
        offsets, times = (parsed[c].combine_chunks() for c in ("offset", "timestamp"))
        return self._timed({"offset": offsets, "line": lines}, times.cast(_TIME))

    def _require_fields(self, one: ConnectorObject, fields: set[str]) -> None:
        needed = {"value", "offset"} | ({"timestamp"} if self.timed else set())
        if not self.selection.declares_key(one.topic):
            needed.add("key")
        lacking = sorted(needed - fields)
        if lacking:
            raise _Damaged(f"holds records without {', '.join(lacking)} (format.output.fields)")

    def _timed(self, rows: dict[str, pa.Array], times: pa.Array | None) -> dict[str, pa.Array]:
        count = len(rows["offset"])
        times = pa.nulls(count, _TIME) if times is None else times
        if self.timed and times.null_count:
            raise _Damaged(f"holds {times.null_count} records that don't tell when they were written")
        return {
            "timestamp": times,
            "key": pa.nulls(count, pa.binary()),
            "headers": pa.nulls(count, pa.binary()),
            **rows,
        }

    def _require_whole(self, one: ConnectorObject, offsets: pa.Array) -> None:
        if not len(offsets):
            raise _Damaged("is empty")
        if offsets.null_count or not pc.all(pc.greater(pc.pairwise_diff(offsets), 0), min_count=0).as_py():
            raise _Damaged("holds offsets that don't ascend")
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        if first != one.first_offset:
            raise _Damaged(f"begins with offset {first}, and is named after {one.first_offset}")
        if one.next_offset < 0:
            # The last object of a partition: its end is the one that was read when it was listed.
            fits = one.last_offset in (first, last)
            span = last - first + 1
        else:
            fits = last < one.next_offset
            span = one.next_offset - first
        if not fits or (not self.gaps and len(offsets) != span):
            raise _Damaged(f"holds {len(offsets)} records where {span} offsets were, up to the next object's first one")


def _text(body: bytes) -> bytes:
    return gzip.decompress(body) if body.startswith(_GZIP) else body


def _lines(body: bytes) -> pa.Array:
    """Returns the lines. Raises _Damaged where the last one has no newline, which means that the object is
    truncated."""
    text = _text(body)
    if text and not text.endswith(b"\n"):
        raise _Damaged("is truncated: its last line has no end")
    return pa.array(text.split(b"\n")[:-1], pa.binary())


def _table(body: bytes) -> pa.Table:
    table = pq.read_table(pa.BufferReader(body), use_threads=False)
    return table.cast(connect_json_types(table.schema))
