"""What tables take of the versions that messages tell, under each schema policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from ingest.evolution.changes import AddColumn, CreateTable, SchemaChange
from ingest.evolution.definition import (
    DROP_TABLE,
    NULL,
    RENAME_TABLE,
    Cause,
    ColumnDefinition,
    Definition,
    Origin,
    Version,
)
from ingest.evolution.lives import lives
from ingest.evolution.schema_policy import KINDS, Decision, OnChange, Outcome, SchemaPolicy, decisions
from ingest.evolution.told.admission import Admission, admitted
from ingest.evolution.told.taken_table import FollowingTable
from ingest.values.types import LogicalType
from tests.evolution.test_schema_policy import APPLIED, DATE, IGNORED, KEPT, NUMERIC, REFUSED, ROWS, failing, policy
from tests.evolution.versions import LONG, TEXT, at, column, seen, told

ID, V = column("id", 1), replace(column("v", 2), source_type="integer")
KEYED = FollowingTable(("id",))
Shown = dict[str, tuple[int | None, int | None]]


def typed(type_: LogicalType, source_type: str) -> ColumnDefinition:
    return replace(V, type=type_, source_type=source_type)


def first(*columns: ColumnDefinition, key: tuple[str, ...] = ("id",)) -> Version:
    return told(10, *columns, key=key)


def then(*columns: ColumnDefinition, **more: object) -> Version:
    return told(20, *columns, **{"key": ("id",), **more})  # type: ignore[arg-type]


def gone(lsn: int, tag: str = DROP_TABLE, name: str = "") -> Version:
    return Version(at(lsn, -1), Definition((), (), 1), Origin.TOLD, Cause(tag, other_name=name))


TABLE = first(ID, V)
BIG, TEXTUAL = typed(LONG, "bigint"), typed(TEXT, "text")
TOLD: dict[str, tuple[Version, Version]] = {
    "a column is added": (TABLE, then(ID, V, column("w", 3, "7"))),
    "a column of the key is added": (TABLE, then(ID, V, column("w", 3), key=("id", "w"))),
    "a column is dropped": (TABLE, then(ID)),
    "a column is renamed": (TABLE, then(ID, replace(V, name="w"))),
    "a column is renamed to another case": (TABLE, then(ID, replace(V, name="V"))),
    "a column of the key is renamed": (TABLE, then(replace(ID, name="no"), V, key=("no",))),
    "a type gets wider": (TABLE, then(ID, BIG)),
    "a whole number becomes numeric": (TABLE, then(ID, typed(NUMERIC, "numeric(20,2)"))),
    "a text may get longer": (first(ID, typed(TEXT, "character varying(5)")), then(ID, TEXTUAL)),
    "a type gets narrower": (first(ID, BIG), then(ID, V)),
    "a type changes to text": (TABLE, then(ID, TEXTUAL)),
    "a type changes from text to a date": (first(ID, TEXTUAL), then(ID, typed(DATE, "date"))),
    "a type is computed by an expression": (
        first(ID, BIG),
        then(ID, V, cause=Cause("ALTER TABLE", True, True, numbers=(2,))),
    ),
    "a column becomes NOT NULL": (TABLE, then(ID, replace(V, optional=False))),
    "a default changes": (TABLE, then(ID, replace(V, default="7"))),
    "the key changes": (TABLE, then(ID, V, key=("id", "v"))),
    "the table is dropped": (TABLE, gone(20)),
    "the table is created anew": (TABLE, then(ID, V, relation=2)),
    "the table is renamed": (TABLE, gone(20, RENAME_TABLE, "public.u")),
}
"""Row of the documentation → the versions before and after the change."""


def outcome(found: Admission, of: SchemaChange) -> list[Outcome]:
    """Returns the outcomes of changes of a kind, of the key's columns if `of` is about one."""
    if isinstance(of, AddColumn):
        return [one.outcome for one in found.decisions if isinstance(one.change, AddColumn)]
    return [one.outcome for one in found.decisions if one.change.kind == of.kind]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_told_change_has_the_outcome_that_the_documentation_says(
    row: tuple[str, SchemaChange, Outcome, Outcome],
) -> None:
    name, change, lenient, ignored = row
    expected = {"lenient": lenient, "ignore": ignored, "fail": failing(name)}
    for mode, right in expected.items():
        found = admitted(TOLD[name], policy(mode), KEYED)
        assert outcome(found, change) == [right], mode
        assert (len(found.versions) == 2) == (REFUSED not in [one.outcome for one in found.decisions]), mode
    assert admitted(TOLD[name], policy("evolve"), KEYED) == Admission(frozenset(TOLD[name]))
    # The drop of the table before it is applied.
    excluded = REFUSED if change.kind == CreateTable.kind else ignored
    assert outcome(admitted(TOLD[name], policy("evolve", None, change.kind), KEYED), change) == [excluded]


