"""Canary files in every format that the scanner decodes, each with all canaries."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.proof.canaries.canary import Canary
from ingest.proof.canaries.canary_encodings import COLUMN
from ingest.proof.canaries.kafka_batch import CODECS, segment, xerial
from ingest.proof.canaries.typed_canaries import in_typed_columns, typed_columns
from ingest.proof.scan.compressed import PIECE
from ingest.proof.scan.kinds import HEAD

_PARQUET_CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
_CHECKPOINT = "_delta_log/00000000000000000010.checkpoint.parquet"
_PARQUET_PARTS = ("column", "dictionary of", "statistics of")


@dataclass(frozen=True)
class CanaryFile:
    """`parts`: beginnings of names of file parts, in each of which every canary has to be found. `holds`: the canaries
    in the file; all by default."""

    format: str
    file: str
    body: bytes
    parts: tuple[str, ...]
    holds: tuple[Canary, ...] | None = None


def canary_files(canaries: Sequence[Canary], number: Canary) -> Iterator[CanaryFile]:
    """Yields the files one by one."""
    bodies = [c.body for c in (*canaries, number)]
    text = b"\n".join(bodies)
    yield CanaryFile("text", "_delta_log/00000000000000000000.json", text, ("its bytes",))
    two = (canaries[0], number)
    yield CanaryFile("text across borders", "border.json", _across_borders(two), ("its bytes",), two)
    for name, (suffix, compress) in _COMPRESSED.items():
        yield CanaryFile(name, f"packed.{suffix}", compress(text), (f"{name}: its bytes",))
    yield CanaryFile("snappy frames", "frames.sz", _snappy_frames(text), ("snappy: its bytes",))
    yield CanaryFile("zip", "packed.zip", _zip(text), ("zip, inside.json: its bytes",))
    yield CanaryFile(
        "Parquet in gzip", "inside.parquet.gz", gzip.compress(_parquet(canaries, number)), ("gzip: row group",)
    )
    for codec in _PARQUET_CODECS:
        parts = tuple(f"row group 0, {part} " for part in _PARQUET_PARTS)
        body = _parquet(canaries, number, compression=codec)
        yield CanaryFile(f"Parquet, {codec}", f"{codec}.parquet", body, parts)
    for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"):
        body = _parquet(canaries, number, encoding=encoding)
        yield CanaryFile(f"Parquet, {encoding}", f"{encoding}.parquet", body, ("row group 0, column ",))
    typed = in_typed_columns(tuple(canaries))
    yield CanaryFile("Parquet, types", "types.parquet", typed_columns(typed), ("row group 0, column ",), typed)
    yield CanaryFile("Parquet, nested", _CHECKPOINT, _nested(canaries, number), ("row group 0, column ",))
    yield CanaryFile("Parquet, footer", "footer.parquet", _footer(text), ("its bytes",))
    for number_of, codec in enumerate(CODECS):
        part = "its bytes" if codec == "none" else f"records compressed by {codec}"
        yield CanaryFile(f"Kafka, {codec}", f"{number_of:020d}.log", segment(bodies, codec), (part,))
    vector = f"deletion_vector_{'0' * 8}-{'0' * 4}-{'0' * 4}-{'0' * 4}-{'0' * 12}.bin"
    yield CanaryFile("deletion vector", vector, b"\x01" + text, ("its bytes",))


def _across_borders(placed: Sequence[Canary]) -> bytes:
    """Returns bytes in which each canary straddles the end of a piece in which the scanner reads files."""
    out = bytearray()
    for i, canary in enumerate(placed):
        border = HEAD + i * PIECE
        out += b" " * (border - len(canary.body) // 2 - len(out)) + canary.body
    return bytes(out)


def _columns(canaries: Sequence[Canary], number: Canary) -> dict[str, Any]:
    """Returns one row, so that each value is its column's minimum and maximum."""
    columns: dict[str, Any] = {f"c{i}": [c.body] for i, c in enumerate(canaries)}
    return columns | {COLUMN: [int(number.term.value)]}


def _parquet(
    canaries: Sequence[Canary], number: Canary, encoding: str | None = None, compression: str = "zstd"
) -> bytes:
    columns = _columns(canaries, number)
    options: dict[str, Any] = {"compression": compression}
    if encoding is not None:
        by_column = dict.fromkeys((name for name in columns if name != COLUMN), encoding)
        options |= {"use_dictionary": False, "column_encoding": by_column, "write_statistics": False}
    return _written(pa.table(columns), **options)


def _nested(canaries: Sequence[Canary], number: Canary) -> bytes:
    row = [{"in": [c.body for c in canaries], COLUMN: int(number.term.value)}]
    pairs = pa.array([[("k", canaries[0].body)]], pa.map_(pa.string(), pa.binary()))
    return _written(pa.table({"s": pa.array(row), "m": pairs}), write_statistics=False)


def _footer(text: bytes) -> bytes:
    return _written(pa.table({"a": [1]}).replace_schema_metadata({b"canary": text}), compression="zstd")


def _written(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def _zip(text: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inside.json", text)
    return out.getvalue()


def _lz4_blocks(text: bytes) -> bytes:
    body: bytes = pa.compress(text, codec="lz4_raw", asbytes=True)
    end = b"LZ4Block\x15" + struct.pack("<iii", 0, 0, 0)
    return b"LZ4Block\x25" + struct.pack("<iii", len(body), len(text), 0) + body + end


def _snappy_frames(text: bytes) -> bytes:
    body: bytes = bytes(4) + pa.compress(text, codec="snappy", asbytes=True)
    return b"\xff\x06\x00\x00sNaPpY" + b"\x00" + len(body).to_bytes(3, "little") + body


_COMPRESSED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("json.gz", gzip.compress),
    "bzip2": ("json.bz2", bz2.compress),
    "xz": ("json.xz", lzma.compress),
    "zstd": ("json.zst", partial(pa.compress, codec="zstd", asbytes=True)),
    "lz4": ("json.lz4", partial(pa.compress, codec="lz4", asbytes=True)),
    "snappy": ("snappy", xerial),
    "lz4 blocks": ("delta", _lz4_blocks),
}
