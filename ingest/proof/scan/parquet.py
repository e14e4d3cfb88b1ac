"""Decodes Parquet files: dictionaries, every column of every row group, and the statistics of the footer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ingest.proof.scan.columns import leaves
from ingest.proof.scan.leaf import Leaf
from ingest.proof.scan.page_header import PageHeader, page_header
from ingest.proof.scan.places import Unreadable

_BATCH_BYTES = 16 << 20
_MAX_ROWS = 65_536
_HEADER_BYTES = 1 << 16
_CODECS = {
    "UNCOMPRESSED": None,
    "SNAPPY": "snappy",
    "GZIP": "gzip",
    "BROTLI": "brotli",
    "ZSTD": "zstd",
    "LZ4_RAW": "lz4_raw",
}
_OWNERS = ("source_table", "table")
"""Columns with the name of a row's table: of bronze and the archive, and of quarantine."""
_TEXT = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_STORED = {"INT32": pa.int32(), "INT64": pa.int64()}
_NUMBERS = {"INT32": "<i4", "INT64": "<i8", "FLOAT": "<f4", "DOUBLE": "<f8"}


@dataclass(frozen=True)
class DecodedColumn:
    """Decoded values in one part of the file. `table`: the table whose rows they may be of, for a part that was asked
    for by tables; empty for all rows."""

    part: str
    leaf: Leaf
    table: str = ""


@dataclass(frozen=True)
class DecodedPage:
    """The decompressed bytes of a page."""

    part: str
    body: bytes


@dataclass(frozen=True)
class Undecoded:
    """A part that could not be decoded."""

    part: str
    why: str


def owner_column(file: BinaryIO) -> str | None:
    """Returns the column that has the table of each row, of events of several tables; None if there is none."""
    try:
        names = pq.ParquetFile(pa.PythonFile(file, "r")).schema_arrow.names
    except (pa.ArrowException, OSError, ValueError):
        return None
    return next((name for name in _OWNERS if name in names), None)


def decode_parquet(
    file: BinaryIO, tables: Sequence[str] = (), known: Sequence[str] = ()
) -> Iterator[DecodedColumn | DecodedPage | Undecoded]:
    """Yields everything that the bytes of the file don't show, and for each of `tables` once more the values in rows
    that are not of another of the `known` ones. Raises Unreadable if the footer can't be read."""
    try:
        opened = pq.ParquetFile(pa.PythonFile(file, "r"))
    except (pa.ArrowException, OSError, ValueError) as failure:
        raise Unreadable(f"it is no whole Parquet file, or is encrypted ({type(failure).__name__})") from failure
    for group in range(opened.metadata.num_row_groups):
        yield from _footer(opened, group)
        yield from _dictionaries(opened, file, group)
        yield from _columns(opened, group, tables, known)


def _footer(opened: pq.ParquetFile, group: int) -> Iterator[DecodedColumn | Undecoded]:
    """Yields the minimum and maximum of each column as values, and Bloom filters as undecoded parts."""
    row_group = opened.metadata.row_group(group)
    for index in range(row_group.num_columns):
        column = row_group.column(index)
        path = tuple(column.path_in_schema.split("."))
        if getattr(column, "bloom_filter_offset", None) is not None:
            part = f"row group {group}, Bloom filter of {column.path_in_schema}"
            yield Undecoded(part, "it tells by hashes of their own which values there probably were")
        if column.is_stats_set and column.statistics.has_min_max:
            try:
                bounds = _bounds(column.statistics, _logical_type(opened, index))
            except (pa.ArrowException, ValueError, TypeError, NotImplementedError):
                yield Undecoded(f"row group {group}, statistics of {column.path_in_schema}", "they can't be decoded")
                continue
            yield DecodedColumn(f"row group {group}, statistics of {column.path_in_schema}", Leaf(path, bounds))


def _bounds(statistics: pq.Statistics, logical_type: Mapping[str, Any]) -> pa.Array:
    """Returns minimum and maximum. Dates and times are read as raw numbers, because Python has no date for a source's
    "infinity"."""
    if logical_type["Type"] in ("Date", "Timestamp"):
        return _with_logical_type(
            pa.array([statistics.min_raw, statistics.max_raw], _STORED[statistics.physical_type]), logical_type
        )
    return pa.array([statistics.min, statistics.max])