def shown(versions: Sequence[Version] | frozenset[Version]) -> Shown:
    """Returns column of the table → the positions of its begin and its end."""
    found = lives(versions).shown
    return {name: tuple(place and place[1] for place in (life.begin, life.end)) for name, life in found.items()}  # type: ignore[misc]


SAME: Shown = {"id": (None, None), "v": (None, None)}
BESIDE: dict[str, tuple[Shown, Shown, Shown]] = {
    "a column is added": (SAME | {"w": (20, None)}, SAME | {"w": (20, None)}, SAME),
    "a column is dropped": (SAME | {"v": (None, 20)}, SAME, SAME),
    "a column is renamed": ({"id": (None, None), "w": (None, None)}, SAME | {"w": (20, None)}, SAME),
    "a column becomes NOT NULL": (SAME, SAME, SAME),
    "a default changes": (SAME, SAME, SAME),
    "the table is dropped": ({"id": (None, 20), "v": (None, 20)}, SAME, SAME),
    "the table is created anew": ({"id": (20, None), "v": (20, None)}, SAME, SAME),
    "the table is renamed": ({"id": (None, 20), "v": (None, 20)}, SAME, SAME),
}
"""Row → the table's columns under `evolve`, `lenient` and `ignore`."""


@pytest.mark.parametrize("name", BESIDE)
def test_a_table_is_what_the_outcome_of_the_change_makes_of_it(name: str) -> None:
    for mode, right in zip(("evolve", "lenient", "ignore"), BESIDE[name], strict=True):
        found = admitted(TOLD[name], policy(mode), KEYED)
        assert shown(found.versions) == right, mode
        assert (lives(found.versions).begin is not None) == (name == "the table is created anew" and mode == "evolve")


def test_types_change_only_where_they_are_applied() -> None:
    def types(name: str, mode: str) -> list[str]:
        life = lives(admitted(TOLD[name], policy(mode), KEYED).versions).shown["v"]
        return [f"{step.source_type}{'?' if step.is_unknown else ''}" for step in life.types]

    assert types("a type gets wider", "lenient") == ["integer", "bigint"]
    assert types("a type changes to text", "lenient") == ["integer", "text"]
    assert types("a type gets narrower", "ignore") == ["bigint"]
    assert types("a type is computed by an expression", "evolve") == ["bigint", "integer?"]
    assert types("a type is computed by an expression", "ignore") == ["bigint"]


def test_a_column_that_is_kept_goes_on_when_its_name_is_back() -> None:
    versions = [TABLE, then(ID), told(30, ID, replace(V, number=3), key=("id",))]
    found = admitted(versions, policy("lenient"), KEYED)
    assert shown(found.versions) == SAME
    assert [(one.change.kind, one.outcome) for one in found.decisions] == [("drop.column", KEPT)]
    assert shown(admitted(versions, policy("evolve"), KEYED).versions) == SAME | {"v": (30, None)}
    other = [*versions[:2], told(30, ID, replace(V, number=3, type=TEXT, source_type="text"), key=("id",))]
    assert [one.outcome for one in admitted(other, policy("lenient"), KEYED).decisions] == [KEPT, APPLIED]
    assert [one.outcome for one in admitted(other, policy("ignore"), KEYED).decisions] == [IGNORED, REFUSED]


