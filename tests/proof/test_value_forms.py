"""Each form of a value is what connectors, Spark and Delta write, and is found in whatever case."""

from __future__ import annotations

import base64
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.errors import ConfigError
from ingest.proof.forms import ValueType, forms_of, inferred_type
from ingest.proof.forms.case_folding import case_units, variants
from ingest.proof.forms.encodings import BROKEN_BASE64, IN_COLUMN
from ingest.proof.forms.typed_forms import (
    DAYS,
    GUID_BYTES,
    ISO_TEXT,
    MICROS,
    MILLIS,
    NANOS,
    OF_THE_DAY,
    PLAIN_NUMBER,
    SCIENTIFIC,
    SECONDS,
    TYPED_FORMS,
    UNDASHED,
    UNSCALED,
    UUID_BYTES,
)
from ingest.proof.scan.columns import leaves, matches_in
from ingest.proof.scan.parquet import DecodedColumn, decode_parquet
from ingest.proof.scan.report import build_report
from ingest.proof.scan.search import PatternSearch
from ingest.proof.scan.search_terms import SearchTerm, parse_search_terms

MAIL = "anna.mixed@mail.example"
STORED = "Anna.Mixed@Mail.Example"
BORN = json.dumps({"born": {"value": "1961-02-03", "type": "date"}})


def found(term: SearchTerm, body: bytes) -> set[str]:
    return {match.encoding for match in PatternSearch([term]).in_bytes(body)}


def bodies(value: str, kind: ValueType) -> dict[str, list[object]]:
    named: dict[str, list[object]] = {}
    for form in forms_of(value, kind):
        named.setdefault(form.name, []).append(form.body)
    return named


def in_parquet(term: SearchTerm, column: str, values: pa.Array) -> set[str]:
    out = io.BytesIO()
    pq.write_table(pa.table({column: values}), out)
    search = PatternSearch([term])
    decoded: Iterator[Any] = decode_parquet(io.BytesIO(out.getvalue()))
    columns = [one for one in decoded if isinstance(one, DecodedColumn) and "column" in one.part]
    return {form for column in columns for _, form, _ in matches_in(search, column.leaf)}


@pytest.mark.parametrize("written", [STORED, STORED.upper(), STORED.swapcase(), "aNNa.Mixed@mail.exaMPLE"])
@pytest.mark.parametrize(
    "encode",
    [
        str.encode,
        lambda v: json.dumps({"after": {"email": v}}).encode(),
        lambda v: "".join(f"\\u{ord(c):04X}" for c in v).encode(),
        lambda v: base64.b64encode(b"x" + v.encode()),
        lambda v: base64.urlsafe_b64encode(b"xy" + v.encode()),
        lambda v: v.encode().hex().encode(),
        lambda v: v.encode("utf-16-le"),
        lambda v: v.encode("utf-32-be"),
        lambda v: v.replace("@", "%40").encode(),
    ],
)
def test_value_is_found_in_another_case(written: str, encode: Any) -> None:
    assert found(SearchTerm("email", MAIL), b"before " + encode(written) + b" after")


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("änne übelhör", "ÄNNE Übelhör"),
        ("Jürgen Groß", "JÜRGEN GROSS"),
        ("strauss weg", "STRAUẞ WEG"),
        ("αθηνά παπαδοπούλου", "ΑΘΗΝΆ Παπαδοπούλου"),
        ("АННА КАРЕНИНА", "аннА Каренина"),
        ("chris smith", "ChriSSmith".replace("SS", "s S")),
    ],
)
def test_letters_of_any_script_are_folded(asked: str, stored: str) -> None:
    term = SearchTerm("name", asked)
    encodings = ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
    for body in (
        *(stored.encode(encoding) for encoding in encodings),
        json.dumps({"name": stored}).encode(),
        base64.b64encode(stored.encode()),
        stored.encode().hex().encode(),
    ):
        assert found(term, b"<" + body + b">"), body


@settings(max_examples=50, deadline=None)
@given(st.text("aBcDé ÖßΣσςжЖ", min_size=6, max_size=14).filter(str.strip), st.data())
def test_any_case_of_any_letter_is_found(text: str, data: st.DataObject) -> None:
    written = "".join(data.draw(st.sampled_from([c, c.upper(), c.lower()])) for c in text)
    if written.casefold() == text.casefold():
        assert found(SearchTerm("text", text), b"x " + written.encode() + b" y")


