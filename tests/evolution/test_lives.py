"""Lives and changes by example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

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
    changes_between,
)
from ingest.evolution.definition import (
    NULL,
    UNKNOWN,
    Cause,
    Definition,
    Origin,
    Version,
    unreadable_version,
)
from ingest.evolution.life import Lives, NameStep, TypeStep
from ingest.evolution.lives import lives
from ingest.evolution.readings import PlaceRange, reading
from ingest.evolution.revisions import LostRange, needs_refold
from tests.evolution.versions import INT, LONG, TEXT, TO_TEXT, at, column, columns_of, constant, defined, seen, told


def spans(now: Lives) -> list[tuple[str, int | None, int | None]]:
    return [
        (life.column, life.begin[1] if life.begin else None, life.end[1] if life.end else None) for life in now.columns
    ]


def test_a_column_that_comes_back_has_another_life() -> None:
    now = lives([seen(10, "id", "n"), seen(20, "id"), seen(30, "id", "n")])
    assert spans(now) == [("n", None, 20), ("id", None, None), ("n", 30, None)]
    assert {name: life.begin for name, life in now.shown.items()} == {"id": None, "n": at(30)}


def test_a_column_that_is_gone_is_still_shown() -> None:
    assert [*lives([seen(10, "id", "n"), seen(20, "id")]).shown] == ["n", "id"]


def test_a_name_that_another_column_had_does_not_show_the_one_before() -> None:
    known = [told(10, column("id", 1), column("n", 2)), told(20, column("id", 1))]
    taken = [*known, told(30, column("id", 1), column("N", 3)), told(40, column("id", 1), column("m", 3))]
    assert [*lives(known).shown] == ["n", "id"]
    assert [*lives(taken[:3]).shown] == ["id", "N"]
    assert [*lives(taken).shown] == ["id", "m"]
    assert needs_refold(lives(taken[:3]), lives(taken), through=at(35)) is None


def test_a_life_begins_at_the_lowest_event_that_has_it() -> None:
    versions = [seen(10, "id"), seen(20, "id", column("n", default="1")), seen(30, "id", column("n", default="2"))]
    for order in permutations(versions):
        life = lives(order).shown["n"]
        assert (life.begin, life.fill, life.origin) == (at(20), constant("1"), Origin.SEEN)
    assert lives(versions[1:]).shown["n"].begin is None


def test_only_numbers_and_hints_tell_a_rename() -> None:
    versions = [told(10, column("a", 1)), told(20, column("b", 1)), told(30, column("c", 1), column("a", 2))]
    now = lives(versions)
    assert spans(now) == [("c", None, None), ("a", 30, None)]
    assert now.columns[0].names == (NameStep(None, "a"), NameStep(at(20, -1), "b"), NameStep(at(30, -1), "c"))
    assert spans(lives([seen(10, "a"), seen(20, "b")])) == [("a", None, 20), ("b", 20, None)]
    assert spans(lives([seen(10, "a"), seen(20, "b")], Hints((("a", "b"),)))) == [("b", None, None)]
    assert spans(lives([seen(10, "a"), seen(20, "A")])) == [("A", None, None)]
    swapped = lives([told(10, column("a", 1), column("b", 2)), told(20, column("b", 1), column("a", 2))])
    assert spans(swapped) == [("b", None, None), ("a", None, None)]


def test_a_message_numbers_the_columns_that_events_have_shown() -> None:
    known = [seen(10, "id", "n"), told(20, column("id", 1), column("n", 2))]
    now = lives([*known, told(30, column("id", 1), column("m", 2)), told(40, column("n", 3), column("m", 2))])
    assert spans(now) == [("id", None, 40), ("m", None, None), ("n", 40, None)]


def test_a_message_says_which_columns_exist_until_the_next_one() -> None:
    messages = [told(10, column("id", 1)), told(40, column("id", 1), column("n", 2, "7", None))]
    shown = [seen(5, "id", "old"), seen(20, "id", column("n", default="3")), seen(50, "id", column("n", type_=LONG))]
    now = lives([*messages, *shown])
    assert spans(now) == [("old", None, 20), ("id", None, None), ("n", 40, None)]
    assert now.shown["n"].fill == constant("7")
    assert now.shown["n"].types == (TypeStep(at(40, -1), LONG),)
    assert lives(messages).shown["n"].types == (TypeStep(at(40, -1), None, is_shown=False),)


def test_a_column_that_no_message_names_is_one_that_the_connector_adds() -> None:
    messages = [told(10, column("id", 1)), told(30, column("id", 1), column("n", 2)), told(50, column("id", 1))]
    shown = [seen(5, "id", "__op"), seen(35, "id", "__op", "n"), seen(55, "id", "__op")]
    assert spans(lives([*messages, *shown])) == [("n", 30, 50), ("id", None, None), ("__op", None, None)]
    assert spans(lives([*messages, *shown, seen(60, "id")]))[1] == ("__op", None, 60)


def test_after_a_message_that_cannot_be_read_events_show_the_columns() -> None:
    messages = [told(10, column("id", 1), column("a", 2)), unreadable_version(at(20, -1))]
    shown = [seen(15, "id", "a"), seen(25, "id", "a", column("n", default="7")), seen(45, "id", "n", "b")]
    again = told(40, column("id", 1), column("n", 3), column("b", 2))
    now = lives([*messages, again, *shown])
    assert spans(now) == [("id", None, None), ("b", None, None), ("n", 25, None)]
    assert now.shown["b"].name(at(25)) == "a"
    assert spans(lives([*messages, *shown])) == [("a", None, 45), ("id", None, None), ("n", 25, None), ("b", 45, None)]


def test_a_message_and_an_event_at_one_position() -> None:
    now = lives([told(10, column("id", 1)), told(20, column("id", 1), column("n", 2))])
    n = now.shown["n"]
    assert n.is_alive(at(20, 0))
    assert n.is_alive(at(20))
    assert not n.is_alive(at(19))


def test_the_catalog_knows_fills_better_than_events() -> None:
    read = Version(at(20), defined(column("id", 1), column("n", 2, "5")), Origin.READ)
    versions = [
        seen(10, "id"),
        read,
        seen(20, "id", column("n", default="9")),
        seen(30, "id", column("n", default="8")),
    ]
    for order in permutations(versions):
        life = lives(order).shown["n"]
        assert (life.number, life.fill, life.begin) == (2, constant("5"), at(20))
    earlier = lives([*versions, seen(15, "id", column("n", default="6"))]).shown["n"]
    assert (earlier.fill, earlier.begin) == (constant("5"), at(15))


def test_duplicates_of_a_message_are_one() -> None:
    cause = Cause("ALTER TABLE", using=True)
    one = told(20, column("id", 1), column("n", 2, type_=TEXT), cause=cause)
    before = told(10, column("id", 1), column("n", 2))
    again = replace(one, since=at(20, -1, 9))
    assert lives([before, one, again]) == lives([before, one])
    assert lives([before, one]).shown["n"].loses(at(15))
    assert not lives([before, one]).shown["id"].loses(at(15))


def test_an_expression_that_leaves_all_types_may_have_computed_any_column() -> None:
    versions = [told(10, column("id", 1), column("n", 2), column("m", 3), key=("id",))]
    same = versions[0].definition
    by_any = lives([*versions, Version(at(20, -1), same, Origin.TOLD, Cause(using=True))])
    assert {life.column: life.loses(at(15)) for life in by_any.columns} == {"id": False, "n": True, "m": True}
    by_one = lives([*versions, Version(at(20, -1), same, Origin.TOLD, Cause(using=True, numbers=(3,)))])
    assert {life.column: life.loses(at(15)) for life in by_one.columns} == {"id": False, "n": False, "m": True}


def test_an_expression_that_is_executed_again_computes_values_again() -> None:
    first = told(20, column("id", 1), column("n", 2), cause=Cause("ALTER TABLE", using=True, numbers=(2,)))
    now = lives([told(10, column("id", 1), column("n", 2)), first, replace(first, since=at(30, -1))])
    assert [now.shown["n"].loses(at(lsn)) for lsn in (15, 25, 35)] == [True, True, False]


def test_an_expression_computes_the_columns_whose_type_at_the_source_changes() -> None:
    def message(lsn: int, type_of_n: str, using: bool = True) -> Version:
        types = {"id": "integer", "n": type_of_n, "m": "integer"}
        columns = (replace(column(c, n, type_=None), source_type=types[c]) for n, c in enumerate(types, 1))
        return told(lsn, *columns, cause=Cause("ALTER TABLE", using=using))

    now = lives(
        [message(10, "integer", using=False), seen(15, *"nm", "id"), message(20, "text"), message(30, "integer")]
    )
    lost = {life.column: [life.loses(at(lsn)) for lsn in (12, 25)] for life in now.columns}
    assert lost == {"id": [False, False], "n": [True, True], "m": [False, False]}


PARTS: Sequence[tuple[int, tuple[str, ...]]] = [(10, ("id", "a")), (20, ("id", "b")), (30, ("id",)), (40, ("id", "a"))]


def test_without_a_schema_a_missing_field_is_no_drop() -> None:
    parts = [seen(lsn, *names, is_partial=True) for lsn, names in PARTS]
    now = lives(parts)
    assert spans(now) == [("id", None, None), ("a", None, None), ("b", 20, None)]
    assert now.shown["b"].fill == NULL
    read = reading(now, columns_of("id", "b"), PlaceRange(at(30), at(40)))
    assert (read.names, read.lacking) == ({"id": "id", "b": "b"}, {"a": NULL})


def test_another_relation_has_other_lives_and_none_of_the_old_rows() -> None:
    first = told(10, column("id", 1))
    dropped = told(20, cause=Cause("DROP TABLE"))
    created = told(30, column("id", 1), relation=2)
    now = lives([first, dropped, seen(25, "id"), created])
    assert [placed.change for placed in now.changes] == [DropTable(1), CreateTable(2)]
    assert (spans(now), now.begin) == ([("id", None, 20), ("id", 20, None)], at(20, -1))
    assert lives([first, created]).begin == at(30, -1)
    assert reading(now, columns_of("id"), PlaceRange(at(10), at(12))).is_gone
    assert needs_refold(now, lives([first, replace(created, since=at(15, -1))])) is not None
    assert [era.begin for era in lives([dropped, replace(created, definition=defined("id", key=("id",)))]).keys] == [
        at(20, -1)
    ]


def test_events_do_not_hide_that_a_message_is_of_another_relation() -> None:
    columns = column("id", 1), column("n", 2)
    versions = [seen(5, "id", "n"), told(10, *columns), seen(15, "id", "n"), told(20, *columns, relation=2)]
    for known in (versions, versions[:2] + versions[3:], versions[1:]):
        assert spans(lives(known)) == [("id", None, 20), ("n", None, 20), ("id", 20, None), ("n", 20, None)]


def test_rows_of_a_dropped_table_stay_until_there_is_another_one() -> None:
    first, dropped = told(10, column("id", 1)), told(20, cause=Cause("DROP TABLE"))
    gone = lives([first, dropped])
    assert (spans(gone), gone.begin, [*gone.shown]) == ([("id", None, 20)], None, ["id"])
    assert needs_refold(lives([first]), gone) is None
    again = lives([first, dropped, told(30, column("id", 1), relation=2), told(40, cause=Cause("DROP TABLE"))])
    assert (again.begin, [*again.shown]) == (at(20, -1), ["id"])


def test_events_show_the_table_after_a_dropped_one_if_no_message_tells_it() -> None:
    before = [told(10, column("id", 1), column("n", 2), key=("id",)), told(20, cause=Cause("DROP TABLE"))]
    shown = [*before, seen(30, "id", "m", key=("m",))]
    now = lives(shown)
    assert (now.begin, [*now.shown], now.keys[-1].columns) == (at(20, -1), ["n", "id", "m"], ("m",))
    assert reading(now, columns_of("id", "m"), PlaceRange(at(25), at(25))).names == {"id": "id", "m": "m"}
    again = lives([*shown, told(40, cause=Cause("DROP TABLE")), seen(50, "id", "n")])
    assert (again.begin, [*again.shown]) == (at(40, -1), ["m", "id", "n"])
    unreadable = lives([*shown, unreadable_version(at(40, -1))])
    assert [*unreadable.shown] == ["n", "id", "m"]


def test_rows_that_create_table_as_writes_below_its_message_have_its_columns() -> None:
    created = told(30, column("id", 1), column("n", 2, type_=None), relation=2, key=("id",))
    before = [told(10, column("id", 1), key=("id",)), told(20, cause=Cause("DROP TABLE"))]
    now = lives([*before, seen(25, "id", column("n", type_=LONG)), created])
    read = reading(now, columns_of("id", "n"), PlaceRange(at(25), at(25)))
    assert read.names == {"id": "id", "n": "n"}
    assert read.chains["n"] == (TypeStep(at(20, -1), LONG),)
    assert now.key_names(at(25)) == ("id",)


def test_each_change_of_the_key_is_noted() -> None:
    columns = column("id", 1), column("n", 2)
    keys = [("id",), ("n",), ("id",), ("id",)]
    now = lives([told(10 * n, *columns, key=key) for n, key in enumerate(keys, 1)])
    noted = [(placed.at[1], placed.change) for placed in now.changes]
    assert noted == [(20, AlterKey(("id",), ("n",))), (30, AlterKey(("n",), ("id",)))]


def test_keys_have_eras() -> None:
    pair = (column("id", 1), column("r", 2))
    now = lives([told(10, *pair, key=("id",)), told(20, *pair, key=("r", "id")), told(30, *pair, key=())])
    assert [(era.columns, era.begin, era.end) for era in now.keys] == [
        (("id",), None, at(20, -1)),
        (("r", "id"), at(20, -1), at(30, -1)),
        ((), at(30, -1), None),
    ]
    renamed = lives([told(10, *pair, key=("id",)), told(20, column("no", 1), column("r", 2), key=("no",))])
    assert [era.columns for era in renamed.keys] == [("no",)]
    assert [renamed.key_names(at(lsn)) for lsn in (15, 20)] == [("id",), ("no",)]
    assert Lives().key_at(at(1)) is None
    refold = needs_refold(lives([told(10, *pair, key=("id",))]), now)
    assert refold is not None
    assert refold.ranges == (
        LostRange(None, at(20, -1), at(30, -1), is_of_keys=True),
        LostRange(None, at(30, -1), None, is_of_keys=True),
    )


CHANGES: list[tuple[Definition, Definition, Sequence[object]]] = [
    (defined("a"), defined("a", column("b", default="1")), [AddColumn("b", constant("1"))]),
    (defined("a", "b"), defined("a"), [DropColumn("b")]),
    (defined("a"), defined("b"), [DropColumn("a"), AddColumn("b", NULL)]),
    (defined("a"), defined("A"), [RenameColumn("a", "A")]),
    (defined(column("a", 1)), defined(column("b", 1)), [RenameColumn("a", "b")]),
    (defined(column("a", 1)), defined(column("a", 2)), [DropColumn("a"), AddColumn("a", NULL)]),
    (defined(column("n", 2)), defined(TO_TEXT), [AlterType("n", column("n", 2), TO_TEXT)]),
    (defined("a"), defined(replace(column("a"), optional=False)), [AlterNullability("a", False)]),
    (defined("a"), defined(column("a", default="1")), [AlterDefault("a", "1")]),
    (defined("a", "b", key=("a",)), defined("a", "b", key=("a", "b")), [AlterKey(("a",), ("a", "b"))]),
    (defined("a", "b", key=("a", "b")), defined("a", "b", key=("b", "a")), []),
    (defined("a", key=("a",)), defined("A", key=("A",)), [RenameColumn("a", "A")]),
    (
        defined(column("a", 1), key=("a",)),
        defined(column("a", 2), key=("a",)),
        [DropColumn("a"), AddColumn("a", NULL), AlterKey(("a",), ("a",))],
    ),
    (defined("a", relation=1), defined("a", relation=2), [DropTable(1), CreateTable(2)]),
    (defined("a", "b"), defined("a", is_partial=True), []),
]


@pytest.mark.parametrize(("before", "after", "changes"), CHANGES)
def test_changes_are_the_differences(before: Definition, after: Definition, changes: Sequence[object]) -> None:
    assert [*changes_between(before, after)] == changes


def test_which_changes_lose_values() -> None:
    assert AddColumn("a", UNKNOWN).is_unknown
    assert not AddColumn("a", NULL).is_unknown
    (change,) = changes_between(defined(column("n", 2)), defined(TO_TEXT), cause=Cause(using=True))
    assert isinstance(change, AlterType)
    assert change.is_unknown


def test_an_event_shows_the_form_of_a_told_type() -> None:
    n = replace(column("n", 1), source_type="integer")
    implied = [told(10, n), told(30, n, column("m", 2))]
    shown = lives([*implied, seen(15, column("n", type_=LONG))]).shown["n"]
    assert shown.types == (TypeStep(None, LONG, "integer"),)
    assert lives(implied).shown["n"].types == (TypeStep(None, INT, "integer", is_shown=False),)
