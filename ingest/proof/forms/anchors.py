"""Finds values whose letters may have either case in encodings that hide the case: a few bytes of the value, in each
case, are searched, and what is around them is compared."""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from urllib.parse import quote

from ingest.proof.forms.case_folding import Unit, case_units, longest_window, number_of_variants, variants
from ingest.proof.forms.encodings import BASE64, BASE64_URL, OTHER_CASE, WIDE, base64_of, unicode_escape

_MIN_BYTES = 5
MAX_VARIANTS = 8
_NOT_STANDARD = bytes.maketrans(b"-_", b"+/")
_IN_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_SKIPPED = (0, 2, 3)
"""Characters of a group of base64 that depend on what is before a value, by the number of bytes before it."""


@dataclass(frozen=True)
class Value:
    """A value around an anchor: the variant of base64 that it is in, if it is in one, and the numbers of bytes before
    and after the anchor that are of the value."""

    encoding: str | None
    lead: int
    trail: int


@dataclass(frozen=True)
class Around:
    """Compares what is around an anchor with a whole value. `alternatives`: of each of its characters, in lower case.
    `lead`, `trail`: the bytes before and after the anchor that it has to be given."""

    alternatives: tuple[tuple[bytes, ...], ...]
    lead: int
    trail: int
    skipped: int | None = None
    """For base64: the number of characters of the anchor's first group that are before the anchor."""

    @cached_property
    def _whole(self) -> re.Pattern[bytes]:
        return re.compile(b"".join(b"(?:" + b"|".join(map(re.escape, unit)) + b")" for unit in self.alternatives))

    def value(self, before: bytes, anchor: bytes, after: bytes) -> Value | None:
        """Returns the value that the anchor is in, or None if it is in none."""
        if self.skipped is None:
            text = b"".join((before, anchor, after)).lower()
            span = _spanning(self._whole, text, len(before), len(before) + len(anchor))
            return None if span is None else Value(None, len(before) - span[0], span[1] - len(before) - len(anchor))
        left, right = _valid_end(before), after[: len(after) - len(after.lstrip(_IN_BASE64))]
        if len(left) < self.skipped:
            return None
        left = left[(len(left) - self.skipped) % 4 :]
        written = left + anchor + right
        usable = len(written) - (len(written) % 4 == 1)
        text = base64.b64decode(written[:usable].translate(_NOT_STANDARD) + b"==").lower()
        first, end = -(-len(left) * 3 // 4), (len(left) + len(anchor)) * 3 // 4
        span = _spanning(self._whole, text, first, end)
        if span is None:
            return None
        characters = written[span[0] * 4 // 3 : -(-span[1] * 4 // 3)]
        encoding = BASE64_URL if b"-" in characters or b"_" in characters else BASE64
        trail = -(-span[1] * 4 // 3) - len(left) - len(anchor)
        return Value(encoding, len(left) - span[0] * 4 // 3, max(0, trail))


@dataclass(frozen=True)
class Anchor:
    """`body`: searched bytes, in lower case. `exact`: the bytes in their own case, if that counts."""

    body: bytes
    encoding: str
    around: Around
    exact: bytes | None = None


def anchors(text: str) -> Iterator[Anchor]:
    """Yields the anchors of a text in all encodings that hide the case of its letters, and, if it has many letters
    with a case that are not ASCII, in all others."""
    for composed in dict.fromkeys(unicodedata.normalize(form, text) for form in ("NFC", "NFD")):
        units = case_units(composed)
        cased = tuple(_with_ascii_cases(unit) for unit in units)
        yield from _in_base64(cased)
        for encoding, encode, most in _HIDING_CASE:
            yield from _encoded(encoding, encode, cased, most)
        if number_of_variants(units) > MAX_VARIANTS:
            for encoding, encode in _SHOWING_CASE:
                yield from _encoded(encoding, encode, units, MAX_VARIANTS)
            if len(composed) > 32:
                for encode in (_utf8, _escaped):
                    yield from _encoded("first 32 characters", encode, case_units(composed[:32]), MAX_VARIANTS)


def _with_ascii_cases(unit: Unit) -> Unit:
    cases = (product(*zip(text.lower(), text.upper(), strict=True)) for text in unit if text.isascii())
    every = {"".join(case) for written in cases for case in written} | set(unit)
    return (unit[0], *sorted(every - {unit[0]}))


def _encoded(encoding: str, encode: Callable[[str], bytes], units: Sequence[Unit], most: int) -> Iterator[Anchor]:
    window = longest_window(units, most)
    if len("".join(min(unit, key=len) for unit in units[window]).encode("utf-8", "surrogatepass")) < 3:
        return
    alternatives = tuple(tuple(dict.fromkeys(encode(text).lower() for text in unit)) for unit in units)
    sizes = [max(map(len, unit)) for unit in alternatives]
    around = Around(alternatives, sum(sizes[: window.start]), sum(sizes[window.stop :]))
    for variant in variants(units[window]):
        yield Anchor(encode(variant).lower(), encoding, around)


def _in_base64(units: Sequence[Unit]) -> Iterator[Anchor]:
    window = _shortest_window(units)
    if window is None:
        return
    alternatives = tuple(tuple(dict.fromkeys(_utf8(text).lower() for text in unit)) for unit in units)
    sizes = [max(map(len, unit)) for unit in alternatives]
    lead, trail = sum(sizes[: window.start]) * 4 // 3 + 8, sum(sizes[window.stop :]) * 4 // 3 + 8
    arounds = {skipped: Around(alternatives, lead, trail, skipped) for skipped in _SKIPPED}
    seen: set[bytes] = set()
    for variant in variants(units[window]):
        for alphabet in (b"+/", b"-_"):
            for skipped, body in zip(_SKIPPED, base64_of(_utf8(variant), alphabet), strict=True):
                if body not in seen:
                    seen.add(body)
                    yield Anchor(body.lower(), BASE64, arounds[skipped], body)


def _shortest_window(units: Sequence[Unit]) -> slice | None:
    """Returns the consecutive units of at least `_MIN_BYTES` that make the fewest variants."""
    best: slice | None = None
    for begin in range(len(units)):
        end, size = begin, 0
        while end < len(units) and size < _MIN_BYTES:
            size += min(len(_utf8(text)) for text in units[end])
            end += 1
        if size >= _MIN_BYTES and (
            best is None or number_of_variants(units[begin:end]) < number_of_variants(units[best])
        ):
            best = slice(begin, end)
    return best


def _spanning(whole: re.Pattern[bytes], text: bytes, first: int, end: int) -> tuple[int, int] | None:
    """Returns where in the text the value is that the bytes from `first` to `end` are of."""
    at = 0
    while (found := whole.search(text, at)) is not None and found.start() <= first:
        if found.end() >= end:
            return found.span()
        at = found.start() + 1
    return None


def _valid_end(before: bytes) -> bytes:
    return before[len(before.rstrip(_IN_BASE64)) :]


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _escaped(text: str) -> bytes:
    return "".join(unicode_escape(c) if ord(c) > 126 else c for c in text).encode()


def _every_escaped(text: str) -> bytes:
    return "".join(map(unicode_escape, text)).encode()


def _doubled(encode: Callable[[str], bytes]) -> Callable[[str], bytes]:
    return lambda text: encode(text).replace(b"\\", b"\\\\")


def _quoted(safe: str) -> Callable[[str], bytes]:
    return lambda text: quote(text, safe=safe, errors="surrogatepass").encode()


def _wide(encoding: str) -> Callable[[str], bytes]:
    return lambda text: text.encode(encoding, "surrogatepass")


_HIDING_CASE: tuple[tuple[str, Callable[[str], bytes], int], ...] = (
    ("hex", lambda text: _utf8(text).hex().encode(), 2 * MAX_VARIANTS),
    ("JSON escapes", _every_escaped, MAX_VARIANTS),
    ("JSON escapes", _doubled(_every_escaped), MAX_VARIANTS),
)
_SHOWING_CASE: tuple[tuple[str, Callable[[str], bytes]], ...] = (
    (OTHER_CASE, _utf8),
    ("JSON escapes", _escaped),
    ("JSON escapes", _doubled(_escaped)),
    *(("URL-encoded", _quoted(safe)) for safe in ("", "/@+", "@ !$&()*+,;<>|~^`")),
    ("URL-encoded", lambda text: quote(quote(text, safe="", errors="surrogatepass"), safe="").encode()),
    *((encoding, _wide(encoding)) for encoding in WIDE),
)
