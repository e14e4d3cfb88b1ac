"""An erasure finds the events of a key however it was written: before its column was declared or altered to another
type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.erasure.places import BRONZE
from ingest.erasure.removal import Removal
from ingest.erasure.request import SubjectId, current_cutoff, plan_erasure, request_erasure
from ingest.pipeline.composition import bronze_of
from tests.changelogs import Topic, schema
from tests.erasure.people import MEMBERS, insured
from tests.shop import captured, merged

pytestmark = pytest.mark.spark
ANNA, BEN = 481516, 481517
TEXT: dict[str, Any] = {"field": "id", "type": "string", "optional": False}
_TYPE = {"type": "NUMERIC", "length": "10", "scale": "2"}
NUMERIC = TEXT | {"parameters": {f"__debezium.source.column.{name}": value for name, value in _TYPE.items()}}
"""A key of 481516.00 is known as 481516 to an erasure, but not if the column is text."""


def erased(spark: SparkSession, pipeline: Pipeline, key: str) -> set[int]:
    """Erases a member and returns the offsets of the emptied events."""
    cutoff = current_cutoff(spark, pipeline, topics=False)
    plan = plan_erasure(spark, pipeline, [SubjectId("member", key)], None, cutoff)
    request_erasure(spark, pipeline, plan)
    Removal(spark, pipeline).run()
    offsets = {row["offset"] for row in bronze_of(spark, pipeline).emptied().collect()}
    assert plan.counts[BRONZE, MEMBERS] == len(offsets)
    return offsets


def members(topic: Topic, of: dict[str, Any], *keys: Any) -> None:
    for key in keys:
        row = {"id": key, "name": "a name"}
        topic.change("c", 10 + topic.next_offset, row, schema=schema(of, ("name", "string")))


@pytest.mark.long
def test_events_of_a_declared_key_are_erased(spark: SparkSession, tmp_path: Path) -> None:
    settings = {"subject": {"of": "member", "key": "id"}, "columns": {"id": "string"}}
    pipeline, topic = insured(tmp_path, tables={MEMBERS: settings}), Topic("insured.members", ("public", "members"))
    members(topic, NUMERIC, f"{ANNA}.00", f"{BEN}.00")
    merged(spark, pipeline, captured(spark, pipeline, tmp_path, topic.records))
    assert erased(spark, pipeline, f"{ANNA}.00") == {0}


@pytest.mark.long
def test_events_from_before_the_key_had_another_type_are_erased(spark: SparkSession, tmp_path: Path) -> None:
    settings = {"subject": {"of": "member", "key": "id"}}
    pipeline, topic = insured(tmp_path, tables={MEMBERS: settings}), Topic("insured.members", ("public", "members"))
    members(topic, NUMERIC, f"{ANNA}.00", f"{BEN}.00")
    members(topic, TEXT, "new", f"{ANNA}.00")
    merged(spark, pipeline, captured(spark, pipeline, tmp_path, topic.records))
    assert erased(spark, pipeline, f"{ANNA}.00") == {0, 3}
