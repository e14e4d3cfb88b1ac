"""Every encoding of a value is found at any chunk boundary, and nothing that only resembles it."""

from __future__ import annotations

import base64
import hashlib
import json
import unicodedata
from collections.abc import Sequence
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.errors import ConfigError
from ingest.proof.forms.encodings import BROKEN_BASE64, ENCODINGS, IN_COLUMN
from ingest.proof.scan.search import Match, PatternSearch
from ingest.proof.scan.search_terms import SearchTerm, parse_search_terms
from tests.proof.subject import EMAIL, NEEDLES, NUMBER

SEARCH = PatternSearch(NEEDLES)
BODY = EMAIL.encode()
WRITTEN: list[tuple[str, bytes]] = [
    ("as given", BODY),
    ("upper case", EMAIL.upper().encode()),
    ("lower case", EMAIL.lower().encode()),
    ("other composition", unicodedata.normalize("NFD", EMAIL).encode()),
    ("Latin-1", EMAIL.encode("latin-1")),
    ("JSON escapes", json.dumps(EMAIL).encode()),
    ("JSON escapes", json.dumps({"a": json.dumps({"b": EMAIL})}).encode()),
    ("JSON escapes", json.dumps(EMAIL).replace("\\u00fc", "\\u00FC").replace("\\u00df", "\\u00DF").encode()),
    ("JSON escapes", EMAIL.replace("/", "\\/").encode()),
    ("JSON escapes", "".join(f"\\u{ord(c):04x}" for c in EMAIL).encode()),
    ("JSON escapes", "".join(f"\\u{ord(c):04X}" for c in EMAIL).encode()),
    ("URL-encoded", quote(EMAIL).encode()),
    ("URL-encoded", quote(EMAIL, safe="").encode()),
    ("URL-encoded", quote_plus(EMAIL).encode()),
    ("URL-encoded", quote(EMAIL, safe="@").encode()),
    ("URL-encoded", quote(EMAIL, safe="/@+").encode()),
    ("URL-encoded", quote(EMAIL).replace("%C3%BC", "%c3%bc").replace("%C3%9F%2B", "%c3%9f%2b").encode()),
    ("URL-encoded", quote(quote(EMAIL, safe="")).encode()),
    ("UTF-16LE", EMAIL.encode("utf-16-le")),
    ("UTF-16BE", EMAIL.encode("utf-16-be")),
    ("UTF-32LE", EMAIL.encode("utf-32-le")),
    ("UTF-32BE", EMAIL.encode("utf-32-be")),
    ("other case", EMAIL.swapcase().encode()),
    ("first 32 characters", EMAIL[:32].encode()),
    ("first 32 characters", (EMAIL[:32] + "\U0010ffff").encode()),
    ("first 32 characters", json.dumps(EMAIL[:32] + "\U0010ffff").encode()),
    ("hex", BODY.hex().encode()),
    ("hex", ("\\x" + BODY.hex()).encode()),
    ("hex", BODY.hex().upper().encode()),
    *(("base64", base64.b64encode(b"x" * n + BODY + b"yz")) for n in range(6)),
    *(
        (algorithm, encode(hashlib.new(algorithm, text.encode()).digest()))
        for algorithm in ("md5", "sha1", "sha256", "sha512")
        for text in (EMAIL, EMAIL.lower(), EMAIL.upper())
        for encode in (bytes, lambda d: d.hex().encode(), lambda d: d.hex().upper().encode(), base64.b64encode)
    ),
]


def forms(search: PatternSearch, body: bytes) -> set[tuple[str, str]]:
    return {(m.label, m.encoding) for m in search.in_bytes(body)}


@pytest.mark.parametrize(("form", "body"), WRITTEN, ids=[f"{i} {form}" for i, (form, _) in enumerate(WRITTEN)])
def test_each_encoding_is_found(form: str, body: bytes) -> None:
    assert ("email", form) in forms(SEARCH, b"before " + body + b" after")


def test_base64_for_urls_is_found() -> None:
    value = "reference ???>>>~~~ of a claim"
    search = PatternSearch([SearchTerm("reference", value)])
    for before in range(4):
        body = base64.urlsafe_b64encode(b"x" * before + value.encode() + b"!")
        assert b"-" in body or b"_" in body
        assert forms(search, body) == {("reference", "base64url")}


def test_every_listed_encoding_is_tested() -> None:
    assert {form for form, _ in WRITTEN} | {"base64url", BROKEN_BASE64} == set(ENCODINGS)


@given(st.sampled_from(WRITTEN), st.binary(max_size=40), st.binary(max_size=40), st.data())
def test_values_across_chunks_are_found(
    written: tuple[str, bytes], before: bytes, after: bytes, data: st.DataObject
) -> None:
    form, body = written
    whole = before + body + after
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[i:j] for i, j in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    found = list(SEARCH.in_stream(pieces))
    assert ("email", form) in {(m.label, m.encoding) for m in found}
    assert sorted(found, key=order) == sorted(SEARCH.in_bytes(whole), key=order)