def test_variants_of_a_text_fold_to_the_same() -> None:
    for text in ("Straße", "ΑΘΗΝΆ", "Дом", "ÅÆØ"):
        assert {variant.casefold() for variant in variants(case_units(text))} == {text.casefold()}


def test_forms_of_a_date_are_its_numbers_in_each_unit() -> None:
    named = bodies("1961-02-03", ValueType.DATE)
    assert named[DAYS] == [-3254]
    assert named[SECONDS] == [-281145600]
    assert named[MILLIS] == [-281145600_000]
    assert named[MICROS] == [-281145600_000_000]
    assert named[NANOS] == [-281145600_000_000_000]


def test_forms_of_a_timestamp_are_in_utc() -> None:
    named = bodies("2001-09-09T03:46:40.120+02:00", ValueType.TIMESTAMP)
    assert named[ISO_TEXT] == ["2001-09-09T01:46:40.12", "2001-09-09 01:46:40.12"]
    assert named[SECONDS] == [1_000_000_000]
    assert named[MILLIS] == [1_000_000_000_120]
    assert named[MICROS] == [1_000_000_000_120_000]
    assert named[NANOS] == [1_000_000_000_120_000_000]


def test_timestamp_is_cut_off_to_milliseconds_as_in_statistics() -> None:
    named = bodies("2001-09-09T01:46:40.123456Z", ValueType.TIMESTAMP)
    assert "2001-09-09T01:46:40.123" in named[ISO_TEXT]
    term = SearchTerm("seen", "2001-09-09T01:46:40.123456Z")
    assert ISO_TEXT in found(term, b'{"minValues":{"seen":"2001-09-09T01:46:40.123Z"}}')


def test_forms_of_a_time_are_of_its_day() -> None:
    named = bodies("04:05:06.789", ValueType.TIME)
    assert named[ISO_TEXT] if ISO_TEXT in named else named["as given"] == ["04:05:06.789"]
    assert [named.get(name) for name in OF_THE_DAY] == [None, [14706789], [14706789000], [14706789000000]]


def test_forms_of_a_decimal_are_its_unscaled_bytes() -> None:
    named = bodies("-1234.50", ValueType.DECIMAL)
    assert named[PLAIN_NUMBER] == [Decimal("-1234.5")]
    assert set(named[SCIENTIFIC]) == {"-1.2345E3", "-1.2345E+3"}
    # Debezium's documentation writes numeric(10,2) as the base64 of these.
    assert base64.b64decode("/h3G") in named[UNSCALED]
    assert int.from_bytes(base64.b64decode("/h3G"), signed=True) == -123450


def test_forms_of_a_uuid_are_texts_and_bytes() -> None:
    named = bodies("0F8FAD5B-D9CB-469F-A165-70867728950E", ValueType.UUID)
    assert named[UNDASHED] == ["0f8fad5bd9cb469fa16570867728950e"]
    assert named[UUID_BYTES] == [bytes.fromhex("0f8fad5bd9cb469fa16570867728950e")]
    assert named[GUID_BYTES] == [bytes.fromhex("5bad8f0fcbd99f46a16570867728950e")]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1961-02-03", ValueType.DATE),
        ("1961-02-31", ValueType.TEXT),
        ("1961-02-03 04:05:06", ValueType.TIMESTAMP),
        ("1961-02-03T04:05:06.789Z", ValueType.TIMESTAMP),
        ("04:05:06", ValueType.TIME),
        ("0f8fad5b-d9cb-469f-a165-70867728950e", ValueType.UUID),
        ("4711", ValueType.INTEGER),
        ("-12.50", ValueType.DECIMAL),
        ("+43 1 4711", ValueType.TEXT),
        ("anna@mail.example", ValueType.TEXT),
    ],
)
def test_type_is_that_in_which_a_value_is_written(text: str, kind: ValueType) -> None:
    assert inferred_type(text) is kind


