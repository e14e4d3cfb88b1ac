"""What messages tell is followed: tables from name to name by their relation, columns and keys under their names."""

from __future__ import annotations

from dataclasses import replace

from ingest.changelog.spelling import Spelling
from ingest.evolution.changes import CreateTable, DropTable, RenameTable, SchemaChange
from ingest.evolution.column_types import with_newest_types
from ingest.evolution.definition import Cause, Version
from ingest.evolution.followed import (
    columns_now,
    followed_columns,
    in_table_names,
    key_now,
    name_now,
    renamed_key,
    told_key,
    versions_by_name,
)
from ingest.evolution.lives import lives
from ingest.evolution.policies import TableColumn
from ingest.evolution.revisions import Source, altered_columns, needs_refold
from ingest.values.types import Kind, LogicalType
from tests.evolution.versions import INT, LONG, TEXT, at, column, columns_of, seen, told

DROPPED = Cause("DROP TABLE")


def changes(versions: frozenset[Version]) -> list[tuple[int, SchemaChange]]:
    return [(placed.at[1], placed.change) for placed in lives(versions).changes]


def test_a_renamed_table_is_gone_under_its_name_and_comes_under_the_new_one() -> None:
    pair = column("id", 1), column("n", 2)
    found = versions_by_name({"s.a": [told(10, column("id", 1))], "s.b": [told(20, *pair), told(30, column("id", 1))]})
    assert changes(found["s.a"]) == [(20, RenameTable(name="s.b"))]
    assert [change for at_, change in changes(found["s.b"]) if at_ == 20] == [RenameTable(former="s.a")]
    assert lives(found["s.a"]).begin is None
    again = versions_by_name({"s.a": [told(10, column("id", 1))], "s.b": [*found["s.b"]]})
    assert again == found


def test_two_tables_that_swap_their_names() -> None:
    new = told(12, column("id", 1), column("n", 2), relation=2)
    moved, swapped = told(20, column("id", 1)), told(21, *new.definition.columns, relation=2)
    found = versions_by_name({"s.t": [told(10, column("id", 1)), swapped], "s.new": [new], "s.old": [moved]})
    assert changes(found["s.t"]) == [(20, RenameTable(name="s.old")), (21, RenameTable(former="s.new"))]
    assert changes(found["s.new"]) == [(21, RenameTable(name="s.t"))]
    assert changes(found["s.old"]) == [(20, RenameTable(former="s.t"))]
    assert lives([*found["s.t"], seen(22, "id", "n")]).begin == at(20, -1)


def test_a_relation_that_is_dropped_or_sent_twice_has_one_name() -> None:
    told_ = {"s.a": [told(10, column("id", 1)), told(20, column("id", 1)), told(30, cause=DROPPED)],
             "s.b": [told(40, column("id", 1), relation=2)]}  # fmt: skip
    assert versions_by_name(told_) == {name: frozenset(versions) for name, versions in told_.items()}
    assert changes(versions_by_name(told_)["s.a"]) == [(30, DropTable(1))]
    dropped_after = {"s.a": [told(10, column("id", 1))], "s.b": [told(20, column("id", 1)), told(30, cause=DROPPED)]}
    assert changes(versions_by_name(dropped_after)["s.b"]) == [(20, RenameTable(former="s.a")), (30, DropTable(1))]
    reused = told_ | {"s.b": [told(40, column("id", 1))]}
    assert changes(versions_by_name(reused)["s.b"]) == [], "the number of a dropped relation may come again"


def test_a_name_that_is_taken_again() -> None:
    created = told(30, column("id", 1), relation=2)
    found = versions_by_name({"s.a": [told(10, column("id", 1)), created], "s.b": [told(20, column("id", 1))]})
    assert changes(found["s.a"]) == [(20, RenameTable(name="s.b")), (30, CreateTable(2))]
    assert lives(found["s.a"]).begin == at(20, -1)


ID, A = column("id", 1), column("a", 2)
RENAMED = [
    told(10, ID, A, key=("id",)),
    told(20, column("no", 1), column("b", 2), key=("no",)),
    told(30, column("no", 1), column("b", 2), column("a", 3, "7"), key=("no",)),
]
HELD = (TableColumn("id", INT), TableColumn("a", INT))


def names(columns: tuple[TableColumn, ...]) -> list[str]:
    return [one.name for one in columns]


def test_columns_have_their_newest_names_and_those_that_are_only_told_come() -> None:
    now = lives(RENAMED[:2])
    assert names(followed_columns(HELD, now, RENAMED[:2])) == ["no", "b"]
    again = lives(RENAMED)
    assert names(followed_columns(HELD, again, RENAMED)) == ["no", "a", "b"], "the name is another column's now"
    assert followed_columns(followed_columns(HELD, now, RENAMED[:2]), again, RENAMED)[-1].name == "a"


