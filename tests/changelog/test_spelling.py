"""The matching of an event's columns to a table's, by spelling and renames."""

from __future__ import annotations

import pytest

from ingest.changelog.connect_schema import declared_column
from ingest.changelog.spelling import Spelling
from ingest.evolution.policies import EqualNames, ReservedName, TableColumn, evolve
from ingest.names import caseless
from ingest.values.columns import Column
from ingest.values.types import parse


def columns(*names: str) -> list[Column]:
    return [declared_column(name, "string") for name in names]


def test_names_that_differ_in_case_are_one_column() -> None:
    outcome = evolve([TableColumn("email", parse("string"))], columns("Email", "NO"))
    assert [c.name for c in outcome.columns] == ["email", "NO"]
    assert Spelling().table_names(["Email", "no"], ["email", "NO"]) == {"Email": "email", "no": "NO"}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Ä", "ä", True),
        ("straße", "STRASSE", False),
        ("ſ", "S", True),  # Java compares in upper case too
        ("\u212a", "k", True),
        ("İ", "i", False),
        ("é", "e", False),
    ],
)
def test_names_are_compared_as_java_does(one: str, other: str, same: bool) -> None:
    assert (caseless(one) == caseless(other)) is same


def test_two_spellings_in_one_image_are_refused() -> None:
    outcome = evolve([], columns("id", "email", "Email"))
    assert outcome.conflicts == (EqualNames(("email", "Email")),)
    assert outcome.columns == ()


def test_column_is_renamed_by_the_file() -> None:
    spelling = Spelling(renamed=(("Email", "email_2"), ("_position", "position")))
    outcome = evolve([], columns("email", "Email", "_position"), spelling)
    assert not outcome.conflicts
    assert [c.name for c in outcome.columns] == ["email", "email_2", "position"]
    (taken,) = evolve([], columns("_position")).conflicts
    assert isinstance(taken, ReservedName)
    assert "rename" in str(taken)


def test_fold_case_names_new_columns_in_lower_case() -> None:
    assert Spelling(fold_case=True).table_names(["ID", "Email"], ["id"]) == {"ID": "id", "Email": "email"}