def test_birth_date_is_found_as_days_in_bronze() -> None:
    (term,) = parse_search_terms(BORN)
    event = {"after": {"id": 1, "born": -3254}, "op": "c"}
    assert found(term, json.dumps(event).encode()) == {DAYS}
    assert found(term, json.dumps({"after": {"id": -3254, "born": -32540}}).encode()) == set()
    assert found(term, json.dumps({"after": {"born": [1, -3254]}}).encode()) == {DAYS}
    assert found(term, json.dumps({"after": {"born": {"int": -3254}}}).encode()) == {DAYS}


@pytest.mark.parametrize(
    ("asked", "written", "form"),
    [
        ({"value": "1961-02-03", "type": "date"}, {"other": -281145600000}, MILLIS),
        ({"value": "1961-02-03", "type": "date"}, {"other": "1961-02-03T00:00:00Z"}, "as given"),
        ({"value": "2001-09-09T01:46:40.5Z"}, {"x": "2001-09-09 01:46:40.500+00"}, ISO_TEXT),
        ({"value": "2001-09-09T01:46:40.5Z"}, {"x": 1000000000500}, MILLIS),
        ({"value": "-1234.50", "columns": ["pay"]}, {"pay": "/h3G"}, UNSCALED),
        ({"value": "-1234.50", "columns": ["pay"]}, {"pay": {"scale": 2, "value": "/h3G"}}, UNSCALED),
        ({"value": "-1234.50", "columns": ["pay"]}, {"pay": -1234.5}, PLAIN_NUMBER),
        ({"value": "-1234.50", "columns": ["pay"]}, {"pay": "-1234.5000"}, IN_COLUMN),
        ({"value": "04:05:06.789", "columns": ["at"]}, {"at": 14706789000}, OF_THE_DAY[2]),
        ({"value": "Zoë", "columns": ["name"]}, {"name": "ZOË"}, IN_COLUMN),
        ({"value": "DEADBEEF", "type": "bytes", "columns": ["photo"]}, {"photo": "3q2+7w=="}, "bytes"),
        ({"value": "DEADBEEF", "type": "bytes", "columns": ["photo"]}, {"photo": "\\xdeadbeef"}, "bytes"),
        ({"value": 4711000001}, {"x": 4711000001}, "as given"),
    ],
)
def test_typed_value_is_found_in_events(asked: object, written: object, form: str) -> None:
    (term,) = parse_search_terms(json.dumps({"label": asked}))
    assert form in found(term, json.dumps({"after": written}).encode())
    # Within the text of another document.
    assert form in found(term, json.dumps({"payload": json.dumps({"after": written})}).encode())


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        ({"value": "1961-02-03", "type": "date"}, {"other": -3254}),
        ({"value": "1961-02-03", "type": "date"}, {"other": -2811456000001}),
        ({"value": "2001-09-09T01:46:40.5Z"}, {"x": "2001-09-09 01:46:40.51+00"}),
        ({"value": "-1234.50", "columns": ["pay"]}, {"pay": "/H3G"}),
        ({"value": "-1234.50", "columns": ["pay"]}, {"other": "/h3G"}),
        ({"value": 42, "columns": ["id"]}, {"id": "2a"}),
        ({"value": "-1234.50", "columns": ["pay"]}, {"pay": -1234.51}),
        ({"value": "04:05:06.789", "columns": ["at"]}, {"other": 14706789000}),
    ],
)
def test_other_values_are_not_found(asked: object, written: object) -> None:
    (term,) = parse_search_terms(json.dumps({"label": asked}))
    assert found(term, json.dumps({"after": written}).encode()) == set()