def order(match: Match) -> tuple[int, int, str, str]:
    return match.begin, match.end, match.label, match.encoding


def cut_in(body: bytes, size: int) -> Sequence[bytes]:
    return [body[i : i + size] for i in range(0, len(body), size)]


NAMED = [
    '{"id":4711,"x":1}',
    '{"id": 4711}',
    '{"ID" : 4711}',
    '{"member_id":"4711"}',
    '{"id":4711.0}',
    json.dumps({"stats": json.dumps({"minValues": {"id": NUMBER}})}),
    json.dumps({"a": json.dumps({"b": json.dumps({"id": str(NUMBER)})})}),
    "table/id=4711/part-0.parquet",
    "(id#12L = 4711)",
    "(`id` <=> 4711)",
    "(member_id#1 = '4711')",
    "id IN (1, 4711, 3)",
    "(id#1L INSET 1, 4711)",
]


@pytest.mark.parametrize("text", NAMED)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_number_counts_in_a_named_column(text: str, size: int) -> None:
    assert {(m.label, m.encoding) for m in SEARCH.in_stream(cut_in(text.encode(), size))} == {("member", IN_COLUMN)}


@pytest.mark.parametrize(
    "text",
    [
        '{"id":47110}',
        '{"id":14711}',
        '{"id":4711.5}',
        '{"kid":4711}',
        '{"lsn":4711}',
        "[4711]",
        "id=47112/",
        '"id","4711"',
    ],
)
def test_number_counts_nowhere_else(text: str) -> None:
    assert list(SEARCH.in_bytes(text.encode())) == []


def test_hashes_of_a_number_count_everywhere() -> None:
    assert forms(SEARCH, hashlib.sha256(b"4711").hexdigest().encode()) == {("member", "sha256")}


@pytest.mark.parametrize("key", [{"id": NUMBER}, {"member_id": NUMBER}, {"id": str(NUMBER)}])
def test_hashes_of_a_key_count_everywhere(key: dict[str, object]) -> None:
    digest = hashlib.sha256(json.dumps(key, separators=(",", ":")).encode())
    assert forms(SEARCH, b"x" + digest.digest()) == {("member", "sha256")}
    assert forms(SEARCH, digest.hexdigest().encode()) == {("member", "sha256")}


def test_short_text_counts_in_its_column() -> None:
    search = PatternSearch([SearchTerm("name", "Zoë", ("first_name",))])
    assert forms(search, '{"first_name":"Zoë"}'.encode()) == {("name", IN_COLUMN)}
    assert forms(search, json.dumps({"first_name": "Zoë"}).encode()) == {("name", IN_COLUMN)}
    assert forms(search, '{"first_name":"Zoëlle"} {"last_name":"Zoë"} Zoë'.encode()) == set()


@given(st.binary(max_size=3000))
def test_clean_bytes_have_no_findings(body: bytes) -> None:
    assert list(SEARCH.in_stream(cut_in(body, 97))) == []


def test_file_names_are_shown_without_values() -> None:
    assert SEARCH.mask(f"silver/email={quote(EMAIL, safe='')}/id=4711/x") == "silver/email=‹email›/id‹member›/x"
    assert SEARCH.mask("silver/claims") == "silver/claims"
    for written in (BODY.hex(), BODY.hex().upper(), EMAIL.swapcase().encode().hex()):
        assert SEARCH.mask(f"by/{written}/x") == "by/‹email›/x"
    for before in range(3):
        masked = SEARCH.mask(f"by/{base64.urlsafe_b64encode(b'x' * before + BODY).decode()}/x")
        assert len(masked) <= len("by/‹email›/x") + 3 + 4


def test_search_terms_are_parsed_from_json() -> None:
    said = {"email": [EMAIL, "another@mail.example"], "member": {"value": NUMBER, "columns": ["id"]}}
    needles = parse_search_terms(json.dumps(said))
    assert [(n.label, n.value, n.columns) for n in needles] == [
        ("email", EMAIL, ()),
        ("email", "another@mail.example", ()),
        ("member", "4711", ("id",)),
    ]
    assert EMAIL not in repr(needles)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a JSON object"),
        ("Anna Muster", "not a JSON object"),
        ("[]", "not a JSON object"),
        ("{}", "not a JSON object"),
        ('{"member": 4711}', "too short"),
        ('{"member": "12345678"}', "too short"),
        ('{"name": "Zoë"}', "too short"),
        ('{"name": ""}', "empty"),
        ('{"name": null}', "neither a text nor a number"),
        ('{"name": {"value": "Anna Muster", "column": "x"}}', "neither"),
        ('{"name": {"value": "Anna Muster", "columns": [1]}}', "columns that are no names"),
        ('{"mail anna.muster@mail.example": "anna.muster@mail.example"}', "label of a searched value holds the value"),
    ],
)
def test_unspecific_search_terms_are_refused_without_their_values(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        parse_search_terms(text)
    assert "Anna" not in str(refused.value)
    assert "12345678" not in str(refused.value)
    assert "4711" not in str(refused.value)
    assert "anna" not in str(refused.value)
    assert refused.value.__cause__ is None
