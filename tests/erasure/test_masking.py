"""Tables with `on_erasure` keep their rows, with personal columns masked, after a crash at any step."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.backfill.proving import prove
from ingest.backfill.rebuilding import Rebuild
from ingest.config import Generalised, Pipeline
from ingest.erasure.masking import Masking
from ingest.erasure.places import TABLES
from ingest.evolution.policies import TableColumn
from ingest.lakehouse.row_history import HistoryVersions
from ingest.lakehouse.silver import Silver
from ingest.names import Lakehouse
from ingest.suppression.masks import mask_column
from ingest.values.temporal import FIRST_INSTANT, FIRST_MICROS, LAST_MICROS
from ingest.values.types import INFINITY_MICROS, MINUS_INFINITY_MICROS, parse, spark_type
from tests.column_names import draw_columns
from tests.erasure.people import CLAIMS, MEMBERS, PHOTOS, SETTINGS, cutoff, insured
from tests.erasure.test_removal import ANNA, BEN, NAME, TEXT, dying_after, merge, remove, residues, table_event
from tests.suppression.test_suppression import rows, write_requests

pytestmark = pytest.mark.spark
COLUMNS = {
    "id": "int64",
    "member_id": "int64",
    "text": "string",
    "amount": "decimal(38,4)",
    "paid": "int32",
    "on_day": "date",
    "at": "timestamp_tz",
    "told": "timestamp",
    "code": "string",
    "photo": "bytes",
    "tags": "array<string>",
    "by": "uuid",
}
MASKS = {
    "text": None,
    "amount": {"generalise": 1000},
    "paid": {"generalise": 10},
    "on_day": {"generalise": "year"},
    "at": {"generalise": "month"},
    "told": {"generalise": "year"},
    "code": {"constant": "—"},
}
CLAIM = {
    "member_id": ANNA,
    "text": TEXT,
    "amount": "-12345678901234567890123456789012.3456",
    "paid": -17,
    "on_day": "2024-02-29",
    "at": "2024-02-29T23:59:59.999999Z",
    "told": "2024-02-29T12:00:00.000001",
    "code": "S52.5",
    "photo": "3q2+7w==",
    "tags": ["a", None, "ß"],
    "by": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
}
KEPT = {"photo": bytearray(b"\xde\xad\xbe\xef"), "tags": ["a", None, "ß"], "by": CLAIM["by"]}
WHOLE = {
    **KEPT,
    "text": TEXT,
    "amount": Decimal(str(CLAIM["amount"])),
    "paid": -17,
    "on_day": date(2024, 2, 29),
    "at": datetime(2024, 2, 29, 23, 59, 59, 999999, UTC),
    "told": datetime(2024, 2, 29, 12, 0, 0, 1),
    "code": "S52.5",
}
LEFT = {
    **KEPT,
    "text": None,
    "amount": Decimal("-12345678901234567890123456790000.0000"),
    "paid": -20,
    "on_day": date(2024, 1, 1),
    "at": datetime(2024, 2, 1, tzinfo=UTC),
    "told": datetime(2024, 1, 1),
    "code": "—",
}
STORY = [
    table_event(MEMBERS, "c", 0, 10, ANNA, name=NAME),
    table_event(MEMBERS, "c", 1, 11, BEN, name="Ben"),
    table_event(CLAIMS, "c", 0, 20, 60, **CLAIM | {"text": "a text before"}),
    table_event(CLAIMS, "c", 1, 21, 61, **CLAIM | {"member_id": BEN, "text": "theft"}),
    table_event(CLAIMS, "c", 2, 22, 62, **CLAIM),
    table_event(CLAIMS, "u", 3, 23, 60, **CLAIM),
    table_event(CLAIMS, "d", 4, 24, 62),
    table_event(PHOTOS, "c", 0, 30, 70, claim_id=60, text=TEXT),
]


def tables(**claims: Any) -> dict[str, Any]:
    """Returns settings with masks on claims; rows of members and photos are removed."""
    settings = {"columns": COLUMNS, "primary_key": ["id"], "on_erasure": MASKS, "personal": [*MASKS], "history": True}
    return SETTINGS | {CLAIMS: SETTINGS[CLAIMS] | settings | claims}


DRAWN = draw_columns(int(os.environ.get("FUZZ_SEED", "1")), 2, {*COLUMNS, "claim_id", "name"})
"""Columns of claims and photos with names that the code itself uses."""
DRAWN_MASKS: dict[str, Any] = {
    "string": {"constant": "—"},
    "int64": {"generalise": 1000},
    "date": {"generalise": "year"},
    "timestamp": {"generalise": "year"},
}
"""Type → its mask; null for others."""


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    made = insured(tmp_path, tables=tables())
    merge(spark, made, tmp_path / "events", STORY)
    write_requests(spark, made, {ANNA: cutoff(1, STORY)})
    return made


def claims(spark: SparkSession, pipeline: Pipeline) -> dict[int, Mapping[str, Any]]:
    silver = Silver(spark, pipeline.layout.silver(pipeline.name, CLAIMS)).rows().select(*COLUMNS)
    found = [row.asDict() for row in silver.collect()]
    return {row["id"]: row | {"at": row["at"].astimezone(UTC)} for row in found}


@pytest.mark.long
def test_columns_may_have_names_that_the_code_uses(spark: SparkSession, tmp_path: Path) -> None:
    """Each column holds what its control holds, in a masked table with a history and in one whose rows are removed."""
    types = {name: column.type for column in DRAWN for name in (column.name, column.control)}
    masked = DRAWN[::2]
    masks = {name: DRAWN_MASKS.get(c.type) for c in masked for name in (c.name, c.control)}
    settings = tables(columns=COLUMNS | types, on_erasure=MASKS | masks, personal=[*MASKS, *masks])
    photos = {"id": "int64", "claim_id": "int64", "text": "string"} | types
    made = insured(tmp_path, tables=settings | {PHOTOS: SETTINGS[PHOTOS] | {"columns": photos}})
    values: dict[str, Any] = {}
    for number, column in enumerate(DRAWN):
        values |= column.values(number % 20 + 1)
    story = [
        table_event(MEMBERS, "c", 0, 10, ANNA, name=NAME),
        table_event(MEMBERS, "c", 1, 11, BEN, name="Ben"),
        table_event(CLAIMS, "c", 0, 20, 60, **CLAIM | values),
        table_event(CLAIMS, "c", 1, 21, 61, **CLAIM | {"member_id": BEN} | values),
        table_event(CLAIMS, "c", 2, 22, 62, **CLAIM | values),
        table_event(CLAIMS, "d", 3, 23, 62),
        table_event(PHOTOS, "c", 0, 30, 70, claim_id=60, text=TEXT, **values),
        table_event(PHOTOS, "c", 1, 31, 71, claim_id=61, text="hers", **values),
    ]
    merge(spark, made, tmp_path / "events", story)
    write_requests(spark, made, {ANNA: cutoff(1, story)})
    remove(spark, made)
    silver = (Silver(spark, made.layout.silver(made.name, table)).rows() for table in (CLAIMS, PHOTOS))
    by_id = {row["id"]: row for table_rows in silver for row in table_rows.collect()}
    assert by_id.keys() == {60, 61, 71}
    for column in DRAWN:
        assert all(r[column.name] == r[column.control] for r in by_id.values()), column
        assert by_id[61][column.control] == by_id[71][column.control], column
        assert (by_id[60][column.control] != by_id[61][column.control]) is (column in masked), column


def holds(row: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    return {name: row[name] for name in values} == values


def is_proved(spark: SparkSession, pipeline: Pipeline, scratch: Path) -> bool:
    return all(proof.equal for proof in prove(spark, pipeline, Lakehouse(str(scratch))))


@pytest.mark.long
def test_masked_row_keeps_its_other_columns(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> None:
    before = claims(spark, pipeline)
    assert holds(before[60], WHOLE)
    outcome = remove(spark, pipeline)
    assert outcome.taken[TABLES]["masked"] == 1
    after = claims(spark, pipeline)
    assert after.keys() == {60, 61}
    assert holds(after[60], LEFT)
    assert after[61] == before[61]
    assert rows(spark, pipeline, MEMBERS).keys() == {BEN}
    assert rows(spark, pipeline, PHOTOS) == {}
    assert {needle for needle, _ in residues(pipeline)} <= {"member"}, "its foreign key was not masked"
    versions = HistoryVersions(spark, pipeline.layout.history(pipeline.name, CLAIMS)).rows()
    assert versions.where("id = 60").count() == 1
    assert is_proved(spark, pipeline, tmp_path / "beside")
    Rebuild(spark, pipeline).run()
    assert holds(claims(spark, pipeline)[60], LEFT)
    removed = remove(spark, pipeline)
    assert not any(sum(taken.values()) for taken in removed.taken.values())


@pytest.mark.long
def test_later_change_of_a_masked_row_wins_until_erased(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    remove(spark, pipeline)
    later = [*STORY, table_event(CLAIMS, "u", 5, 31, 60, **CLAIM | {"paid": 99, "text": "personal again"})]
    merge(spark, pipeline, tmp_path / "later", later)
    late = [*later, table_event(CLAIMS, "c", 6, 20, 60, **CLAIM)]
    merge(spark, pipeline, tmp_path / "late", late)
    assert claims(spark, pipeline)[60]["text"] == "personal again"
    write_requests(spark, pipeline, {ANNA: cutoff(1, late)})
    remove(spark, pipeline)
    assert holds(claims(spark, pipeline)[60], LEFT | {"paid": 90})
    assert is_proved(spark, pipeline, tmp_path / "beside")


@pytest.mark.long
def test_removal_that_dies_loses_no_masked_row(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> None:
    steps: list[tuple[Any, str]] = [(Masking, "save"), (Silver, "remove"), (Silver, "apply")]
    for owner, method in steps:
        with dying_after(owner, method):
            remove(spark, pipeline)
    remove(spark, pipeline)
    after = claims(spark, pipeline)
    assert after.keys() == {60, 61}
    assert holds(after[60], LEFT)
    assert {needle for needle, _ in residues(pipeline)} <= {"member"}
    assert is_proved(spark, pipeline, tmp_path / "beside")


def test_infinite_times_are_not_generalised(spark: SparkSession) -> None:
    for kind in ("timestamp", "timestamp_tz"):
        column = TableColumn("t", parse(kind))
        year = mask_column("public.claims", column, {"t": Generalised(generalise="year")})
        stored = spark_type(column.type)
        never = (INFINITY_MICROS, MINUS_INFINITY_MICROS, FIRST_MICROS, FIRST_INSTANT, LAST_MICROS)
        ends = spark.createDataFrame([(micros,) for micros in never], "micros bigint")
        rows = ends.select(F.timestamp_micros("micros").cast(stored).alias("t")).select(
            (F.col("t") == year).alias("same")
        )
        assert [row["same"] for row in rows.collect()] == [True] * 5


@pytest.mark.long
def test_mask_that_does_not_fit_the_type_removes_no_row(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "on_erasure.code is for another type: the column holds string": {"code": {"generalise": 10}},
        "on_erasure.paid: the constant is no value of its type": {"paid": {"constant": "nothing"}},
    }
    for problem, masks in wrong.items():
        left = remove(spark, insured(tmp_path, tables=tables(on_erasure=MASKS | masks))).left
        assert left is not None
        assert problem in left.problem
    assert claims(spark, pipeline).keys() == {60, 61}
