"""The values of a subject are collected from all images of its events when its erasure is requested."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.erasure.certifying import collected_needles, erasure_of
from ingest.erasure.needle_collection import sealed_file
from ingest.erasure.request import SubjectId, current_cutoff, plan_erasure, request_erasure
from ingest.errors import ProofFailed
from ingest.proof.certificate import Certificate, issue_certificate
from ingest.proof.certificate.keys import make_key_pair, signing_key
from ingest.proof.needles.collected import CollectedNeedles
from ingest.proof.needles.terms import CollectedTerms
from ingest.proof.search import known_columns, places_of, scan_with_canaries
from ingest.testing import Event
from tests.erasure.people import CLAIMS, MEMBERS, PHOTOS, SETTINGS, TableEvent, insured
from tests.erasure.test_removal import ANNA, BEN, merge, remove, table_event

pytestmark = pytest.mark.spark
OLD, MAIL, WRONG = "anna.before@mail.example", "anna.now@mail.example", "on Anna's birthday"
COLUMNS = {"id": "int64", "name": "string", "born": "date"}
STORY = [
    table_event(MEMBERS, "c", 0, 10, ANNA, name=OLD, born=-3254),
    table_event(MEMBERS, "c", 1, 11, BEN, name="ben@mail.example", born=-3254),
    TableEvent(MEMBERS, Event("u", 2, 12, ANNA, {"name": MAIL, "born": -3254}, {"name": "seen before", "born": None})),
    table_event(MEMBERS, "u", 3, 13, ANNA, name=MAIL, born=WRONG),
    table_event(CLAIMS, "c", 0, 20, 99150, member_id=ANNA, text="a wrist"),
    table_event(CLAIMS, "c", 1, 21, 99151, member_id=BEN, text="a door"),
    table_event(CLAIMS, "c", 2, 22, 99152, member_id=ANNA, text="a Door"),
]
NEW_LIFE = [*STORY, table_event(MEMBERS, "c", 4, 90, ANNA, name="another@mail.example", born=None)]


def pipeline_of(folder: Path) -> Pipeline:
    members = SETTINGS[MEMBERS] | {"personal": ["id", "name", "born"], "columns": COLUMNS}
    return insured(folder, tables={MEMBERS: members, CLAIMS: SETTINGS[CLAIMS], PHOTOS: SETTINGS[PHOTOS]})


def request(spark: SparkSession, pipeline: Pipeline, *members: int) -> list[str]:
    """Requests the erasure of these members and returns the requests."""
    subjects = [SubjectId("member", str(member)) for member in members]
    plan = plan_erasure(spark, pipeline, subjects, None, current_cutoff(spark, pipeline, topics=False))
    return [entry.request for entry in request_erasure(spark, pipeline, plan)]


def collected(pipeline: Pipeline, request: str) -> set[tuple[str, str, str, object]]:
    body = sealed_file(pipeline, request).read()
    assert body is not None
    return {(v.table, v.column, v.kind, json.loads(v.json)["v"]) for v in CollectedNeedles.from_bytes(body).values}


def test_values_of_all_images_are_collected(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path)
    merge(spark, pipeline, tmp_path / "events", STORY)
    of_anna, of_ben = request(spark, pipeline, ANNA, BEN)
    assert collected(pipeline, of_anna) == {
        (MEMBERS, "id", "int64", ANNA),
        (MEMBERS, "name", "string", OLD),
        (MEMBERS, "name", "string", MAIL),
        (MEMBERS, "name", "string", "seen before"),
        (MEMBERS, "born", "date", "1961-02-03"),
        (MEMBERS, "born", "string", WRONG),
        (CLAIMS, "text", "string", "a wrist"),
        (CLAIMS, "text", "string", "a Door"),
    }
    assert {value for *_, value in collected(pipeline, of_ben)} == {BEN, "ben@mail.example", "1961-02-03", "a door"}


def searched(found: CollectedTerms | None) -> dict[str, tuple[int, int]]:
    """Returns column → the number of values that are searched for, and of those that are others' too."""
    assert found is not None
    return {column.column: (column.values, column.shared) for column in found.columns}


@pytest.mark.long
def test_certificate_fails_while_a_former_value_lies_somewhere(spark: SparkSession, tmp_path: Path) -> None:
    """Nobody gives a value. What others have in the same column is nobody's residue."""
    pipeline = pipeline_of(tmp_path)
    merge(spark, pipeline, tmp_path / "events", STORY)
    (of_anna,) = request(spark, pipeline, ANNA)
    of_members = {f"{MEMBERS}.id": (1, 0), f"{MEMBERS}.name": (3, 0), f"{MEMBERS}.born": (1, 1)}
    expected = of_members | {f"{CLAIMS}.text": (1, 1)}
    assert searched(collected_needles(spark, pipeline, of_anna)) == expected, "what is left of her is not others'"
    bronze = Path(pipeline.layout.bronze(pipeline.name))
    kept = next(file for file in bronze.glob("**/*.parquet") if file.parent.name != "_delta_log")
    kept = Path(shutil.copy(kept, tmp_path / "kept"))
    remove(spark, pipeline)
    make_key_pair(tmp_path / "sign.pem")
    signer = signing_key(tmp_path / "sign.pem", [Path(pipeline.lakehouse)])
    erasure, collected = erasure_of(spark, pipeline, of_anna), collected_needles(spark, pipeline, of_anna)
    assert searched(collected) == expected
    places, left_out = places_of(pipeline)

    def issue() -> Certificate:
        report = scan_with_canaries(places, (), left_out, [*known_columns(pipeline).columns], collected)
        return issue_certificate(erasure, report, signer, datetime.now(UTC))

    assert issue().content["searched"].startswith("by 6 values that were collected")
    note = Path(pipeline.lakehouse, "note.txt")
    note.write_text(f"sent to {OLD.upper()}")
    with pytest.raises(ProofFailed, match="residues"):
        issue()
    note.unlink()
    shutil.copy(kept, bronze / "left.parquet")
    with pytest.raises(ProofFailed, match="residues"):
        issue()
    (bronze / "left.parquet").unlink()

    merge(spark, pipeline, tmp_path / "new", NEW_LIFE)
    collected = collected_needles(spark, pipeline, of_anna)
    assert searched(collected) == expected | {f"{MEMBERS}.id": (0, 1)}, "the key is a later life's"
    assert issue().content["residues"] == []