@pytest.mark.parametrize(
    ("asked", "values", "form"),
    [
        ({"value": "1961-02-03", "columns": ["c"]}, pa.array([-3254], pa.int32()), DAYS),
        ({"value": "1961-02-03", "columns": ["c"]}, pa.array([-3254], pa.int32()).cast(pa.date32()), IN_COLUMN),
        ({"value": "1961-02-03"}, pa.array([-281145600000000], pa.int64()), MICROS),
        (
            {"value": "2001-09-09T01:46:40.5Z", "columns": ["c"]},
            pa.array([10**9 * 1000 + 500], pa.timestamp("ms")),
            ISO_TEXT,
        ),
        ({"value": "04:05:06.789", "columns": ["c"]}, pa.array([14706789000], pa.time64("us")), IN_COLUMN),
        ({"value": "-1234.50", "columns": ["c"]}, pa.array([Decimal("-1234.50")], pa.decimal128(10, 2)), PLAIN_NUMBER),
        ({"value": "-1234.50", "columns": ["c"]}, pa.array([-1234.5], pa.float64()), PLAIN_NUMBER),
        (
            {"value": "0f8fad5b-d9cb-469f-a165-70867728950e"},
            pa.array([b"\x0f\x8f\xad[\xd9\xcbF\x9f\xa1ep\x86w(\x95\x0e"]),
            UUID_BYTES,
        ),
        ({"value": "Zoë", "columns": ["c"]}, pa.array(["ZOË"]), IN_COLUMN),
        ({"value": 4711000001}, pa.array([4711000001], pa.int64()), PLAIN_NUMBER),
    ],
)
def test_typed_value_is_found_in_columns(asked: object, values: pa.Array, form: str) -> None:
    (term,) = parse_search_terms(json.dumps({"label": asked}))
    assert form in in_parquet(term, "c", values)


def lines(body: bytes) -> bytes:
    return base64.encodebytes(b"." * 50 + body)


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (BROKEN_BASE64, lines(STORED.encode())),
        (BROKEN_BASE64, lines(STORED.encode()).replace(b"\n", b"\r\n")),
        (BROKEN_BASE64, json.dumps({"a": lines(STORED.encode()).decode()}).encode()),
        (BROKEN_BASE64, json.dumps({"b": json.dumps({"a": lines(STORED.encode()).decode()})}).encode()),
        (
            "gzip in base64",
            json.dumps({"a": base64.b64encode(gzip.compress(STORED.encode(), mtime=0)).decode()}).encode(),
        ),
        ("zlib in base64", json.dumps({"a": base64.b64encode(zlib.compress(STORED.encode())).decode()}).encode()),
        ("gzip in base64", b" " + base64.encodebytes(gzip.compress(STORED.encode() * 20 + bytes(range(256)), mtime=0))),
        ("JSON in base64", base64.b64encode(json.dumps({"born": -3254, "m": STORED}).encode())),
    ],
)
@pytest.mark.parametrize("size", [7, 64, 100_000])
def test_packed_values_are_found_across_pieces(form: str, body: bytes, size: int) -> None:
    search = PatternSearch([SearchTerm("email", MAIL)])
    whole = b'{"x": "y"}\n' * 300 + body + b'\n{"x": "y"}' * 300
    pieces = [whole[i : i + size] for i in range(0, len(whole), size)]
    assert form in {match.encoding for match in search.in_stream(pieces)}
    assert form in {match.encoding for match in search.in_bytes(whole)}


def test_what_cannot_be_decided_is_listed() -> None:
    report = build_report(parse_search_terms(BORN), [], [])
    assert {(one.needle, one.form) for one in report.not_decided} == {
        ("born", DAYS),
        ("born", "number in a binary record"),
    }
    (mail,) = (one for one in build_report([SearchTerm("email", MAIL)], [], []).not_decided)
    assert mail.form == "hash of another case"
    assert "1961" not in repr(report)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"value": "3.2.1961", "type": "date"}, "is no date"),
        ({"value": "1961-02-30", "type": "date"}, "is no date"),
        ({"value": "noon o'clock", "type": "time"}, "is no time"),
        ({"value": "1961-02-03", "type": "day"}, "unknown type"),
        ({"value": "1961-02-03", "type": ["date"]}, "unknown type"),
    ],
)
def test_value_of_another_type_is_refused(asked: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        parse_search_terms(json.dumps({"label": asked}))
    assert "1961" not in str(refused.value).replace("1961-02-03", "")


def test_leaves_of_lists_and_maps_keep_their_column() -> None:
    (leaf,) = leaves(("born",), pa.array([[1, -3254]], pa.list_(pa.int32())))
    (term,) = parse_search_terms(BORN)
    assert list(matches_in(PatternSearch([term]), leaf)) == [("born", DAYS, 1)]


def test_names_of_forms_are_unique() -> None:
    assert len(set(TYPED_FORMS)) == len(TYPED_FORMS)
