"""The privacy settings of a pipeline file are validated when it is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ingest.cli.pipeline.plan import plan
from ingest.config import Pipeline, load
from ingest.errors import ConfigError
from ingest.pipeline.composition import rules_of
from ingest.suppression.subjects import subjects_of

MEMBERS = {"subject": {"of": "member", "key": "id"}, "personal": ["name"], "erase_on_delete": True}
CLAIMS = {
    "subject": {"through": {"member_id": "public.members"}},
    "personal": ["text", "born"],
    "on_erasure": {
        "text": None,
        "born": {"generalise": "year"},
        "amount": {"generalise": 100},
        "by": {"constant": "?"},
    },
}
PHOTOS = {"subject": {"through": {"claim_id": "public.claims"}}}
TABLES: dict[str, dict[str, Any]] = {"public.members": MEMBERS, "public.claims": CLAIMS, "public.photos": PHOTOS}


def loaded(folder: Path, tables: dict[str, Any], **more: Any) -> Pipeline:
    written = {
        "source": {"kafka": {"bootstrap.servers": "127.0.0.1:9"}, "topic_pattern": "shop.*"},
        "lakehouse": str(folder / "lakehouse"),
        "privacy": {"key_file": str(folder / "ledger.key")},
        "tables": tables,
    }
    file = folder / "shop.yaml"
    file.write_text(json.dumps({k: v for k, v in (written | more).items() if v is not None}), encoding="utf-8")
    return load(str(file), {})


def refused(folder: Path, tables: dict[str, Any], **more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, tables, **more)
    return caught.value.problem


def test_foreign_keys_link_rows_to_their_subject(tmp_path: Path) -> None:
    rules = rules_of(loaded(tmp_path, TABLES | {"public.log": {}}))
    assert rules.subjects.tables == ["public.members", "public.claims", "public.photos"]
    assert rules.subjects.root_table("member") == "public.members"
    assert [t for t in (*TABLES, "public.log") if rules.subjects.has_subject(t)] == list(TABLES)
    assert [t for t in TABLES if rules.subjects.is_parent(t)] == ["public.members", "public.claims"]
    assert rules.personal == {"public.members": {"name"}, "public.claims": {"text", "born"}}


def test_plan_shows_the_subjects_of_tables(tmp_path: Path) -> None:
    assert plan(loaded(tmp_path, TABLES | {"public.log": {}}))["subjects"] == {
        "public.members": "member by id; a delete at the source asks for erasure",
        "public.claims": "member_id → public.members",
        "public.photos": "claim_id → public.claims",
    }


def test_unknown_kind_of_subject_lists_the_known_ones(tmp_path: Path) -> None:
    subjects = subjects_of(loaded(tmp_path, TABLES).tables)
    with pytest.raises(ConfigError, match="'doctor'") as caught:
        subjects.root_table("doctor")
    assert "member" in caught.value.remedy


def test_table_that_contradicts_the_file_is_refused(tmp_path: Path) -> None:
    subjects = subjects_of(loaded(tmp_path, TABLES).tables)
    subjects.require_columns("public.photos", ("claim_id", "number"), ("claim_id", "number"))
    for table, key, columns, problem in (
        ("public.members", ("number",), ("number",), "identified by id"),
        ("public.claims", ("id", "year"), ("id", "year", "member_id"), "2 columns"),
        ("public.photos", ("id",), ("id", "claim"), "no column 'claim_id'"),
    ):
        with pytest.raises(ConfigError, match=problem):
            subjects.require_columns(table, key, columns)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"public.claims": {"subject": {"through": {"member_id": "public.member"}}}}, "which is not in tables"),
        ({"public.claims": {}}, "leads to no subject"),
        (
            {"public.claims": {"subject": {"through": {"id": "public.photos"}}}},
            "in a circle: public.claims → public.ph",
        ),
        (
            {"public.claims": {"subject": {"through": {"id": "public.claims"}}}},
            "in a circle: public.claims → public.cl",
        ),
        ({"public.claims": {"subject": {"of": "member", "key": "id"}}}, "the rows of public.members already"),
        ({"public.claims": {"subject": {"of": "claim"}}}, "should be {of: member, key: id} or {through:"),
        ({"public.claims": CLAIMS | {"erase_on_delete": True}}, "its rows are no subjects"),
        ({"public.claims": CLAIMS | {"on_erasure": {"text": None}}}, "leaves the personal column 'born'"),
        ({"public.claims": CLAIMS | {"on_erasure": "forget"}}, "should be delete, or for each column null"),
        ({"public.claims": CLAIMS | {"on_erasure": {"text": {"generalise": 0}}}}, "should be delete, or for each"),
        ({"public.claims": CLAIMS | {"columns": {"text": "string"}}}, "calls 'amount' a column"),
        ({"public.claims": CLAIMS | {"primary_key": ["text"]}}, "masks the key column 'text'"),
        ({"public.members": MEMBERS | {"primary_key": ["number"]}}, "subjects by 'id', and another primary_key"),
        ({"public.members": MEMBERS | {"sequence": "name"}}, "orders its changes by the personal column 'name'"),
    ],
)
def test_contradictory_subjects_are_refused(tmp_path: Path, changed: dict[str, Any], problem: str) -> None:
    assert problem in refused(tmp_path, TABLES | changed)


NAMED = {"subject": {"of": "member", "key": "id"}, "personal": ["name"], "shred": ["name"]}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"shred": ["born"]}, "does not call personal"),
        ({"personal": ["name", "id"], "shred": ["id"]}, "which identifies rows"),
        ({"subject": None}, "exactly one subject"),
        ({"on_erasure": {"name": {"generalise": "year"}}}, "which is shredded"),
    ],
)
def test_columns_that_cannot_be_shredded_are_refused(tmp_path: Path, changed: dict[str, Any], problem: str) -> None:
    assert problem in refused(tmp_path, {"public.members": NAMED | changed}, privacy=shredding(tmp_path))


def test_shredded_row_needs_exactly_one_subject(tmp_path: Path) -> None:
    two = {"through": {"buyer": "public.members", "seller": "public.members"}}
    tables = {"public.members": NAMED, "public.sales": {"subject": two, "personal": ["text"], "shred": ["text"]}}
    assert "exactly one subject" in refused(tmp_path, tables, privacy=shredding(tmp_path))


def test_data_keys_must_be_outside_the_lakehouse(tmp_path: Path) -> None:
    tables = {"public.members": NAMED}
    assert "privacy.shredding" in refused(tmp_path, tables)
    for settings in (
        {"key_store": f"sqlite:///{tmp_path}/lakehouse/keys.db"},
        {"master_key_file": f"{tmp_path}/lakehouse/m"},
    ):
        privacy = shredding(tmp_path)
        privacy["shredding"] |= settings
        assert "keeps keys in the lakehouse" in refused(tmp_path, tables, privacy=privacy)
    deleting = {"public.members": NAMED | {"erase_on_delete": True}}
    assert "deletes of public.members request" in refused(tmp_path, deleting, privacy=shredding(tmp_path))
    found = plan(loaded(tmp_path, tables, privacy=shredding(tmp_path)))
    assert found["subjects"] == {"public.members": "member by id; shreds name"}


def shredding(folder: Path) -> dict[str, Any]:
    settings = {"key_store": f"sqlite:///{folder}/keys.db", "master_key_file": f"{folder}/master.key"}
    return {"key_file": f"{folder}/ledger.key", "shredding": settings}


def test_ledger_keys_must_be_outside_the_lakehouse(tmp_path: Path) -> None:
    assert "privacy.key_file" in refused(tmp_path, TABLES, privacy=None)
    inside = {"key_file": str(tmp_path / "lakehouse" / "system" / "ledger.key")}
    assert "lies in the lakehouse" in refused(tmp_path, TABLES, privacy=inside)
    assert loaded(tmp_path, {"public.log": {"personal": ["text"]}}, privacy=None).privacy is None