def _with_logical_type(numbers: pa.Array, logical_type: Mapping[str, Any]) -> pa.Array:
    """Returns numbers as dates or times according to the column's logical type; other values unchanged."""
    if logical_type["Type"] == "Date":
        return numbers.cast(pa.date32())
    if logical_type["Type"] == "Timestamp":
        return numbers.cast(
            pa.timestamp(_UNITS[logical_type["timeUnit"]], "UTC" if logical_type["isAdjustedToUTC"] else None)
        )
    return numbers


def _logical_type(opened: pq.ParquetFile, number: int) -> Mapping[str, Any]:
    """Returns the logical type of a column according to the footer."""
    logical_type: dict[str, Any] = json.loads(opened.schema.column(number).logical_type.to_json())
    return logical_type


def _columns(
    opened: pq.ParquetFile, group: int, tables: Sequence[str] = (), known: Sequence[str] = ()
) -> Iterator[DecodedColumn | Undecoded]:
    row_group = opened.metadata.row_group(group)
    if not row_group.num_rows:
        return
    rows = max(1, min(_MAX_ROWS, _BATCH_BYTES * row_group.num_rows // max(1, row_group.total_byte_size)))
    owner = [one for one in _OWNERS if one in opened.schema_arrow.names][:1] if tables else []
    for name in dict.fromkeys(opened.schema_arrow.names):
        part = f"row group {group}, column "
        was_read = False
        try:
            for batch in opened.iter_batches(rows, row_groups=[group], columns=[name, *owner], use_threads=False):
                for column_name, values in zip(batch.schema.names, batch.columns, strict=True):
                    if column_name == name:
                        was_read = True
                        yield from (DecodedColumn(part + ".".join(one.path), one) for one in leaves((name,), values))
                        for table in tables:
                            of_table = values.filter(_may_be_of(batch.column(owner[0]), table, known))
                            for one in leaves((name,), of_table):
                                yield DecodedColumn(part + ".".join(one.path), one, table)
        except (pa.ArrowException, OSError, ValueError, NotImplementedError) as failure:
            yield Undecoded(part + name, f"it can't be decoded ({type(failure).__name__})")
        else:
            if not was_read:
                yield Undecoded(part + name, "no reader can ask for it by its name")


def _may_be_of(owners: pa.Array, table: str, known: Sequence[str]) -> pa.Array:
    """Returns True for rows of the table and for those whose table is not known."""
    others = pa.array([other for other in known if other != table], pa.large_string())
    return pc.invert(pc.is_in(owners.cast(pa.large_string()), others))


def _dictionaries(
    opened: pq.ParquetFile, file: BinaryIO, group: int
) -> Iterator[DecodedColumn | DecodedPage | Undecoded]:
    """Yields dictionary pages, which may hold values that no row refers to."""
    row_group = opened.metadata.row_group(group)
    for number in range(row_group.num_columns):
        column = row_group.column(number)
        if column.dictionary_page_offset is None or column.physical_type not in (*_TEXT, *_NUMBERS):
            continue
        part = f"row group {group}, dictionary of {column.path_in_schema}"
        try:
            body = _dictionary(file, column.dictionary_page_offset, column.compression)
            if column.physical_type in _TEXT:
                yield DecodedPage(part, body)
            else:
                values = _with_logical_type(
                    pa.array(np.frombuffer(body, _NUMBERS[column.physical_type])), _logical_type(opened, number)
                )
                yield DecodedColumn(part, Leaf(tuple(column.path_in_schema.split(".")), values))
        except (pa.ArrowException, OSError, ValueError, IndexError, KeyError) as failure:
            yield Undecoded(part, f"it can't be decoded ({type(failure).__name__})")


def _dictionary(file: BinaryIO, begin: int, compression: str) -> bytes:
    file.seek(begin)
    header: PageHeader = page_header(file.read(_HEADER_BYTES))
    file.seek(begin + header.length)
    body = file.read(header.compressed)
    codec = _CODECS["LZ4_RAW" if compression == "LZ4" else compression]
    return body if codec is None else bytes(pa.decompress(body, decompressed_size=header.uncompressed, codec=codec))
