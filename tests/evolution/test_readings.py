"""Readings of events and revisions of stored rows by example."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingest.evolution.definition import (
    NULL,
    UNKNOWN,
    Cause,
    Version,
)
from ingest.evolution.life import TypeStep
from ingest.evolution.lives import lives
from ingest.evolution.readings import PlaceRange, boundaries, reading
from ingest.evolution.revisions import LostRange, Piece, Source, needs_refold, revisions
from ingest.values.types import LogicalType, decimal_of
from tests.evolution.versions import INT, LONG, TEXT, TO_TEXT, at, column, columns_of, constant, seen, told


def test_events_are_read_by_the_lives_at_their_positions() -> None:
    now = lives(
        [
            told(10, column("id", 1), column("a", 2), column("w", 3)),
            told(20, column("id", 1), column("b", 2), column("n", 4, "7")),
            told(30, column("id", 1), column("b", 2, type_=TEXT), column("n", 4)),
        ]
    )
    assert boundaries(now, at(5), at(40)) == (at(20, -1), at(30, -1))
    assert boundaries(now, at(20), at(29)) == ()
    with pytest.raises(ValueError, match="more than one way"):
        reading(now, columns_of("id"), PlaceRange(at(5), at(40)))
    first = reading(now, columns_of("id", "A", "w"), PlaceRange(at(10), at(12)))
    assert first.names == {"id": "id", "A": "b", "w": "w"}
    assert first.lacking == {"n": constant("7")}
    assert [step.type for step in first.chains["b"]] == [INT, TEXT]
    newest = reading(now, columns_of("id", "b", "n", "w", "a"), PlaceRange(at(30), at(40)))
    assert newest.names == {"id": "id", "b": "b", "n": "n"}
    assert newest.lacking == {"w": NULL}
    assert [step.type for step in newest.chains["b"]] == [TEXT]


def test_what_only_the_source_knows_is_read_as_unknown() -> None:
    before = told(10, column("id", 1), column("n", 2))
    using = Cause(using=True, numbers=(2,))
    now = lives([before, told(20, column("id", 1), TO_TEXT, replace(column("v", 3), fill=UNKNOWN), cause=using)])
    read = reading(now, columns_of("id", "n"), PlaceRange(at(10), at(10)))
    assert (read.names, read.lacking) == ({"id": "id", "n": "n"}, {"v": UNKNOWN})
    assert [step.is_unknown for step in read.chains["n"]] == [False, True]
    assert reading(now, columns_of("id"), PlaceRange(at(10), at(10))).lacking == {"n": UNKNOWN, "v": UNKNOWN}


def test_stored_rows_pass_the_types_that_they_have_not_passed() -> None:
    money = column("n", 2, type_=decimal_of(12, 2))
    whole, exact, text = (
        told(lsn, column("id", 1), n) for lsn, n in ((10, column("n", 2)), (20, money), (30, TO_TEXT))
    )
    in_order = {r.column: r for r in revisions(lives([whole, exact]), lives([whole, exact, text]))}["n"]
    passed = (TypeStep(at(20, -1), decimal_of(12, 2), is_shown=False), TypeStep(at(30, -1), TEXT, is_shown=False))
    assert in_order.pieces == (
        Piece(None, at(30, -1), Source.STORED, types=passed),
        Piece(at(30, -1), None, Source.STORED, types=passed[1:], undone=passed[:1]),
    )
    assert needs_refold(lives([whole, text]), lives([whole, exact, text])) is None, "the text tells the whole number"
    rounded = told(40, column("id", 1), column("n", 2))
    late = needs_refold(lives([exact, rounded]), lives([exact, text, rounded]))
    assert late is not None
    assert late.reason == "values are lost"
    assert late.ranges == (LostRange("n", None, at(40, -1)),)


def test_an_integer_that_grew_on_its_way_is_the_same_text() -> None:
    whole, wide = seen(10, "n"), seen(20, column("n", type_=LONG))
    text = seen(30, column("n", type_=TEXT))
    assert needs_refold(lives([whole, text]), lives([whole, wide, text])) is None


def test_older_values_are_masked_when_a_column_turns_out_to_be_another_one() -> None:
    before, after = lives([seen(10, "n"), seen(30, "n")]), lives([seen(10, "n"), seen(20), seen(30, "n")])
    (revision,) = revisions(before, after)
    assert (revision.column, revision.stored) == ("n", "n")
    assert revision.pieces == (
        Piece(None, at(30), Source.CONSTANT, NULL, revision.pieces[0].types),
        Piece(at(30), None, Source.STORED),
    )
    assert needs_refold(before, after) is None
    assert needs_refold(after, before) is not None
    assert needs_refold(after, after) is None


def test_names_that_were_exchanged_take_their_values_along() -> None:
    before = [told(10, column("a", 1), column("b", 2))]
    after = lives([*before, told(20, column("b", 1), column("a", 2))])
    assert {one.column: one.stored for one in revisions(lives(before), after)} == {"a": "b", "b": "a"}
    assert needs_refold(lives(before), after, through=at(15)) is None
    assert needs_refold(lives(before), after) is not None


def test_values_that_turn_out_to_be_known_are_read_again() -> None:
    def version(lsn: int, n: LogicalType, m: LogicalType, using: bool = False) -> Version:
        return told(lsn, column("n", 1, type_=n), column("m", 2, type_=m), cause=Cause("ALTER TABLE", using))

    known = [version(10, INT, INT), version(30, TEXT, TEXT, using=True)]
    before, after = lives(known), lives([*known, version(20, TEXT, INT)])
    assert [before.shown["n"].loses(at(15)), after.shown["n"].loses(at(15))] == [True, False]
    refold = needs_refold(before, after)
    assert refold is not None
    assert LostRange("n", None, at(30, -1)) in refold.ranges
