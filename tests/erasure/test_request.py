"""A dry run counts the rows to erase per location; a request is stored in the ledger, and its subject suppressed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.cli import app
from ingest.cli.erasure import erase as command
from ingest.config import Pipeline
from ingest.erasure.request import SubjectId
from ingest.errors import ConfigError
from ingest.suppression.ledger import Ledger
from ingest.testing import Event
from tests.erasure import people
from tests.erasure.people import CLAIMS, MEMBERS, PHOTOS, SETTINGS, STRIDE, TableEvent, insured
from tests.suppression.test_suppression import captured, merged, rows

pytestmark = pytest.mark.spark


def story() -> list[TableEvent]:
    """Returns events of two members. The first one has a claim that was the other's before, a deleted claim, and a
    photo of each."""
    events = []
    for n in range(2):
        events.append(TableEvent(MEMBERS, Event("c", n, 10 + n, STRIDE + n, {"name": f"name {n}"})))
    for n, (key, member) in enumerate([(50, 0), (51, 1), (52, 0)]):
        events.append(TableEvent(CLAIMS, Event("c", n, 20 + n, key, {"member_id": STRIDE + member, "text": "x"})))
    events.append(TableEvent(CLAIMS, Event("u", 3, 30, 51, {"member_id": STRIDE, "text": "y"})))
    for n, claim in enumerate([50, 51, 52, 99]):
        events.append(TableEvent(PHOTOS, Event("c", n, 40 + n, 70 + n, {"claim_id": claim, "text": "x"})))
    events.append(TableEvent(CLAIMS, Event("d", 4, 60, 52)))
    return events


LATE = [
    TableEvent(PHOTOS, Event("c", 4, 45, 75, {"claim_id": 52, "text": "late"})),
    TableEvent(MEMBERS, Event("c", 2, 80, STRIDE, {"name": "anew"})),
]


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Returns a pipeline with everything merged, whose commands run in this session."""

    @contextmanager
    def this_session(*_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(command, "running", this_session)
    tables = SETTINGS | {CLAIMS: SETTINGS[CLAIMS] | {"history": True}}
    made = insured(tmp_path, tables=tables)
    merged(spark, made, captured(spark, made, tmp_path / "events", people.records(story(), 1), None, 20), 20)
    return made


def erase(folder: Path, *arguments: str, stdin: str | None = None) -> dict[str, Any]:
    words = ["erase", str(folder / "insured.yaml"), *arguments, "--json"]
    summary = CliRunner().invoke(app, words, input=stdin, catch_exceptions=False)
    assert summary.exit_code == 0, summary.output
    found: dict[str, Any] = json.loads(summary.stdout)
    return found


def counts(summary: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {(f["place"], f["table"]): f["count"] for f in summary["found"]}


@pytest.mark.long
def test_dry_run_counts_rows_per_place(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> None:
    summary = erase(tmp_path, "--subject", f"member:{STRIDE}", "--dry-run")
    assert counts(summary) == {
        ("bronze", MEMBERS): 1,
        ("silver", MEMBERS): 1,
        ("bronze", CLAIMS): 5,
        ("history", CLAIMS): 9,
        ("silver", CLAIMS): 2,
        ("tombstones", CLAIMS): 1,
        ("bronze", PHOTOS): 3,
        ("silver", PHOTOS): 3,
    }
    assert {f["becomes"] for f in summary["found"]} == {"removed"}
    assert summary["keys"] == 7
    insured(tmp_path, tables=SETTINGS | {CLAIMS: SETTINGS[CLAIMS] | {"on_erasure": {"text": None}}})
    summary = erase(tmp_path, "--subject", "-", "--dry-run", stdin=f"member:{STRIDE}\n")
    masked = [(f["place"], f["table"]) for f in summary["found"] if f["becomes"] == "masked"]
    assert masked == [("silver", CLAIMS)]
    assert not Path(pipeline.layout.ledger).exists()


def test_request_is_in_the_ledger_and_its_events_are_suppressed(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    summary = erase(tmp_path, "--subject", f"member:{STRIDE}", "--upto", "bronze", "--reason", "a letter", "--ask-only")
    ledger = Ledger(spark, pipeline.layout.ledger, pipeline.name)
    (entry,) = ledger.entries()
    assert summary["requests"] == [entry.request]
    assert (entry.subject, entry.table, entry.reason, entry.keys) == ("member", MEMBERS, "a letter", 7)
    assert list(ledger.verify()) == []
    for file in Path(pipeline.layout.ledger).rglob("*"):
        assert file.is_dir() or str(STRIDE).encode() not in file.read_bytes()
    late = people.records([*story(), *LATE], 1)
    merged(spark, pipeline, captured(spark, pipeline, tmp_path / "more", late, None, 20), 20)
    assert 75 not in rows(spark, pipeline, PHOTOS)
    assert rows(spark, pipeline, MEMBERS)[STRIDE] == {"name": "anew"}


@pytest.mark.long
def test_file_of_subjects_makes_a_request_for_each(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_text(f"member:{STRIDE}\n\nmember:{STRIDE + 1}\nmember:{STRIDE}\n", encoding="utf-8")
    summary = erase(tmp_path, "--all", str(names), "--upto", "bronze", "--ask-only")
    assert len(summary["requests"]) == summary["subjects"] == 2
    entries = list(Ledger(spark, pipeline.layout.ledger, pipeline.name).entries())
    # A claim that changed its member belongs to both.
    assert [(e.number, e.keys) for e in entries] == [(1, 7), (2, 3)]


DELETED = [
    TableEvent(CLAIMS, Event("d", 5, 90, 50)),
    TableEvent(MEMBERS, Event("d", 2, 91, STRIDE)),
    # A claim of the deleted member is of the erased life, whatever happens to it afterwards.
    TableEvent(CLAIMS, Event("u", 7, 93, 51, {"member_id": STRIDE, "text": "left behind"})),
    TableEvent(CLAIMS, Event("c", 8, 94, 54, {"member_id": STRIDE, "text": "too late"})),
    TableEvent(MEMBERS, Event("c", 3, 95, STRIDE, {"name": "anew"})),
    TableEvent(CLAIMS, Event("c", 6, 96, 53, {"member_id": STRIDE, "text": "new"})),
]


@pytest.mark.long
def test_delete_at_the_source_requests_an_erasure(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> None:
    tables = SETTINGS | {
        MEMBERS: SETTINGS[MEMBERS] | {"erase_on_delete": True},
        CLAIMS: SETTINGS[CLAIMS] | {"history": True},
    }
    asking = insured(tmp_path, tables=tables)
    assert erase(tmp_path)["deleted_at_source"] == 0
    later = people.records([*story(), *DELETED], 1)
    merged(spark, asking, captured(spark, asking, tmp_path / "more", later, None, 20), 20)
    summary = erase(tmp_path, "--keep-old-files", "0")
    assert summary["deleted_at_source"] == 1
    assert summary["old_files_remain_until"] is None
    assert summary["out_of_reach"][0]["place"] == "topics on 127.0.0.1:9"
    assert rows(spark, asking, MEMBERS) == {STRIDE: {"name": "anew"}, STRIDE + 1: {"name": "name 1"}}
    assert rows(spark, asking, CLAIMS) == {53: {"member_id": STRIDE, "text": "new"}}
    assert rows(spark, asking, PHOTOS).keys() == {73}
    assert erase(tmp_path)["deleted_at_source"] == 0


def test_invalid_subject_is_refused_and_not_shown() -> None:
    assert "42" not in repr(SubjectId.parse("member:42"))
    with pytest.raises(ConfigError) as caught:
        SubjectId.parse("anna@example.org")
    assert "anna" not in str(caught.value)