def test_a_renamed_column_that_is_kept_and_the_new_one_have_lives_of_their_own() -> None:
    again = told(30, ID, replace(V, name="x"), key=("id",))
    found = admitted([*TOLD["a column is renamed"], again], policy("lenient"), KEYED)
    assert shown(found.versions) == SAME | {"w": (20, None), "x": (30, None)}
    assert lives(found.versions).shown["w"].fill == NULL
    back = told(40, ID, V, key=("id",))
    found = admitted([*TOLD["a column is renamed"], again, back], policy("lenient"), KEYED)
    assert shown(found.versions) == SAME | {"w": (20, None), "x": (30, None)}, "values of v are stored in v again"


def test_a_rename_that_is_excluded_is_a_drop_and_a_new_column() -> None:
    versions = TOLD["a column is renamed"]
    found = admitted(versions, policy("evolve", None, "rename.column"), KEYED)
    assert [one.outcome for one in found.decisions] == [IGNORED]
    assert shown(found.versions) == SAME | {"v": (None, 20), "w": (20, None)}
    found = admitted(versions, policy("fail", None, "rename.column"), KEYED)
    assert [one.outcome for one in found.decisions] == [IGNORED]
    assert (shown(found.versions), found.untaken) == (SAME, frozenset({"w"}))
    followed = admitted(versions, policy("evolve", frozenset({"rename.column"})), KEYED)
    assert shown(followed.versions) == {"id": (None, None), "w": (None, None)}, "and one that alone is included is not"


def test_a_column_that_is_not_taken_stays_out_whatever_becomes_of_it() -> None:
    added = then(ID, V, column("w", 3))
    later = [told(30, ID, V, column("x", 3), key=("id",)), told(40, ID, V, column("y", 4), key=("id",))]
    found = admitted([TABLE, added, *later], policy("ignore"), KEYED)
    assert (shown(found.versions), found.untaken) == (SAME, frozenset({"w", "x", "y"}))
    assert [one.change.kind for one in found.decisions] == ["add.column", "add.column"]
    known = FollowingTable(("id",), versions=admitted([TABLE, added], policy("ignore"), KEYED).versions)
    found = admitted(
        [TABLE, added, told(30, ID, V, column("w", 3), column("y", 4), key=("id",))], policy("evolve"), known
    )
    assert (shown(found.versions), found.untaken) == (SAME | {"y": (30, None)}, frozenset({"w"}))
    assert [one.change for one in found.decisions] == [AddColumn("y", NULL)]


def test_rows_of_a_dropped_table_that_are_kept_go_on_with_those_of_the_next_one() -> None:
    other, again = (
        told(at, column("id", 1), column(name, 2), replace(typed(LONG, "bigint"), number=3), key=("id",), relation=2)
        for at, name in ((30, "w"), (40, "x"))
    )
    found = admitted([TABLE, gone(20), other, again], policy("lenient"), KEYED)
    assert [(one.change.kind, one.outcome) for one in found.decisions] == [
        ("drop.table", KEPT),
        ("create.table", APPLIED),
        ("alter.column.type", APPLIED),
        ("add.column", APPLIED),
        ("rename.column", KEPT),
    ]
    assert shown(found.versions) == SAME | {"w": (30, None), "x": (40, None)}
    assert lives(found.versions).begin is None
    assert [step.source_type for step in lives(found.versions).shown["v"].types] == ["integer", "bigint"]
    refused = admitted([TABLE, gone(20), other], policy("evolve", None, "create.table"), KEYED)
    assert refused.decisions[-1].change == CreateTable(2)
    assert refused.decisions[-1].outcome is REFUSED, "rows of two tables would be in one"


