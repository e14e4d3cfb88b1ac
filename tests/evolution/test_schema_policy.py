"""What becomes of each kind of change under each policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from ingest.evolution.changes import (
    AddColumn,
    AlterDefault,
    AlterKey,
    AlterNullability,
    AlterType,
    CreateTable,
    DropColumn,
    DropTable,
    Hints,
    RenameColumn,
    RenameTable,
    SchemaChange,
)
from ingest.evolution.definition import DROP_TABLE, NULL, Cause, ColumnDefinition, Definition, Version
from ingest.evolution.lives import lives
from ingest.evolution.policies import TableColumn
from ingest.evolution.schema_policy import (
    EVOLVE,
    KINDS,
    OnChange,
    Outcome,
    SchemaPolicy,
    column_changes,
    decisions,
    outcome_of,
)
from ingest.values.types import Kind, LogicalType, array_of
from tests.evolution.versions import INT, LONG, TEXT, at, column, seen, told

APPLIED, KEPT, IGNORED, REFUSED = Outcome.APPLIED, Outcome.KEPT, Outcome.IGNORED, Outcome.REFUSED
DATE = LogicalType(Kind.DATE)
NUMERIC = LogicalType(Kind.DECIMAL, 20, 2)
ROOT = Path(__file__).parents[2]


def retyped(before: LogicalType, after: LogicalType, is_unknown: bool = False) -> AlterType:
    return AlterType("v", ColumnDefinition("v", before), ColumnDefinition("v", after), is_unknown)


def policy(on_change: str, include: frozenset[str] | None = None, *exclude: str) -> SchemaPolicy:
    return SchemaPolicy(OnChange(on_change), include, frozenset(exclude))


ROWS: tuple[tuple[str, SchemaChange, Outcome, Outcome], ...] = (
    ("a column is added", AddColumn("v", NULL), APPLIED, IGNORED),
    ("a column of the key is added", AddColumn("id", NULL), APPLIED, REFUSED),
    ("a column is dropped", DropColumn("v"), KEPT, IGNORED),
    ("a column is renamed", RenameColumn("v", "w"), KEPT, IGNORED),
    ("a column is renamed to another case", RenameColumn("v", "V"), APPLIED, APPLIED),
    ("a column of the key is renamed", RenameColumn("id", "no"), APPLIED, REFUSED),
    ("a type gets wider", retyped(INT, LONG), APPLIED, REFUSED),
    ("a whole number becomes numeric", retyped(INT, NUMERIC), APPLIED, REFUSED),
    ("a text may get longer", retyped(TEXT, TEXT), APPLIED, IGNORED),
    ("a type gets narrower", retyped(LONG, INT), APPLIED, IGNORED),
    ("a type changes to text", retyped(INT, TEXT), APPLIED, REFUSED),
    ("a type changes from text to a date", retyped(TEXT, DATE), REFUSED, REFUSED),
    ("a type is computed by an expression", retyped(LONG, INT, is_unknown=True), REFUSED, IGNORED),
    ("a column becomes NOT NULL", AlterNullability("v", False), APPLIED, IGNORED),
    ("a default changes", AlterDefault("v", "7"), APPLIED, IGNORED),
    ("the key changes", AlterKey(("id",), ("id", "v")), APPLIED, REFUSED),
    ("the table is dropped", DropTable(1), KEPT, IGNORED),
    ("the table is created anew", CreateTable(2), APPLIED, IGNORED),
    ("the table is renamed", RenameTable(name="public.u"), KEPT, IGNORED),
)
"""Change → what becomes of it in a table with a key, if the policy is lenient, or ignores it."""
NO_CHANGE = "a column is renamed to another case"
"""The row that no policy refuses: a table knows no case."""


def failing(name: str) -> Outcome:
    """Returns what becomes of the change of a row under `fail`."""
    return APPLIED if name == NO_CHANGE else REFUSED


@pytest.mark.parametrize(("name", "change", "lenient", "ignored"), ROWS, ids=[row[0] for row in ROWS])
def test_each_change_has_one_outcome_per_policy(
    name: str, change: SchemaChange, lenient: Outcome, ignored: Outcome
) -> None:
    found = {mode: outcome_of(change, policy(mode), ("id",)) for mode in OnChange}
    assert found == {"evolve": APPLIED, "lenient": lenient, "ignore": ignored, "fail": failing(name)}
    without = policy("evolve", None, change.kind)
    assert outcome_of(change, without, ("id",)) is ignored, "a kind that is excluded is ignored"
    assert outcome_of(change, policy("fail", frozenset()), ("id",)) is ignored, "and so is one that is not included"
    assert outcome_of(change, policy("fail", frozenset({change.kind})), ("id",)) is failing(name)


def test_the_documentation_has_each_outcome() -> None:
    lines = (ROOT / "docs" / "data-engineer" / "schema-changes.md").read_text(encoding="utf-8").splitlines()
    documented = {line for line in lines if line.startswith("| `") and line.count("|") == 7}
    found = {
        f"| `{change.kind}` | {text} | applied | {lenient} | {ignored} | {failing(text)} |"
        for text, change, lenient, ignored in ROWS
    }
    assert documented == found | {
        f"| `truncate.table` | the table is truncated | applied | {IGNORED} | {IGNORED} | refused |"
    }


def test_rows_without_a_key_are_matched_by_their_columns_so_none_of_these_can_be_kept_apart() -> None:
    found = {
        mode: [outcome_of(change, policy(mode), ()) for change in (DropColumn("v"), RenameColumn("v", "w"))]
        for mode in ("lenient", "ignore")
    }
    assert found == {"lenient": [REFUSED, APPLIED], "ignore": [REFUSED, REFUSED]}


def test_truncates_and_new_tables_follow_the_policy() -> None:
    assert [policy(mode).on_truncate for mode in OnChange] == [APPLIED, IGNORED, IGNORED, REFUSED]
    assert policy("evolve", None, "truncate.table").on_truncate is IGNORED
    assert all(policy(mode).creates_tables for mode in OnChange)
    assert not policy("evolve", None, "create.table").creates_tables
    assert not policy("evolve", frozenset({"add.column"})).creates_tables


def test_each_kind_of_change_has_its_name_in_a_policy() -> None:
    kinds = {one.kind for one in get_args(SchemaChange)}
    assert {*KINDS} == {*kinds, "truncate.table"}
    assert EVOLVE.applies_all
    assert not any(policy("evolve", None, kind).applies_all for kind in KINDS)


BEFORE = seen(10, "id", "a")
ADDED = seen(20, "id", "a", "b")
DROPPED = seen(30, "id", "b")
BACK = seen(40, "id", "a", "b")


def outcomes(known: set[Version], shown: set[Version], found_by: SchemaPolicy) -> list[tuple[int, str, Outcome]]:
    return [(one.at[1], one.change.kind, one.outcome) for one in decisions(known, shown, found_by, ("id",))]


def test_changes_are_decided_alike_in_one_batch_and_version_by_version() -> None:
    versions = [BEFORE, ADDED, DROPPED, BACK]
    for mode in OnChange:
        whole = outcomes(set(), set(versions), policy(mode))
        single = [one for n in range(len(versions)) for one in outcomes({*versions[:n]}, {versions[n]}, policy(mode))]
        assert whole == single
    assert whole[:2] == [(20, "add.column", REFUSED), (30, "drop.column", REFUSED)]


def test_the_first_version_and_what_was_known_before_are_no_changes() -> None:
    assert decisions(set(), {BEFORE}, policy("fail"), ("id",)) == ()
    assert decisions({BEFORE, ADDED}, {BEFORE, ADDED}, policy("fail"), ("id",)) == ()


def test_a_column_that_is_kept_after_its_drop_is_no_new_one_when_it_is_back() -> None:
    shown = {BEFORE, DROPPED, BACK}
    assert (40, "add.column", KEPT) not in outcomes(set(), shown, policy("lenient"))
    assert [one[1] for one in outcomes(set(), shown, policy("lenient"))] == ["drop.column", "add.column"]
    assert [one[:2] for one in outcomes(set(), shown, policy("evolve"))] == [
        (30, "drop.column"),
        (30, "add.column"),
        (40, "add.column"),
    ]


def test_the_type_of_a_column_that_is_kept_after_its_drop_changes_as_its_policy_says_when_it_is_back() -> None:
    def back(before: LogicalType, after: LogicalType, mode: str) -> list[Outcome]:
        first, dropped, again = (
            seen(10, "id", column("a", type_=before)),
            seen(30, "id"),
            seen(40, "id", column("a", type_=after)),
        )
        whole = outcomes(set(), {first, dropped, again}, policy(mode))
        assert whole == outcomes({first}, {dropped}, policy(mode)) + outcomes({first, dropped}, {again}, policy(mode))
        return [outcome for at, kind, outcome in whole if at == 40 and kind == "alter.column.type"]

    assert [back(INT, TEXT, mode) for mode in ("lenient", "ignore", "evolve")] == [[APPLIED], [REFUSED], []]
    assert [back(TEXT, DATE, mode) for mode in ("lenient", "ignore")] == [[REFUSED], [REFUSED]]
    assert back(INT, INT, "lenient") == []


def test_definitions_that_keep_dropped_columns_give_one_life_to_a_column_that_is_back() -> None:
    def kept(version: Version) -> Version:
        return replace(version, definition=replace(version.definition, is_partial=True))

    found = lives([kept(one) for one in (BEFORE, DROPPED, BACK)])
    assert [(life.column, life.begin, life.end) for life in found.columns if life.column == "a"] == [("a", None, None)]
    ended = lives([BEFORE, DROPPED, BACK])
    assert [(life.begin, life.end) for life in ended.columns if life.column == "a"] == [
        (None, at(30)),
        (at(40), None),
    ]


def test_a_declared_rename_is_one_change_and_a_dropped_table_too() -> None:
    renamed = seen(20, "id", "b")
    found = decisions({BEFORE}, {renamed}, policy("lenient"), ("id",), Hints((("a", "b"),)))
    assert [(one.change, one.outcome) for one in found] == [(RenameColumn("a", "b"), KEPT)]
    first, gone = (
        told(10, column("id", 1)),
        Version(at(20, -1), Definition((), (), 1), BEFORE.origin, Cause(DROP_TABLE)),
    )
    again = told(30, column("id", 1), relation=2)
    found = decisions({first}, {replace(gone, origin=first.origin), again}, policy("evolve"), ("id",))
    assert [one.change for one in found] == [DropTable(1), CreateTable(2)]


def test_inferred_types_show_no_change_while_their_values_are_null_or_numbers() -> None:
    def inferred(type_: LogicalType) -> TableColumn:
        return TableColumn("v", type_, inferred=True)

    unknown, number, half = (LogicalType(kind) for kind in (Kind.UNKNOWN, Kind.INT53, Kind.FLOAT64))
    same = ((unknown, TEXT), (number, half), (array_of(unknown), array_of(number)), (array_of(number), array_of(half)))
    for before, after in same:
        assert column_changes([inferred(before)], [inferred(after)]) == ()
    for before, after in (
        (number, TEXT),
        (LogicalType(Kind.BOOLEAN), LogicalType(Kind.JSON)),
        (array_of(number), TEXT),
    ):
        assert [one.kind for one in column_changes([inferred(before)], [inferred(after)])] == ["alter.column.type"]
    declared = TableColumn("v", INT)
    assert [one.kind for one in column_changes([declared], [TableColumn("v", LONG), TableColumn("w", INT)])] == [
        "alter.column.type",
        "add.column",
    ]