def test_a_key_column_whose_name_another_one_has_stays_until_the_table_has_another_key() -> None:
    versions = [*RENAMED[:2], told(30, cause=DROPPED), told(40, column("no", 1), key=("no",), relation=2)]
    now = lives(versions)
    assert renamed_key(("id",), now) is None
    assert names(followed_columns(HELD, now, versions, ("id",))) == ["id", "b", "no"]
    assert names(followed_columns(HELD, now, versions, ("no",))) == ["b", "no"]


def test_a_column_has_the_form_that_events_show() -> None:
    iso, micros = LogicalType(Kind.INTERVAL_ISO), LogicalType(Kind.INTERVAL_MICROS)
    held = TableColumn("i", iso)
    now = lives([told(10, ID, column("i", 2, type_=iso)), seen(20, ID, column("i", type_=micros))])
    assert with_newest_types([held], now) == (TableColumn("i", micros),)
    declared = replace(held, declared=True)
    assert with_newest_types([declared], now) == (declared,)


def test_a_column_that_the_connector_does_not_send_is_not_added() -> None:
    versions = [*RENAMED, seen(40, "no", "b")]
    assert names(followed_columns(HELD, lives(versions), versions)) == ["no", "a", "b"]
    assert names(followed_columns((TableColumn("no", INT), TableColumn("b", INT)), lives(versions), versions)) == [
        "no",
        "b",
    ]


def test_a_column_of_another_life_of_its_name_is_not_read() -> None:
    versions = [told(10, ID, A), told(20, ID), told(30, ID, column("a", 3, type_=TEXT))]
    now, arrived = lives(versions), columns_of("id", "a", "__op")
    plain = {name: name for name in ("id", "a", "__op")}
    assert [c.name for c in columns_now(arrived, plain, now, at(15), at(16))] == ["id", "__op"]
    assert [c.name for c in columns_now(arrived, plain, now, at(35), at(36))] == ["id", "a", "__op"]


def test_columns_of_events_go_on_under_their_newest_names() -> None:
    now, plain = lives(RENAMED), {"id": "id", "a": "a"}
    assert [c.name for c in columns_now(columns_of("id", "a"), plain, now, at(11), at(19))] == ["no", "b"]
    assert [c.name for c in columns_now(columns_of("id", "a"), plain, now, at(11), at(31))] == ["no", "b", "a"]
    assert key_now(("id",), now, at(11), at(19)) == ("no",)
    assert key_now(("no",), now, at(21), at(35)) == ("no",)
    assert key_now(("a",), now, at(11), at(31)) is None
    assert (name_now("id", now), name_now("a", now), name_now("__op", now)) == ("no", "a", "__op")
    assert renamed_key(("id",), now) == told_key(now) == ("no",)


def test_a_type_that_only_a_message_tells() -> None:
    versions = [told(10, ID, A), told(20, ID, column("a", 2, type_=LONG), column("n", 3, type_=TEXT))]
    assert followed_columns(HELD, lives(versions), versions)[-1] == TableColumn("n", TEXT)
    unknown = [told(10, ID, A), told(20, ID, A, column("n", 3, type_=None))]
    assert names(followed_columns(HELD, lives(unknown), unknown)) == ["id", "a"]


def test_names_that_the_pipeline_gives_its_columns() -> None:
    spelling = Spelling(True, (("a", "amount"),))
    (found,) = in_table_names([told(10, column("ID", 1), A, key=("ID",))], spelling, ())
    assert ([c.name for c in found.definition.columns], found.definition.key) == (["id", "amount"], ("id",))


def test_hashes_keep_the_names_of_their_first_columns() -> None:
    now, again = lives(RENAMED[:2]), lives([*RENAMED[:2], told(30, column("id", 1), column("no", 3), key=("id",))])
    renamed = followed_columns(HELD, now, RENAMED[:2])
    assert [one.hashed_name for one in renamed] == ["id", "a"]
    back = followed_columns(renamed, again, RENAMED[:2])
    assert {one.name: one.hashed_name for one in back if one.name in ("id", "no")} == {"id": "", "no": ""}
    taken = followed_columns(renamed, lives(RENAMED), RENAMED)
    assert {one.name: one.hashed_name for one in taken} == {"no": "id", "b": "a", "a": "a#2"}


def test_a_rename_that_is_told_late_takes_the_values_of_both_columns() -> None:
    shown = [seen(10, "id", "a"), seen(30, "id", "b")]
    messages = [told(5, ID, A), told(20, ID, column("b", 2))]
    before, after = lives(shown), lives([*shown, *messages])
    (revision,) = altered_columns(before, after)
    assert (revision.column, revision.stored) == ("b", "a")
    assert [(piece.source, piece.other, piece.end) for piece in revision.pieces] == [
        (Source.STORED, None, at(30)),
        (Source.STORED, "b", None),
    ]
    refold = needs_refold(before, after, through=at(30))
    assert refold is not None
    assert [lost.if_partial for lost in refold.ranges] == [False, True], "no event lies between the two"