def test_a_table_without_a_key_refuses_what_would_change_how_its_rows_are_matched() -> None:
    bag = FollowingTable()
    for mode, row, right in (
        ("lenient", "a column is dropped", REFUSED),
        ("lenient", "a column is renamed", APPLIED),
        ("ignore", "a column is dropped", REFUSED),
        ("ignore", "a column is renamed", REFUSED),
        ("ignore", "a column is added", IGNORED),
    ):
        versions = [replace(one, definition=replace(one.definition, key=())) for one in TOLD[row]]
        assert [one.outcome for one in admitted(versions, policy(mode), bag).decisions] == [right], (mode, row)


def test_a_declared_key_is_not_changed_by_messages() -> None:
    declared = FollowingTable(("id",), is_key_declared=True)
    assert admitted(TOLD["the key changes"], policy("fail"), declared).decisions == ()


def test_what_was_accepted_before_is_not_refused_again() -> None:
    for versions in TOLD.values():
        accepted = FollowingTable(("id",), accepted=frozenset({at(20, -1)}))
        found = admitted(versions, policy("fail"), accepted)
        assert {one.outcome for one in found.decisions} == {APPLIED}
        assert lives(found.versions).shown == lives(versions).shown


def test_a_baseline_is_no_change_of_what_events_have_shown() -> None:
    shown_before = seen(5, "id", replace(column("v"), type=TEXT))
    known = FollowingTable(("id",), versions=frozenset({shown_before}))
    baseline = told(10, ID, V, column("unsent", 3), key=("id",), cause=Cause("BASELINE"))
    for mode in ("fail", "ignore"):
        found = admitted([baseline], policy(mode), known)
        assert (found.decisions, found.untaken) == ((), frozenset({"unsent"}))
        assert shown(found.versions | known.versions) == SAME
    altered = replace(baseline, cause=Cause("ALTER TABLE"))
    assert {one.outcome for one in admitted([altered], policy("fail"), known).decisions} == {REFUSED}


def test_a_rename_to_the_name_of_a_column_that_is_kept_is_refused() -> None:
    versions = [first(ID, V, column("w", 3)), then(ID, column("w", 3)), told(30, ID, column("v", 3), key=("id",))]
    found = admitted(versions, policy("evolve", None, "drop.column"), KEYED)
    assert [(one.change.kind, one.outcome) for one in found.decisions] == [
        ("drop.column", IGNORED),
        ("rename.column", APPLIED),
        ("drop.column", REFUSED),
    ]


def test_events_show_types_of_the_columns_that_are_taken() -> None:
    versions = TOLD["a column is renamed"]
    found = admitted(versions, policy("lenient"), KEYED)
    event = replace(seen(25, "id", replace(column("w"), type=LONG)).definition, is_partial=True)
    everything = found.versions | {Version(at(25), event, Origin.SEEN)}
    assert shown(everything) == SAME | {"w": (20, None)}
    assert lives(everything).shown["w"].types[-1].type == LONG


