"""The cases of a text by Unicode's case folding, as alternatives of each of its characters.

Searched bytes are compared with their ASCII letters in lower case, so an ASCII letter has one alternative."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from math import prod

_LAST = 0x1F000
"""Letters with cases are below."""
_SHARP_S = "ss"
"""The only group of letters that ordinary software folds into one."""
Unit = tuple[str, ...]


def case_units(text: str) -> tuple[Unit, ...]:
    """Returns for each character of the text, or group of characters, the texts that fold to the same, its own first.
    ASCII letters are in lower case."""
    units: list[Unit] = []
    at = 0
    while at < len(text):
        size = 2 if text[at : at + 2].lower() == _SHARP_S else 1
        units.append(_alternatives(text[at : at + size]))
        at += size
    return tuple(units)


def ascii_lower(text: str) -> str:
    """Returns the text with its ASCII letters in lower case, as `bytes.lower` has it."""
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def number_of_variants(units: Sequence[Unit]) -> int:
    return prod(map(len, units))


def variants(units: Sequence[Unit]) -> Iterator[str]:
    """Yields all texts that the units make."""
    return map("".join, product(*units))


def longest_window(units: Sequence[Unit], most: int) -> slice:
    """Returns the consecutive units with the longest text that make at most `most` variants."""
    sizes = [min(len(text.encode("utf-8", "surrogatepass")) for text in unit) for unit in units]
    best, longest, begin, size, count = slice(0, 0), 0, 0, 0, 1
    for end, unit in enumerate(units, 1):
        size, count = size + sizes[end - 1], count * len(unit)
        while count > most:
            size, count = size - sizes[begin], count // len(units[begin])
            begin += 1
        if size > longest:
            best, longest = slice(begin, end), size
    return best


def _alternatives(text: str) -> Unit:
    lowered = ascii_lower(text)
    if text.isascii():
        return (lowered, *_folding_to(_SHARP_S)) if lowered == _SHARP_S else (lowered,)
    folded = text.casefold()
    others = {text, text.upper(), text.lower(), text.title(), folded, *_folding_to(folded)}
    composed = {ascii_lower(unicodedata.normalize("NFC", other)) for other in others}
    return (lowered, *sorted(composed - {lowered}))


def _folding_to(folded: str) -> tuple[str, ...]:
    return _inverse_folding().get(folded, ())


@cache
def _inverse_folding() -> dict[str, tuple[str, ...]]:
    """Returns folded text → the single characters that are not ASCII and fold to it."""
    found: dict[str, tuple[str, ...]] = {}
    for code in range(0x80, _LAST):
        character = chr(code)
        folded = character.casefold()
        if folded != character:
            found[folded] = (*found.get(folded, ()), character)
    return found
