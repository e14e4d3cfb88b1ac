"""The quarantine's reason for tables whose events have no usable key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from tests.changelogs import Record, Topic, write
from tests.merge.rules import row

pytestmark = pytest.mark.spark
ORDERS = "public.orders"


def _declared_key_that_no_event_holds() -> tuple[list[Record], dict[str, Any], str]:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    settings = {"tables": {ORDERS: {"primary_key": ["ident"]}}}
    return t.records, settings, "no event holds the column 'ident' of the declared primary_key"


def _keys_without_json() -> tuple[list[Record], dict[str, Any], str]:
    t = Topic()
    t.change("c", 10, row(1, "a"), key=None, key_bytes="\0\0\0\0\1x")
    return t.records, {}, "the records' keys are no JSON objects"


def _keys_that_name_another_column() -> tuple[list[Record], dict[str, Any], str]:
    t = Topic()
    t.change("c", 10, row(1, "a"), key={"ident": 1})
    return t.records, {}, "no row image holds the column 'ident' of the records' keys"


@pytest.mark.parametrize(
    "case", [_declared_key_that_no_event_holds, _keys_without_json, _keys_that_name_another_column]
)
def test_reason_explains_the_missing_key(spark: SparkSession, tmp_path: Path, case: Any) -> None:
    records, settings, reason = case()
    folder = write(tmp_path / "events", records, settings)
    files = Case("refused", (folder / "events.jsonl",), folder / "tables.json", tmp_path / "out")
    ((_, summary),) = replay(spark, [files], Delivery(), "jsonl")
    (entry,) = summary["quarantine"]
    assert entry["code"] == "no-key"
    assert reason in entry["reason"]
    assert "a" not in entry["reason"].split("'")[1::2], "a reason holds no values"
