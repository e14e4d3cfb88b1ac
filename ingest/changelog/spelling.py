"""Which column of a table a column of an event is. Delta tells no names apart by case, so neither do tables here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spelling:
    """Names a table's columns. `fold_case`: in lower case. `renamed`: pairs of an event's column and the table's, as
    the pipeline's file has them."""

    fold_case: bool = False
    renamed: tuple[tuple[str, str], ...] = ()

    def own(self, name: str) -> str:
        """Returns the name that a new table gives an event's column."""
        found = dict(self.renamed).get(name, name)
        return found.lower() if self.fold_case else found

    def of(self, arrived: Iterable[str], there: Iterable[str]) -> Mapping[str, str]:
        """Maps columns of an event to those of its table, which has the columns `there`: a name in another case is the
        same column, spelled as it was first seen."""
        known = {caseless(name): name for name in there}
        return {name: known.get(caseless(own), own) for name, own in ((n, self.own(n)) for n in arrived)}


def caseless(name: str) -> str:
    """Returns what names that are equal in Spark and Delta have in common: Java compares them character by
    character, in upper and in lower case."""
    return "".join(map(_caseless, name))


def _caseless(character: str) -> str:
    upper = character.upper()
    lower = (upper if len(upper) == 1 else character).lower()
    return lower if len(lower) == 1 else character
