"""Canary markers, each encoded once by a library that is not the scanner's own code."""

from __future__ import annotations

import base64
import bz2
import gzip
import hashlib
import json
import lzma
import secrets
import unicodedata
import zlib
from collections.abc import Callable
from functools import partial
from urllib.parse import quote, quote_plus

import pyarrow as pa

from ingest.proof.canaries.canary import Canary
from ingest.proof.canaries.typed_canaries import typed_canaries
from ingest.proof.forms.encodings import BROKEN_BASE64, IN_COLUMN, OTHER_CASE, WIDE
from ingest.proof.scan.search_terms import SearchTerm

COLUMN = "canary_number"
_FRAME = b"<%s>"


def canaries() -> tuple[Canary, ...]:
    """Returns a canary per encoding and typed form, with values never used before."""
    return (*(_canary(name, encoding, encode) for name, encoding, encode in _ENCODINGS), *typed_canaries())


def number_canary() -> Canary:
    """Returns a number that counts only as a value of `COLUMN`."""
    value = str(10**9 + secrets.randbelow(10**9))
    term = SearchTerm("canary: number in a column", value, (COLUMN,))
    return Canary(term, IN_COLUMN, json.dumps({COLUMN: int(value)}).encode())


def _canary(name: str, encoding: str, encode: Callable[[str], bytes]) -> Canary:
    # Its base64 contains "/" at every alignment, its NFC and NFD and its cases differ, and it is longer than the
    # prefix that statistics keep, which is unique too.
    marker = f"Cänary-É{secrets.token_hex(8)}????{secrets.token_hex(8)}@Example.Invalid"
    marker = unicodedata.normalize("NFC", marker)
    return Canary(SearchTerm(f"canary: {name}", marker), encoding, _FRAME % encode(marker))


def _aligned(encode: Callable[[bytes], bytes], before: int) -> Callable[[str], bytes]:
    return lambda text: encode(b"." * before + text.encode() + b"..")


def _digest(algorithm: str, represent: Callable[[bytes], bytes]) -> Callable[[str], bytes]:
    return lambda text: represent(hashlib.new(algorithm, text.encode(), usedforsecurity=False).digest())


def _escaped(text: str) -> bytes:
    return "".join(f"\\u{ord(c):04x}" for c in text).encode()


def _wide(encoding: str, text: str) -> bytes:
    return text.encode(encoding.lower())


def _packed(pack: Callable[[bytes], bytes], text: str) -> bytes:
    return json.dumps({"blob": base64.b64encode(pack(text.encode())).decode()}).encode()


def _json_of_lines(text: str) -> bytes:
    return json.dumps({"blob": base64.encodebytes(b"." * 50 + text.encode()).decode()}).encode()


_CONTAINERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip in base64": gzip.compress,
    "zlib in base64": zlib.compress,
    "zstd in base64": partial(pa.compress, codec="zstd", asbytes=True),
    "lz4 in base64": partial(pa.compress, codec="lz4", asbytes=True),
    "bzip2 in base64": bz2.compress,
    "xz in base64": lzma.compress,
    "JSON in base64": lambda body: json.dumps({"of": [base64.b64encode(body).decode()]}).encode(),
}
_ENCODINGS: tuple[tuple[str, str, Callable[[str], bytes]], ...] = (
    ("as given", "as given", str.encode),
    ("upper case", "upper case", lambda v: v.upper().encode()),
    ("lower case", "lower case", lambda v: v.lower().encode()),
    ("other case", OTHER_CASE, lambda v: v.swapcase().encode()),
    ("other case in base64", "base64", lambda v: base64.b64encode(v.swapcase().encode())),
    ("other case in hex", "hex", lambda v: v.swapcase().encode().hex().encode()),
    ("decomposed", "other composition", lambda v: unicodedata.normalize("NFD", v).encode()),
    ("Latin-1", "Latin-1", lambda v: v.encode("latin-1")),
    ("JSON", "JSON escapes", lambda v: json.dumps({"v": v}).encode()),
    ("JSON in JSON", "JSON escapes", lambda v: json.dumps({"v": json.dumps({"v": v})}).encode()),
    ("JSON, each character", "JSON escapes", _escaped),
    ("JSON, upper case", "JSON escapes", lambda v: json.dumps({"v": v.upper()}).encode()),
    ("URL", "URL-encoded", lambda v: quote(v).encode()),
    ("URL, form", "URL-encoded", lambda v: quote_plus(v).encode()),
    ("URL of a URL", "URL-encoded", lambda v: quote(quote(v, safe="")).encode()),
    *((encoding, encoding, partial(_wide, encoding)) for encoding in WIDE),
    ("first 32 characters", "first 32 characters", lambda v: (v[:32] + "\U0010ffff").encode()),
    ("hex", "hex", lambda v: v.encode().hex().encode()),
    ("hex, upper case", "hex", lambda v: v.encode().hex().upper().encode()),
    *((f"base64 after {n}", "base64", _aligned(base64.b64encode, n)) for n in range(3)),
    *((f"base64url after {n}", "base64url", _aligned(base64.urlsafe_b64encode, n)) for n in range(3)),
    ("base64 with line breaks", BROKEN_BASE64, lambda v: base64.encodebytes(b"." * 50 + v.encode())),
    ("base64 with line breaks in JSON", BROKEN_BASE64, _json_of_lines),
    *((form, form, partial(_packed, pack)) for form, pack in _CONTAINERS.items()),
    *(
        (f"{algorithm}, {name}", algorithm, _digest(algorithm, represent))
        for algorithm in ("md5", "sha1", "sha256", "sha512")
        for name, represent in (
            ("raw", bytes),
            ("hex", lambda d: d.hex().encode()),
            ("HEX", lambda d: d.hex().upper().encode()),
            ("base64", base64.b64encode),
            ("base64url", base64.urlsafe_b64encode),
        )
    ),
)
