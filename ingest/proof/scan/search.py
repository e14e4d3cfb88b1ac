"""All forms of all needles, found in one pass over bytes that come in pieces."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ahocorasick_rs import BytesAhoCorasick

from ingest.proof.scan.encodings import IN_COLUMN, hashes, spellings
from ingest.proof.scan.search_terms import Needle

_BEHIND = 1024
_AHEAD = 64
# What may stand right before a value that is a JSON key's, or is compared with a column.
_BEFORE_A_VALUE = tuple(bytes([c]) for c in b" \t\n:=>(,'\"")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_NUMBER_ENDS = re.compile(rb"(?:\.0+)?(?!\d|\.\d|[eE][+-]?\d)")
_WORD_ENDS = re.compile(rb"(?![\w\x80-\xff])")


@dataclass(frozen=True, slots=True)
class Match:
    """Bytes `begin` to `end` are a form of the needle with this label."""

    begin: int
    end: int
    label: str
    form: str


@dataclass(frozen=True)
class _Pattern:
    """`ends`, `begins`: what has to follow, and to stand before the value, which begins `offset` bytes into it."""

    label: str
    form: str
    offset: int = 0
    begins: re.Pattern[bytes] | None = None
    ends: re.Pattern[bytes] | None = None


class Search:
    """Threads may share it."""

    def __init__(self, needles: Sequence[Needle]) -> None:
        self.needles = tuple(needles)
        known: dict[bytes, list[_Pattern]] = {}
        for needle in needles:
            for body, pattern in _patterns(needle):
                known.setdefault(body, []).append(pattern)
        self._patterns = list(known.values())
        self._engine = BytesAhoCorasick(list(known))
        self.has_date = any(_DATE.match(n.value) for n in needles)
        """Whether dates and times have to be written out to be searched."""
        self._kept = max(map(len, known)) + _BEHIND + _AHEAD

    def in_stream(self, pieces: Iterable[bytes | memoryview]) -> Iterator[Match]:
        """Matches in pieces that follow each other, wherever these were cut. Holds two pieces."""
        tail, begin, judged = b"", 0, 0
        for piece in pieces:
            window = b"".join((tail, piece))
            # What follows the last bytes is not known yet.
            upto = begin + len(window) - _AHEAD
            yield from self._ending_in(window, begin, judged, upto)
            judged = max(judged, upto)
            tail = window[-self._kept :]
            begin += len(window) - len(tail)
        yield from self._ending_in(tail, begin, judged, math.inf)

    def in_bytes(self, body: bytes | memoryview) -> Iterator[Match]:
        """Matches in bytes that are all there."""
        yield from self._ending_in(body, 0, 0, math.inf)

    def masked(self, text: str) -> str:
        """`text` with the label in the place of each needle."""
        body = text.encode("utf-8", "surrogateescape")
        shown, at = [], 0
        for match in sorted(self.in_bytes(body), key=lambda m: (m.begin, -m.end)):
            if match.end <= at:
                continue
            shown += [body[at : max(at, match.begin)], f"‹{match.label}›".encode()]
            at = match.end
        return b"".join((*shown, body[at:])).decode("utf-8", "backslashreplace")

    def _ending_in(self, window: bytes | memoryview, begin: int, after: float, upto: float) -> Iterator[Match]:
        """Matches whose end is above `after` and not above `upto`; `window` begins at `begin`."""
        for number, first, end in self._engine.find_matches_as_indexes(window, overlapping=True):
            if after < begin + end <= upto:
                for pattern in self._patterns[number]:
                    if _confirmed(pattern, window, first, end):
                        yield Match(begin + first, begin + end, pattern.label, pattern.form)


def _confirmed(pattern: _Pattern, window: bytes | memoryview, first: int, end: int) -> bool:
    if pattern.ends is not None and not pattern.ends.match(bytes(window[end : end + _AHEAD])):
        return False
    value = first + pattern.offset
    return pattern.begins is None or bool(pattern.begins.search(bytes(window[max(0, value - _BEHIND) : value])))


def _patterns(needle: Needle) -> Iterator[tuple[bytes, _Pattern]]:
    if not needle.columns:
        for body, form in spellings(needle.value).items():
            yield body, _Pattern(needle.label, form)
        return
    for text in (needle.value, *_as_keys(needle)):
        for body, form in hashes(text).items():
            yield body, _Pattern(needle.label, form)
    begins = _after_column(needle.columns)
    ends = _WORD_ENDS if needle.number is None else _NUMBER_ENDS
    for ascii_only in {True, needle.value.isascii()}:
        value = json.dumps(needle.value, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "surrogatepass")
        for before in _BEFORE_A_VALUE:
            yield before + value, _Pattern(needle.label, IN_COLUMN, len(before), begins, ends)


def _as_keys(needle: Needle) -> Iterator[str]:
    """The JSON of a key that is this column alone: what is hashed where a hash stands for a key."""
    for column in needle.columns:
        values = [json.dumps(needle.value, ensure_ascii=False)]
        if needle.number is not None:
            values.append(needle.value)
        for value in values:
            yield f"{{{json.dumps(column, ensure_ascii=False)}:{value}}}"


def _after_column(columns: Sequence[str]) -> re.Pattern[bytes]:
    """Ends where a value of one of these columns begins: after its JSON key, after `column =` and in the list of
    `column IN (…)`, as Spark writes them with the number of an expression."""
    names = b"|".join(re.escape(c.encode()) for c in columns)
    column = rb"(?<![\w\x80-\xff])(?:" + names + rb")"
    compared = column + rb"`?(?:#\d+L?)?\s*"
    quote = rb"(?:\\*['\"])?$"
    json_key = column + rb"\\*\"\s*:\s*" + quote
    equal = compared + rb"(?:<=>|==?)\s*" + quote
    listed = compared + rb"IN(?:SET)?\s*\(?[^()]{0,900}(?<=[(,\s])" + quote
    return re.compile(rb"(?:" + json_key + rb")|(?:" + equal + rb")|(?:" + listed + rb")", re.IGNORECASE)
