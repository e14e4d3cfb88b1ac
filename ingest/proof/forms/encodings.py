"""Encodings of a value: every way in which it may be written, as the bytes to search for."""

from __future__ import annotations

import base64
import hashlib
import json
import unicodedata
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

from ingest.proof.forms.typed_forms import AS_GIVEN

UPPER_CASE, LOWER_CASE, OTHER_CASE, OTHER_COMPOSITION = "upper case", "lower case", "other case", "other composition"
BASE64, BASE64_URL, BROKEN_BASE64 = "base64", "base64url", "base64 with line breaks"
WIDE = ("UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE")
HASHES = ("md5", "sha1", "sha256", "sha512")
ENCODINGS = (
    *(AS_GIVEN, UPPER_CASE, LOWER_CASE, OTHER_CASE, OTHER_COMPOSITION, "Latin-1", "JSON escapes", "URL-encoded"),
    *(*WIDE, "first 32 characters", "hex", BASE64, BASE64_URL, BROKEN_BASE64, *HASHES),
)
IN_COLUMN = "value of a column"
_STATISTICS_PREFIX = 32
"""Delta truncates the minimum and maximum text of a column to this number of characters; Parquet's page index keeps
more."""
_UNQUOTED = ("", "/", "@", "/@", "/@+", "@+", "@:+,;=$&!'()*/", "@ !$&()*+,;<>|~^`")
"""Characters left unquoted by URLs of one or several parts, by mail addresses in them, by RFC 3986, and by Hive in
folder names."""
# Characters that Gson, PHP and others escape besides quotes and control characters.
_OPTIONAL_ESCAPES = frozenset("'&<>=/")


def spellings(text: str) -> dict[bytes, str]:
    """Returns pattern → encoding for every encoding of a text, in lower case. A pattern of several encodings gets the
    plainest one. The cases of letters other than ASCII are those of the text."""
    patterns: dict[bytes, str] = {}
    compositions = [text, unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)]
    for composed in compositions:
        patterns.setdefault(_utf8(composed).lower(), AS_GIVEN if composed == text else OTHER_COMPOSITION)
    for composed in dict.fromkeys(compositions):
        for pattern, encoding in _encoded(composed):
            patterns.setdefault(pattern.lower(), encoding)
    return patterns


def hashes(text: str) -> Iterator[tuple[bytes, str, bool]]:
    """Yields pattern, algorithm, and True if the case of the pattern's letters counts, for unsalted hashes: raw,
    hexadecimal and base64. They are specific however short the text is."""
    for variant in _hashed(text):
        for algorithm in HASHES:
            digest = hashlib.new(algorithm, _utf8(variant), usedforsecurity=False).digest()
            yield digest, algorithm, True
            yield digest.hex().encode(), algorithm, False
            for alphabet in (b"+/", b"-_"):
                for pattern in base64_of(digest, alphabet):
                    yield pattern, algorithm, True


def binary_spellings(body: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yields pattern, and True if the case of its letters counts, for bytes: raw, hexadecimal and base64."""
    yield body, True
    yield body.hex().encode(), False
    for alphabet in (b"+/", b"-_"):
        for pattern in base64_of(body, alphabet):
            yield pattern, True


def _hashed(text: str) -> Iterator[str]:
    """Yields the cases in which a text is hashed: a hash doesn't tell of another case that it has one."""
    cases = (text, text.upper(), text.lower())
    composed = (unicodedata.normalize(form, case) for case in cases for form in ("NFC", "NFD"))
    yield from dict.fromkeys((*cases, *composed))


def _encoded(text: str) -> Iterator[tuple[bytes, str]]:
    for escaped in _json_escapes(text):
        yield escaped, "JSON escapes"
    for quoted in _url_encoded(text):
        yield quoted.encode(), "URL-encoded"
    if text.isascii() is False and text.encode("latin-1", "ignore").decode("latin-1") == text:
        yield text.encode("latin-1"), "Latin-1"
    for encoding in WIDE:
        yield text.encode(encoding.lower(), "surrogatepass"), encoding
    if len(text) > _STATISTICS_PREFIX:
        start = text[:_STATISTICS_PREFIX]
        for pattern in (_utf8(start), *_json_escapes(start)):
            yield pattern, "first 32 characters"


def _json_escapes(text: str) -> Iterator[bytes]:
    """Yields the value as the content of a JSON string, and of a JSON string within a JSON string."""
    for ascii_only in (False, True):
        once = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield _utf8(once)
        yield _utf8(json.dumps(once, ensure_ascii=ascii_only)[1:-1])
    every = "".join(unicode_escape(c) if c in _OPTIONAL_ESCAPES or ord(c) > 126 else c for c in text)
    yield from (_utf8(every), _utf8(every.replace("\\", "\\\\")))
    yield _utf8(json.dumps(text, ensure_ascii=False)[1:-1].replace("/", "\\/"))


def unicode_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def _url_encoded(text: str) -> Iterator[str]:
    body = _utf8(text)
    for safe in _UNQUOTED:
        once = quote(body, safe=safe)
        # Delta encodes the already encoded path of a partition's folder once more.
        yield from (once, quote(once, safe="/=@"))
    yield quote_plus(body)


def base64_of(body: bytes, alphabet: bytes = b"+/") -> Iterator[bytes]:
    """Yields the base64 characters that depend on `body` alone, for each of its three alignments within a group."""
    for before in range(3):
        text = base64.b64encode(bytes(before) + body, altchars=alphabet)
        yield text[-(-before * 8 // 6) : (before + len(body)) * 8 // 6]


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
