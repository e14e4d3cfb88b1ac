"""Finds all forms of all search terms in one pass over bytes that come in pieces."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ahocorasick_rs import BytesAhoCorasick, Implementation

from ingest.proof.forms import ValueType
from ingest.proof.forms.anchors import Around
from ingest.proof.forms.base64_blocks import CONTAINERS, MAX_RUN, Block, broken_blocks, container
from ingest.proof.scan.patterns import AHEAD, BEHIND, Pattern, patterns_of
from ingest.proof.scan.search_terms import SearchTerm

_MAX_FAST_BYTES = 200_000
"""Of all patterns together. The faster automaton takes a kilobyte for each."""
_MAX_DEPTH = 3
_TOO_LARGE = "a document in base64 is so large that only its beginning was decoded"


def _bytes_behind(bodies: Sequence[bytes], around: Iterable[Around]) -> int:
    """Returns the number of bytes up to the end of a pattern that are needed to confirm it."""
    return max(map(len, bodies)) + max([BEHIND, *(one.lead for one in around)])


@dataclass(frozen=True, slots=True)
class Match:
    """Bytes `begin` to `end` are an encoding of the term with this label."""

    begin: int
    end: int
    label: str
    encoding: str


class PatternSearch:
    """The compiled patterns of all terms. Thread-safe."""

    def __init__(self, terms: Sequence[SearchTerm]) -> None:
        self.terms = tuple(terms)
        patterns: dict[bytes, list[Pattern]] = {}
        for term in terms:
            for body, found in patterns_of(term).items():
                patterns.setdefault(body, []).extend(found)
        self._patterns = list(patterns.values())
        self.has_times = any(t.value_type in (ValueType.DATE, ValueType.TIMESTAMP, ValueType.TIME) for t in terms)
        """True if dates and times have to be rendered as text to be searched."""
        # A container's first characters may be a pattern of a term too: patterns may be there twice.
        bodies = [*patterns, *(magic.lower() for magic in CONTAINERS)]
        is_fast = sum(map(len, bodies)) <= _MAX_FAST_BYTES
        self._engine = BytesAhoCorasick(
            bodies, implementation=Implementation.DFA if is_fast else Implementation.ContiguousNFA
        )
        around = [pattern.around for same in self._patterns for pattern in same if pattern.around is not None]
        self._ahead = max([AHEAD, *(one.trail for one in around)])
        self._tail_bytes = self._ahead + _bytes_behind(bodies, around)

    def in_stream(
        self, pieces: Iterable[bytes | memoryview], note: Callable[[str], None] | None = None, depth: int = 0
    ) -> Iterator[Match]:
        """Yields the matches in consecutive pieces, also across their borders. Holds two pieces in memory, or one
        document in base64. `note` is called with what could not be decoded."""
        tail, begin, searched_to, seen_to = b"", 0, 0, 0
        for piece in pieces:
            window = b"".join((tail, piece))
            # Matches near the end are confirmed with the next piece.
            through = begin + len(window) - self._ahead
            blocks = yield from self._matches_ending(window, begin, searched_to, through)
            searched_to = max(searched_to, through)
            kept = max(0, len(window) - self._tail_bytes)
            for block in blocks:
                if block.end >= len(window) and len(window) - block.begin < MAX_RUN:
                    kept = min(kept, max(0, block.begin - 1))
                elif begin + block.end >= seen_to:
                    yield from self._within(block, begin, note, depth)
            seen_to = begin + len(window)
            tail = window[kept:]
            begin += kept
        for block in (yield from self._matches_ending(tail, begin, searched_to, math.inf)):
            if begin + block.end >= seen_to:
                yield from self._within(block, begin, note, depth)

    def in_bytes(
        self, body: bytes | memoryview, note: Callable[[str], None] | None = None, depth: int = 0
    ) -> Iterator[Match]:
        """Yields the matches in complete bytes."""
        for block in (yield from self._matches_ending(bytes(body), 0, 0, math.inf)):
            yield from self._within(block, 0, note, depth)

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

    def _matches_ending(
        self, window: bytes, begin: int, after: float, through: float
    ) -> Generator[Match, None, list[Block]]:
        """Yields matches whose end is above `after` and at most `through`; `window` begins at `begin`. Returns the
        documents in base64."""
        blocks: list[Block] = []
        reached = 0
        for number, first, end in self._engine.find_matches_as_indexes(window.lower(), overlapping=True):
            if number >= len(self._patterns):
                block = container(window, first, CONTAINERS[number - len(self._patterns)]) if first >= reached else None
                if block is not None:
                    blocks.append(block)
                    reached = block.end
            elif after < begin + end <= through:
                for pattern in self._patterns[number]:
                    value = pattern.value_in(window, first, end)
                    if value is not None:
                        encoding, value_begin, value_end = value
                        yield Match(begin + value_begin, begin + value_end, pattern.label, encoding)
        return [*blocks, *broken_blocks(window)]

    def _within(self, block: Block, begin: int, note: Callable[[str], None] | None, depth: int) -> Iterator[Match]:
        if depth >= _MAX_DEPTH:
            return
        if block.is_partial and note is not None:
            note(_TOO_LARGE)
        found = dict.fromkeys(m.label for m in self.in_bytes(block.body, note, depth + 1))
        for label in found:
            yield Match(begin + block.begin, begin + block.end, label, block.form)
