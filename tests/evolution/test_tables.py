"""A table that is renamed is told by its relation, under both names."""

from __future__ import annotations

from ingest.evolution.changes import CreateTable, DropTable, RenameTable, SchemaChange
from ingest.evolution.definition import Cause, Version
from ingest.evolution.lives import lives
from ingest.evolution.tables import versions_by_name
from tests.evolution.versions import at, column, seen, told

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


def test_a_name_that_is_taken_again() -> None:
    created = told(30, column("id", 1), relation=2)
    found = versions_by_name({"s.a": [told(10, column("id", 1)), created], "s.b": [told(20, column("id", 1))]})
    assert changes(found["s.a"]) == [(20, RenameTable(name="s.b")), (30, CreateTable(2))]
    assert lives(found["s.a"]).begin == at(20, -1)
