"""Base64 that has to be decoded before it can be searched: with line breaks, or of a compressed or nested document."""

from __future__ import annotations

import base64
import bz2
import lzma
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from ingest.proof.forms.encodings import BROKEN_BASE64

_BREAKS = (
    re.compile(rb"\n(?<=[A-Za-z0-9+/_-]{38}[A-Za-z0-9+/_\r-]\n)"),
    re.compile(rb"\\n(?<=[A-Za-z0-9+/_-]{38}[A-Za-z0-9+/_\\-]{4}\\n)"),
)
"""The end of a line of base64: with a line feed, or as JSON writes one. The literal comes first, which is fast."""
_BREAK = re.compile(rb"\r?\n|(?:\\+r)?\\+n")
_LINES = re.compile(rb"(?:[A-Za-z0-9+/_-]{4,}(?:\r?\n|(?:\\+r)?\\+n))+[A-Za-z0-9+/_-]*={0,2}")
_RUN = re.compile(rb"[A-Za-z0-9+/_-]*={0,2}")
_CHARACTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_MAX_LINE = 4096
MAX_RUN = 16 << 20
"""Longer runs of base64 are decoded as far as this."""
_MAX_DECODED = 64 << 20
_NOT_STANDARD = bytes.maketrans(b"-_", b"+/")


@dataclass(frozen=True)
class Block:
    """Decoded bytes of the base64 at `begin` to `end`. `form`: what it was. `is_partial`: True if it is so large that
    not all of it was decoded."""

    begin: int
    end: int
    form: str
    body: bytes
    is_partial: bool = False


def _deflated(body: bytes) -> bytes:
    return zlib.decompressobj(wbits=47).decompress(body, _MAX_DECODED)


def _arrow(codec: str, body: bytes) -> bytes:
    return bytes(pa.CompressedInputStream(pa.BufferReader(body), codec).read(_MAX_DECODED))


_CONTAINERS = {
    b"H4sI": ("gzip in base64", _deflated),
    b"KLUv": ("zstd in base64", lambda body: _arrow("zstd", body)),
    b"BCJNG": ("lz4 in base64", lambda body: _arrow("lz4", body)),
    b"Qlpo": ("bzip2 in base64", lambda body: bz2.BZ2Decompressor().decompress(body, _MAX_DECODED)),
    b"/Td6WFo": ("xz in base64", lambda body: lzma.LZMADecompressor().decompress(body, _MAX_DECODED)),
    b"eyJ": ("JSON in base64", lambda body: body),
    b"W3si": ("JSON in base64", lambda body: body),
    **{
        b'"' + start: ("zlib in base64", _deflated)
        for start in (
            *(b"eA" + bytes([c]) for c in b"EFGH"),
            *(b"eF" + bytes([c]) for c in b"4567"),
            *(b"eJ" + bytes([c]) for c in b"wxyz"),
            *(b"eN" + bytes([c]) for c in b"opqr"),
        )
    },
}
"""First characters of base64 → its form, and what decodes the bytes. Those of zlib are so few that a quotation mark has
to be before them."""
CONTAINERS = tuple(_CONTAINERS)
CONTAINER_FORMS = tuple(dict.fromkeys(form for form, _ in _CONTAINERS.values()))


def container(window: bytes | memoryview, first: int, magic: bytes) -> Block | None:
    """Returns the document whose base64 begins with `magic` at `first`, or None if there is none."""
    begin = first + magic.startswith(b'"')
    if bytes(window[first : first + len(magic)]) != magic:
        return None
    if first == begin and first and window[first - 1] in _CHARACTERS:
        return None
    runs = [run.match(window, begin, begin + MAX_RUN) for run in (_RUN, _LINES)]
    run = max((run for run in runs if run is not None), key=lambda run: run.end())
    form, decode = _CONTAINERS[magic]
    try:
        body = decode(decode_base64(_BREAK.sub(b"", bytes(run[0]))))
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, pa.ArrowException):
        body = b""
    is_partial = run.end() - begin >= MAX_RUN or len(body) >= _MAX_DECODED
    return Block(begin, run.end(), form, body, is_partial)


def broken_blocks(window: bytes) -> Iterator[Block]:
    """Yields base64 with line breaks, decoded; from each of the alignments if its beginning may be missing."""
    end = 0
    for at in sorted(found.start() for line_break in _BREAKS for found in line_break.finditer(window)):
        if at < end:
            continue
        before = window[max(0, at - _MAX_LINE) : at].rstrip(b"\r\\rn")
        begin = max(0, at - _MAX_LINE) + len(before.rstrip(_CHARACTERS))
        lines = _LINES.match(window, begin)
        if lines is None:
            continue
        end = lines.end()
        written = _BREAK.sub(b"", lines[0])
        for skipped in range(4) if begin == 0 or begin <= at - _MAX_LINE else (0,):
            yield Block(begin, end, BROKEN_BASE64, decode_base64(written[skipped:]))


def decode_base64(written: bytes) -> bytes:
    """Returns the decoded bytes of base64 of either alphabet, with padding or without."""
    text = written.rstrip(b"=")
    usable = len(text) - (len(text) % 4 == 1)
    return base64.b64decode(text[:usable].translate(_NOT_STANDARD) + b"==")
