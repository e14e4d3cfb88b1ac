"""Every mutant's text occurs once in the code; otherwise the mutant would count as caught."""

from __future__ import annotations

from tests.mutants import MUTANTS, misplaced


def test_text_of_each_mutant_is_in_the_code() -> None:
    assert misplaced(MUTANTS) == []