def random_versions(random: Random) -> list[Version]:
    """Returns told versions of a table that changes at random: all kinds of changes, also several at once."""
    columns, number, relation = [ID, V], 2, 1
    key: tuple[str, ...] = ("id",)
    versions = [first(*columns)]
    for step in range(random.randint(1, 8)):
        lsn, cause = 20 + 10 * step, Cause("ALTER TABLE")
        if random.random() < 0.1:
            tag = random.choice((DROP_TABLE, RENAME_TABLE))
            versions.append(replace(gone(lsn, tag, "public.u"), definition=Definition((), (), relation)))
            lsn += 5
        if versions[-1].cause.drops_table or random.random() < 0.1:
            relation += 1
            columns, number, key = [column("id", 1), replace(V, number=2), column("n", 3)], 3, ("id",)
        for _ in range(random.randint(1, 2)):
            others = [one for one in columns if one.name not in key]
            kind = random.choice(("add", "drop", "rename", "type", "null", "default", "key"))
            free = [name for name in ("v", "w", "x", "n") if name not in {one.name for one in columns}]
            if kind == "add" and free:
                number += 1
                columns = [*columns, column(random.choice(free), number, random.choice((None, "7")))]
            elif kind in ("drop", "rename", "type", "null", "default") and others:
                old = random.choice(others)
                new = {
                    "drop": [],
                    "rename": [replace(old, name=random.choice(free))] if free else [old],
                    "type": [replace(old, type=LONG, source_type="bigint")],
                    "null": [replace(old, optional=not old.optional)],
                    "default": [replace(old, default="7")],
                }[kind]
                columns = [other for one in columns for other in (new if one is old else [one])]
            elif kind == "key" and others:
                key = ("id", random.choice(others).name) if len(key) == 1 and "id" in key else key
        versions.append(told(lsn, *columns, key=key, relation=relation, cause=cause))
    return versions


POLICIES = [policy(mode) for mode in OnChange] + [
    SchemaPolicy(mode, None, frozenset({kind})) for kind in KINDS for mode in (OnChange.EVOLVE, OnChange.LENIENT)
]


@pytest.mark.parametrize("found_by", POLICIES, ids=lambda one: f"{one.on_change} without {', '.join(one.exclude)}")
def test_versions_are_taken_alike_at_once_and_one_by_one(found_by: SchemaPolicy) -> None:
    for seed in range(40):
        versions = random_versions(Random(seed))
        whole = admitted(versions, found_by, KEYED)
        known, decided = frozenset[Version](), list[Decision]()
        for number in range(1, len(versions) + 1):
            found = admitted(versions[:number], found_by, replace(KEYED, versions=known))
            decided += found.decisions
            if any(one.outcome is REFUSED for one in found.decisions):
                break
            known = found.versions
        assert tuple(decided) == (whole.decisions if not found_by.applies_all else tuple(decided)), seed
        if not any(one.outcome is REFUSED for one in whole.decisions):
            assert (known, found.untaken) == (whole.versions, whole.untaken), seed
            again = admitted(versions, policy("evolve"), replace(KEYED, versions=known))
            assert (again.versions, again.decisions) == (known, ()), "another policy leaves what was decided"
            every = {column.name for one in versions for column in one.definition.columns}
            names = {policy("lenient"): every, policy("ignore"): {"id", "v"}}
            assert {*lives(known).shown} == names.get(found_by, {*lives(known).shown}), "nothing is lost, or added"
        if found_by.applies_all:
            assert whole.versions == frozenset(versions)
        assert lives(whole.versions).shown.keys() <= {c.name for one in versions for c in one.definition.columns}


def test_random_versions_have_all_kinds_of_changes() -> None:
    found = (admitted(random_versions(Random(seed)), policy("lenient"), KEYED) for seed in range(200))
    assert {one.change.kind for each in found for one in each.decisions} == {*KINDS} - {"truncate.table"}


UNTOLD = ("a column is added", "a column is dropped", *(row[0] for row in ROWS if row[0].startswith("a type")))


@pytest.mark.parametrize("name", [name for name in UNTOLD if name != "a type is computed by an expression"])
def test_a_change_that_events_show_has_the_outcome_that_the_documentation_says(name: str) -> None:
    """Of these changes the schemas of events tell all. A rename is a drop and a new column there."""
    _, change, lenient, ignored = next(row for row in ROWS if row[0] == name)
    before, after = (
        seen(lsn, *(replace(c, number=None, source_type="") for c in version.definition.columns))
        for lsn, version in zip((10, 20), TOLD[name], strict=True)
    )
    for mode, right in {"evolve": APPLIED, "lenient": lenient, "ignore": ignored, "fail": REFUSED}.items():
        found = decisions(set(), {before, after}, policy(mode), ("id",))
        assert [(one.change.kind, one.outcome) for one in found] == [(change.kind, right)], mode
