"""Any source name becomes a safe folder and identifier, and no two names share one."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.names import Lakehouse, TableName, identifier, path_segment

ANY = st.text(st.characters(), min_size=1, max_size=300)
AWKWARD = st.text(alphabet="aAbB_.-/\\:~'\"` \u00e9e\u0301İıß😀\0\n", min_size=1, max_size=12)
NAMES = ANY | AWKWARD
PLAIN = st.from_regex(r"[a-z][a-z0-9_]{4,20}(\.[a-z0-9_]{1,10}){0,2}", fullmatch=True)


@given(NAMES)
def test_segment_is_safe_on_every_file_system(name: str) -> None:
    segment = path_segment(name)
    assert re.fullmatch(r"[a-z0-9][a-z0-9_.-]{0,127}", segment)
    assert ".." not in segment
    assert not segment.endswith(".")


@given(NAMES)
def test_segment_never_leaves_its_folder(name: str) -> None:
    root = Path("/lakehouse/silver")
    assert (root / path_segment(name)).resolve().parent == root


@given(NAMES, NAMES)
def test_different_names_have_different_segments(one: str, other: str) -> None:
    assert (path_segment(one).casefold() == path_segment(other).casefold()) == (one == other)


@given(st.text(alphabet=string.ascii_letters, min_size=1, max_size=8))
def test_names_that_differ_in_case_have_different_segments(name: str) -> None:
    spellings = {name, name.lower(), name.upper(), name.capitalize()}
    assert len({path_segment(s).casefold() for s in spellings}) == len(spellings)


@given(NAMES)
def test_segment_differs_from_names_that_look_like_it(name: str) -> None:
    segment = path_segment(name)
    assert segment == name or path_segment(segment) != segment


@given(PLAIN)
def test_plain_name_is_its_own_segment(name: str) -> None:
    assert path_segment(name) == name


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("claims.members", "claims.members"),
        ("Claims.Members", "claims.members-dbbffe6391"),
        ("..", "name-5ec1f7e700"),
        ("claims/members", "claims_members-46e50221c9"),
    ],
)
def test_segments_never_change(name: str, segment: str) -> None:
    assert path_segment(name) == segment


@pytest.mark.parametrize("name", ["_delta_log", ".hidden", "con", "nul.txt", "x" * 200])
def test_special_segments_are_avoided(name: str) -> None:
    assert path_segment(name) != name
    assert not path_segment(name).startswith(("_", ".", "con-", "nul"))


@given(NAMES)
def test_quoted_identifier_is_parsed_as_its_name(name: str) -> None:
    quoted = identifier(name)
    assert quoted[0] == quoted[-1] == "`"
    inner = quoted[1:-1]
    assert "`" not in inner.replace("``", "")
    assert inner.replace("``", "`") == name


@pytest.mark.parametrize("name", ["", "  ", "a\0b"])
def test_impossible_table_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a table name can't"):
        TableName(name)


@pytest.mark.parametrize("make", [path_segment, identifier])
def test_empty_name_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match="can't be empty"):
        make("")


def test_each_table_has_its_own_folder() -> None:
    lakehouse = Lakehouse("s3a://bucket/prefix/")
    assert lakehouse.bronze("claims") == "s3a://bucket/prefix/bronze/claims"
    assert lakehouse.silver("claims", TableName("claims.members")) == (
        "s3a://bucket/prefix/silver/claims/claims.members"
    )
    assert lakehouse.tombstones("claims", "../x").startswith("s3a://bucket/prefix/tombstones/claims/x-")
    assert (lakehouse.quarantine, lakehouse.accounts, lakehouse.tables) == tuple(
        f"s3a://bucket/prefix/system/{name}" for name in ("quarantine", "accounts", "tables")
    )
