"""The values of a subject are collected from all images of its events when its erasure is requested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.erasure.needle_collection import sealed_file
from ingest.erasure.request import SubjectId, current_cutoff, plan_erasure, request_erasure
from ingest.proof.needles.collected import CollectedNeedles
from ingest.testing import Event
from tests.erasure.people import CLAIMS, MEMBERS, PHOTOS, SETTINGS, TableEvent, insured
from tests.erasure.test_removal import ANNA, BEN, merge, table_event

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
]


def pipeline_of(folder: Path) -> Pipeline:
    members = SETTINGS[MEMBERS] | {"personal": ["name", "born"], "columns": COLUMNS}
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
        (CLAIMS, "member_id", "int53", ANNA),
        (CLAIMS, "text", "string", "a wrist"),
    }
    assert {value for *_, value in collected(pipeline, of_ben)} == {BEN, "ben@mail.example", "1961-02-03", "a door"}
