"""Parquet files decoded: dictionaries, every column of every row group, and what the footer says of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.proof.scan.columns import Leaf, leaves
from ingest.proof.scan.page_header import PageHeader, page_header
from ingest.proof.scan.places import Unreadable

_BATCH_BYTES = 16 << 20
_MOST_ROWS = 65_536
_HEADER_BYTES = 1 << 16
_CODECS = {
    "UNCOMPRESSED": None,
    "SNAPPY": "snappy",
    "GZIP": "gzip",
    "BROTLI": "brotli",
    "ZSTD": "zstd",
    "LZ4_RAW": "lz4_raw",
}
_TEXT = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_STORED = {"INT32": pa.int32(), "INT64": pa.int64()}
_NUMBERS = {"INT32": "<i4", "INT64": "<i8", "FLOAT": "<f4", "DOUBLE": "<f8"}


@dataclass(frozen=True)
class Column:
    """Decoded values in one part of the file."""

    part: str
    leaf: Leaf


@dataclass(frozen=True)
class Page:
    """The bytes of a page as they were before they were compressed."""

    part: str
    body: bytes


@dataclass(frozen=True)
class Undecoded:
    """A part that could not be decoded."""

    part: str
    why: str


def decoded(file: BinaryIO) -> Iterator[Column | Page | Undecoded]:
    """Everything that the file's own bytes don't show. Raises Unreadable where it has no footer that can be read."""
    try:
        opened = pq.ParquetFile(pa.PythonFile(file, "r"))
    except (pa.ArrowException, OSError, ValueError) as failure:
        raise Unreadable(f"it is no whole Parquet file, or is encrypted ({type(failure).__name__})") from failure
    for group in range(opened.metadata.num_row_groups):
        yield from _footer(opened, group)
        yield from _dictionaries(opened, file, group)
        yield from _columns(opened, group)


def _footer(opened: pq.ParquetFile, group: int) -> Iterator[Column | Undecoded]:
    """The least and the greatest value of each column, as values; and the filters that tell of others."""
    said = opened.metadata.row_group(group)
    for number in range(said.num_columns):
        column = said.column(number)
        path = tuple(column.path_in_schema.split("."))
        if getattr(column, "bloom_filter_offset", None) is not None:
            part = f"row group {group}, Bloom filter of {column.path_in_schema}"
            yield Undecoded(part, "it tells by hashes of their own which values there probably were")
        if column.is_stats_set and column.statistics.has_min_max:
            try:
                bounds = _bounds(column.statistics, _logical(opened, number))
            except (pa.ArrowException, ValueError, TypeError, NotImplementedError):
                yield Undecoded(f"row group {group}, statistics of {column.path_in_schema}", "they can't be decoded")
                continue
            yield Column(f"row group {group}, statistics of {column.path_in_schema}", Leaf(path, bounds))


def _bounds(said: pq.Statistics, meant: Mapping[str, Any]) -> pa.Array:
    """A source's "infinity" is a year that Python has no date for: of dates and times the numbers are taken."""
    if meant["Type"] in ("Date", "Timestamp"):
        return _meant(pa.array([said.min_raw, said.max_raw], _STORED[said.physical_type]), meant)
    return pa.array([said.min, said.max])


def _meant(numbers: pa.Array, meant: Mapping[str, Any]) -> pa.Array:
    """Dates and times out of the numbers that a file has in their place; others stay what they are."""
    if meant["Type"] == "Date":
        return numbers.cast(pa.date32())
    if meant["Type"] == "Timestamp":
        return numbers.cast(pa.timestamp(_UNITS[meant["timeUnit"]], "UTC" if meant["isAdjustedToUTC"] else None))
    return numbers


def _logical(opened: pq.ParquetFile, number: int) -> Mapping[str, Any]:
    """What the values of a column mean, as the file says."""
    told: dict[str, Any] = json.loads(opened.schema.column(number).logical_type.to_json())
    return told


def _columns(opened: pq.ParquetFile, group: int) -> Iterator[Column | Undecoded]:
    said = opened.metadata.row_group(group)
    if not said.num_rows:
        return
    rows = max(1, min(_MOST_ROWS, _BATCH_BYTES * said.num_rows // max(1, said.total_byte_size)))
    for name in dict.fromkeys(opened.schema_arrow.names):
        part = f"row group {group}, column "
        came = False
        try:
            for batch in opened.iter_batches(rows, row_groups=[group], columns=[name], use_threads=False):
                for found, values in zip(batch.schema.names, batch.columns, strict=True):
                    if found == name:
                        came = True
                        yield from (Column(part + ".".join(one.path), one) for one in leaves((name,), values))
        except (pa.ArrowException, OSError, ValueError, NotImplementedError) as failure:
            yield Undecoded(part + name, f"it can't be decoded ({type(failure).__name__})")
        else:
            if not came:
                yield Undecoded(part + name, "no reader can ask for it by its name")


def _dictionaries(opened: pq.ParquetFile, file: BinaryIO, group: int) -> Iterator[Column | Page | Undecoded]:
    """A dictionary may hold what no row refers to."""
    said = opened.metadata.row_group(group)
    for number in range(said.num_columns):
        column = said.column(number)
        if column.dictionary_page_offset is None or column.physical_type not in (*_TEXT, *_NUMBERS):
            continue
        part = f"row group {group}, dictionary of {column.path_in_schema}"
        try:
            body = _dictionary(file, column.dictionary_page_offset, column.compression)
            if column.physical_type in _TEXT:
                yield Page(part, body)
            else:
                values = _meant(pa.array(np.frombuffer(body, _NUMBERS[column.physical_type])), _logical(opened, number))
                yield Column(part, Leaf(tuple(column.path_in_schema.split(".")), values))
        except (pa.ArrowException, OSError, ValueError, IndexError, KeyError) as failure:
            yield Undecoded(part, f"it can't be decoded ({type(failure).__name__})")


def _dictionary(file: BinaryIO, begin: int, compression: str) -> bytes:
    file.seek(begin)
    header: PageHeader = page_header(file.read(_HEADER_BYTES))
    file.seek(begin + header.length)
    body = file.read(header.compressed)
    codec = _CODECS["LZ4_RAW" if compression == "LZ4" else compression]
    return body if codec is None else bytes(pa.decompress(body, decompressed_size=header.uncompressed, codec=codec))
