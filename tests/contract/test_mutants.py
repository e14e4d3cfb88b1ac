"""A mutant whose text is gone from the code would be taken for one that is caught."""

from __future__ import annotations

from tests.mutants import MUTANTS, misplaced


def test_each_mutant_has_its_text_in_the_code() -> None:
    assert misplaced(MUTANTS) == []
