"""Collected values are searched for everywhere only if they are one person's, and what is left out is listed."""

from __future__ import annotations

import json
from pathlib import Path

from ingest.proof.forms import ValueType
from ingest.proof.needles.collected import CollectedNeedles, CollectedValue
from ingest.proof.needles.terms import SHARED, WITHIN, Needle, collected_terms, needles_of
from ingest.proof.scan.report import CollectedColumn
from ingest.proof.scan.search_terms import SearchTerm
from tests.proof.subject import planted, scan, seen

TABLE = "public.members"
MAIL = "anna.before@mail.example"


def needles(**values: tuple[str, object]) -> tuple[Needle, ...]:
    """Returns the needles of columns, each with a kind and a value."""
    found = [CollectedValue(TABLE, column, kind, json.dumps({"v": one})) for column, (kind, one) in values.items()]
    return needles_of(CollectedNeedles(tuple(found)))


def limits(terms: tuple[SearchTerm, ...]) -> dict[str, tuple[str, ...]]:
    """Returns value → the columns in which it counts; none for everywhere."""
    return {term.value: term.columns for term in terms}


def test_only_specific_texts_count_everywhere() -> None:
    found = collected_terms(
        needles(
            mail=("string", MAIL),
            name=("string", "Anna"),
            city=("string", "Graz-Umgebung"),
            born=("date", "1961-02-03"),
            text=("string", "1961-02-03"),
            member=("int64", 481516234),
            token=("uuid", "7c1f0c1e-0000-4000-8000-000000000001"),
            photo=("bytes", "3q2+7wAB"),
            adult=("boolean", True),
            empty=("string", "  "),
        )
    )
    assert limits(found.terms) == {
        MAIL: (),
        "Anna": ("name",),
        "Graz-Umgebung": (),
        "1961-02-03": ("text",),
        "481516234": ("member",),
        "7c1f0c1e-0000-4000-8000-000000000001": (),
        "deadbeef0001": (),
        "true": ("adult",),
    }
    assert {term.label: term.type for term in found.terms}[f"{TABLE}.born"] is ValueType.DATE
    assert all(term.table == (TABLE if term.columns else "") for term in found.terms)
    assert found.not_decided == ()


def test_parts_of_nested_values_are_values() -> None:
    nested = needles(mails=("array", [MAIL, None]), about=("json", '{"home": {"street": "Herrengasse 7", "no": 7}}'))
    assert [needle.value for needle in nested] == [
        MAIL,
        '{"home": {"street": "Herrengasse 7", "no": 7}}',
        "7",
        "Herrengasse 7",
    ]


def test_values_of_others_are_listed_by_column_and_number() -> None:
    found = collected_terms(
        needles(mail=("string", MAIL), city=("string", "Graz-Umgebung"), street=("string", "Herrengasse 7")),
        [(f"{TABLE}.iban", "it is encrypted")],
        shared={1},
        within={1, 2},
    )
    assert limits(found.terms) == {MAIL: (), "Herrengasse 7": ("street",)}
    assert found.columns == (
        CollectedColumn(f"{TABLE}.mail", 1, 0),
        CollectedColumn(f"{TABLE}.city", 0, 1),
        CollectedColumn(f"{TABLE}.street", 1, 0),
    )
    assert [(one.needle, one.form, one.why) for one in found.not_decided] == [
        (f"{TABLE}.city", "1 value", SHARED),
        (f"{TABLE}.street", "1 value", WITHIN),
        (f"{TABLE}.iban", "all values", "it is encrypted"),
    ]


def test_events_that_hold_a_value_hold_one_of_its_written_forms() -> None:
    name, born = needles(name=("string", 'Jürgen "X"'), born=("date", "1961-02-03"))
    for written, ascii_only in (('Jürgen "X"', True), ('JÜRGEN "x"', False)):
        event = json.dumps({"after": {"name": written, "born": -3254}}, ensure_ascii=ascii_only).lower()
        assert any(text in event for text in name.written)
        assert any(text in event for text in born.written)


def test_collected_values_are_found_in_a_file(tmp_path: Path) -> None:
    terms = collected_terms(needles(mail=("string", MAIL), name=("string", "Anna"), m=("string", "m"))).terms
    found = planted(tmp_path, {"note.txt": f"wrote to {MAIL.upper()} and Anna".encode()})
    assert found.findings == {}
    assert {needle for _, needle, _ in seen(scan(tmp_path, terms))} == {f"{TABLE}.mail"}
