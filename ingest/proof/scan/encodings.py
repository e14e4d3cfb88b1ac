"""Encodings of a value: every way in which it may be written, as the bytes to search for."""

from __future__ import annotations

import base64
import hashlib
import json
import unicodedata
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

ENCODINGS = (
    "as given",
    "upper case",
    "lower case",
    "other composition",
    "Latin-1",
    "JSON escapes",
    "URL-encoded",
    "UTF-16LE",
    "UTF-16BE",
    "first 32 characters",
    "hex",
    "base64",
    "base64url",
    "md5",
    "sha1",
    "sha256",
    "sha512",
)
HASHES = ENCODINGS[-4:]
IN_COLUMN = "value of a column"
_STATISTICS_PREFIX = 32
"""Delta truncates the minimum and maximum text of a column to this number of characters; Parquet's page index keeps
more."""
_UNQUOTED = ("", "/", "@", "/@", "/@+", "@+", "@:+,;=$&!'()*/", "@ !$&()*+,;<>|~^`")
"""Characters left unquoted by URLs of one or several parts, by mail addresses in them, by RFC 3986, and by Hive in
folder names."""
# Characters that Gson, PHP and others escape besides quotes and control characters.
_OPTIONAL_ESCAPES = frozenset("'&<>=/")


def spellings(value: str) -> dict[bytes, str]:
    """Returns pattern → encoding for every encoding of a value. A pattern of several encodings gets the plainest
    one."""
    patterns: dict[bytes, str] = {}
    for text, encoding in _variants(value):
        patterns.setdefault(_utf8(text), encoding)
    for text, _ in _variants(value):
        for pattern, encoding in _encoded(text):
            patterns.setdefault(pattern, encoding)
    patterns |= {pattern: encoding for pattern, encoding in hashes(value).items() if pattern not in patterns}
    return patterns


def hashes(value: str) -> dict[bytes, str]:
    """Returns pattern → algorithm for unsalted hashes: raw, hexadecimal and base64. They are specific however short the
    value is."""
    patterns: dict[bytes, str] = {}
    for text, _ in _variants(value):
        for algorithm in HASHES:
            digest = hashlib.new(algorithm, _utf8(text), usedforsecurity=False).digest()
            representations = (digest, digest.hex().encode(), digest.hex().upper().encode())
            for pattern in (*representations, *_base64(digest), *_base64(digest, b"-_")):
                patterns.setdefault(pattern, algorithm)
    return patterns


def _variants(value: str) -> Iterator[tuple[str, str]]:
    yield value, "as given"
    yield value.upper(), "upper case"
    yield value.lower(), "lower case"
    for composition in ("NFC", "NFD"):
        for text in (value, value.upper(), value.lower()):
            yield unicodedata.normalize(composition, text), "other composition"


def _encoded(text: str) -> Iterator[tuple[bytes, str]]:
    for escaped in _json_escapes(text):
        yield escaped, "JSON escapes"
    for quoted in _url_encoded(text):
        yield quoted.encode(), "URL-encoded"
    if text.isascii() is False and text.encode("latin-1", "ignore").decode("latin-1") == text:
        yield text.encode("latin-1"), "Latin-1"
    yield text.encode("utf-16-le", "surrogatepass"), "UTF-16LE"
    yield text.encode("utf-16-be", "surrogatepass"), "UTF-16BE"
    if len(text) > _STATISTICS_PREFIX:
        start = text[:_STATISTICS_PREFIX]
        for pattern in (_utf8(start), *_json_escapes(start)):
            yield pattern, "first 32 characters"
    body = _utf8(text)
    yield body.hex().encode(), "hex"
    yield body.hex().upper().encode(), "hex"
    for pattern in _base64(body):
        yield pattern, "base64"
    for pattern in _base64(body, b"-_"):
        yield pattern, "base64url"


def _json_escapes(text: str) -> Iterator[bytes]:
    """Yields the value as the content of a JSON string, and of a JSON string within a JSON string."""
    for ascii_only in (False, True):
        once = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield _utf8(once)
        yield _utf8(_upper_digits(once))
        yield _utf8(json.dumps(once, ensure_ascii=ascii_only)[1:-1])
    for escaped in (_OPTIONAL_ESCAPES, None):
        every = "".join(_unicode_escape(c) if escaped is None or c in escaped or ord(c) > 126 else c for c in text)
        yield from (_utf8(every), _utf8(_upper_digits(every)), _utf8(every.replace("\\", "\\\\")))
    yield _utf8(json.dumps(text, ensure_ascii=False)[1:-1].replace("/", "\\/"))


def _unicode_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def _upper_digits(escaped: str) -> str:
    """Returns the text with the hexadecimal digits of each `\\uXXXX` in upper case."""
    first, *others = escaped.split("\\u")
    return "\\u".join([first, *(o[:4].upper() + o[4:] for o in others)])


def _url_encoded(text: str) -> Iterator[str]:
    body = _utf8(text)
    for safe in _UNQUOTED:
        once = quote(body, safe=safe)
        # Delta encodes the already encoded path of a partition's folder once more.
        for quoted in (once, quote(once, safe="/=@")):
            yield quoted
            yield _lower_digits(quoted)
    yield quote_plus(body)


def _lower_digits(quoted: str) -> str:
    first, *others = quoted.split("%")
    return "%".join([first, *(o[:2].lower() + o[2:] for o in others)])


def _base64(body: bytes, alphabet: bytes = b"+/") -> Iterator[bytes]:
    """Yields the base64 characters that depend on `body` alone, for each of its three alignments within a group."""
    for before in range(3):
        text = base64.b64encode(bytes(before) + body, altchars=alphabet)
        yield text[-(-before * 8 // 6) : (before + len(body)) * 8 // 6]


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
