"""Finds all encodings of all search terms in one pass over bytes that come in pieces."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ahocorasick_rs import BytesAhoCorasick

from ingest.proof.scan.encodings import IN_COLUMN, hashes, spellings
from ingest.proof.scan.search_terms import SearchTerm

_BEHIND = 1024
_AHEAD = 64
# Bytes that may precede a value of a JSON key or of a comparison with a column.
_BEFORE_A_VALUE = tuple(bytes([c]) for c in b" \t\n:=>(,'\"")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_NUMBER_ENDS = re.compile(rb"(?:\.0+)?(?!\d|\.\d|[eE][+-]?\d)")
_WORD_ENDS = re.compile(rb"(?![\w\x80-\xff])")


@dataclass(frozen=True, slots=True)
class Match:
    """Bytes `begin` to `end` are an encoding of the term with this label."""

    begin: int
    end: int
    label: str
    encoding: str


@dataclass(frozen=True)
class _Pattern:
    """`begins`, `ends`: what has to precede the value, which starts `offset` bytes into the pattern, and what has to
    follow it."""

    label: str
    encoding: str
    offset: int = 0
    begins: re.Pattern[bytes] | None = None
    ends: re.Pattern[bytes] | None = None


class PatternSearch:
    """The compiled patterns of all terms. Thread-safe."""

    def __init__(self, terms: Sequence[SearchTerm]) -> None:
        self.terms = tuple(terms)
        patterns: dict[bytes, list[_Pattern]] = {}
        for term in terms:
            for body, pattern in _patterns(term):
                patterns.setdefault(body, []).append(pattern)
        self._patterns = list(patterns.values())
        self._engine = BytesAhoCorasick(list(patterns))
        self.has_date = any(_DATE.match(n.value) for n in terms)
        """True if dates and times have to be rendered as text to be searched."""
        self._tail_bytes = max(map(len, patterns)) + _BEHIND + _AHEAD

    def in_stream(self, pieces: Iterable[bytes | memoryview]) -> Iterator[Match]:
        """Yields the matches in consecutive pieces, also across their borders. Holds two pieces in memory."""
        tail, begin, searched_to = b"", 0, 0
        for piece in pieces:
            window = b"".join((tail, piece))
            # Matches near the end are confirmed with the next piece.
            through = begin + len(window) - _AHEAD
            yield from self._matches_ending(window, begin, searched_to, through)
            searched_to = max(searched_to, through)
            tail = window[-self._tail_bytes :]
            begin += len(window) - len(tail)
        yield from self._matches_ending(tail, begin, searched_to, math.inf)

    def in_bytes(self, body: bytes | memoryview) -> Iterator[Match]:
        """Yields the matches in complete bytes."""
        yield from self._matches_ending(body, 0, 0, math.inf)

    def mask(self, text: str) -> str:
        """Returns `text` with each term replaced by its label."""
        body = text.encode("utf-8", "surrogateescape")
        pieces, at = [], 0
        for match in sorted(self.in_bytes(body), key=lambda m: (m.begin, -m.end)):
            if match.end <= at:
                continue
            pieces += [body[at : max(at, match.begin)], f"‹{match.label}›".encode()]
            at = match.end
        return b"".join((*pieces, body[at:])).decode("utf-8", "backslashreplace")

    def _matches_ending(self, window: bytes | memoryview, begin: int, after: float, through: float) -> Iterator[Match]:
        """Yields matches whose end is above `after` and at most `through`; `window` begins at `begin`."""
        for number, first, end in self._engine.find_matches_as_indexes(window, overlapping=True):
            if after < begin + end <= through:
                for pattern in self._patterns[number]:
                    if _is_confirmed(pattern, window, first, end):
                        yield Match(begin + first, begin + end, pattern.label, pattern.encoding)


def _is_confirmed(pattern: _Pattern, window: bytes | memoryview, first: int, end: int) -> bool:
    if pattern.ends is not None and not pattern.ends.match(bytes(window[end : end + _AHEAD])):
        return False
    value = first + pattern.offset
    return pattern.begins is None or bool(pattern.begins.search(bytes(window[max(0, value - _BEHIND) : value])))


def _patterns(term: SearchTerm) -> Iterator[tuple[bytes, _Pattern]]:
    if not term.columns:
        for body, encoding in spellings(term.value).items():
            yield body, _Pattern(term.label, encoding)
        return
    for text in (term.value, *_as_keys(term)):
        for body, encoding in hashes(text).items():
            yield body, _Pattern(term.label, encoding)
    begins = _after_column(term.columns)
    ends = _WORD_ENDS if term.number is None else _NUMBER_ENDS
    for ascii_only in {True, term.value.isascii()}:
        value = json.dumps(term.value, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "surrogatepass")
        for before in _BEFORE_A_VALUE:
            yield before + value, _Pattern(term.label, IN_COLUMN, len(before), begins, ends)


def _as_keys(term: SearchTerm) -> Iterator[str]:
    """Yields the JSON of a key that consists of this column alone, which is the text that hashes of keys are made
    of."""
    for column in term.columns:
        values = [json.dumps(term.value, ensure_ascii=False)]
        if term.number is not None:
            values.append(term.value)
        for value in values:
            yield f"{{{json.dumps(column, ensure_ascii=False)}:{value}}}"


def _after_column(columns: Sequence[str]) -> re.Pattern[bytes]:
    """Returns a pattern that ends where a value of one of these columns begins: after its JSON key, after `column =`,
    and within `column IN (…)`, as Spark prints expressions with their ids."""
    names = b"|".join(re.escape(c.encode()) for c in columns)
    column = rb"(?<![\w\x80-\xff])(?:" + names + rb")"
    compared = column + rb"`?(?:#\d+L?)?\s*"
    quote = rb"(?:\\*['\"])?$"
    json_key = column + rb"\\*\"\s*:\s*" + quote
    equal = compared + rb"(?:<=>|==?)\s*" + quote
    listed = compared + rb"IN(?:SET)?\s*\(?[^()]{0,900}(?<=[(,\s])" + quote
    return re.compile(rb"(?:" + json_key + rb")|(?:" + equal + rb")|(?:" + listed + rb")", re.IGNORECASE)
