"""Where the source may have other values in rows from before a change than its events show, status says so until the
rows are read again."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.cli.pipeline.status import _lines
from ingest.config import Pipeline
from ingest.lakehouse.silver import Silver
from ingest.pipeline.definition_changes import table_changes
from ingest.pipeline.status import status
from tests.changelogs import Topic, schema
from tests.shop import captured, merged, pipeline

pytestmark = pytest.mark.spark
ORDERS = "public.orders"
ID = {"field": "id", "type": "int32", "optional": False}
NUMBERS = {"field": "s", "type": "array", "items": {"type": "int32", "optional": True}, "optional": True}
PLAIN = {"field": "n", "type": "int32", "optional": True}
OLD, NEW = schema(ID), schema(ID, NUMBERS, PLAIN)


def unknown(spark: SparkSession, shop: Pipeline) -> tuple[dict[str, int], list[str]]:
    found = status(spark, shop.name, shop.layout)
    (table,) = found.tables
    return dict(table.unknown), [text for label, text in _lines(found) if label == "unknown"]


def test_value_that_no_schema_shows_is_unknown_until_the_row_is_read_again(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At the source: ADD s int[] DEFAULT '{1}', ADD n int."""
    shop, topic = pipeline(tmp_path), Topic("shop.orders")
    topic.change("c", 10, {"id": 1}, schema=OLD)
    topic.change("c", 20, {"id": 2, "s": [2], "n": 2}, schema=NEW)
    with caplog.at_level(logging.WARNING):
        merged(spark, shop, captured(spark, shop, tmp_path, topic.records))
    silver = Silver(spark, shop.layout.silver(shop.name, ORDERS))
    rows = {row["id"]: (row["s"], row["n"]) for row in silver.rows().collect()}
    assert rows == {1: (None, None), 2: ([2], 2)}
    (warning,) = [record.getMessage() for record in caplog.records if "'s'" in record.getMessage()]
    assert "may have a default that only the source knows" in warning
    assert f"ingest resync shop {ORDERS}" in warning
    assert "'n'" not in caplog.text, "of an int the schema would show a default"
    text = f"{ORDERS}: 1 row from before column s may have a value at the source → ingest resync shop {ORDERS}"
    assert unknown(spark, shop) == ({"s": 1}, [text])
    added = [c for c in table_changes(spark, shop.name, shop.layout, ORDERS) if c.kind == "add.column"]
    assert [(c.text, c.remedy) for c in added] == [
        (
            "column s added; rows from before read what only the source knows, it is assumed",
            "read them again: ingest resync PIPELINE TABLE",
        ),
        ("column n added; rows from before read null, it is assumed", None),
    ]

    topic.change("r", 30, {"id": 1, "s": [1], "n": None}, schema=NEW)
    merged(spark, shop, captured(spark, shop, tmp_path, topic.records))
    assert {row["id"]: row["s"] for row in silver.rows().collect()} == {1: [1], 2: [2]}
    assert unknown(spark, shop) == ({}, [])


def test_value_that_schemas_alone_show_is_assumed_until_the_row_is_read_again(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At the source: ADD d float8 DEFAULT random(), RENAME a TO b, ALTER v TYPE int USING v % 10."""
    shop, topic = pipeline(tmp_path), Topic("shop.orders")
    default = {"field": "d", "type": "double", "optional": True, "default": 0.0}
    old = schema(ID, {"field": "a", "type": "int32", "optional": True}, {"field": "v", "type": "int64"})
    new = schema(ID, {"field": "b", "type": "int32", "optional": True}, {"field": "v", "type": "int32"}, default)
    topic.change("c", 10, {"id": 1, "a": 5, "v": 15}, schema=old)
    topic.change("c", 20, {"id": 2, "b": 6, "v": 6, "d": 0.5}, schema=new)
    with caplog.at_level(logging.WARNING):
        merged(spark, shop, captured(spark, shop, tmp_path, topic.records))
    silver = Silver(spark, shop.layout.silver(shop.name, ORDERS))
    rows = {row["id"]: (row["b"], row["v"], row["d"]) for row in silver.rows().collect()}
    assert rows == {1: (None, 15, 0.0), 2: (6, 6, 0.5)}
    assert "column 'v' was int64 and is int32: values from before are as they were" in caplog.text
    found = status(spark, shop.name, shop.layout)
    assert found.tables[0].assumed == {"b": 1, "d": 1, "v": 1}
    texts = [text for label, text in _lines(found) if label == "assumed"]
    assert len(texts) == 3
    text = f"{ORDERS}: 1 row from before column b was added or got its type may have another value at the source"
    assert f"{text} → ingest resync shop {ORDERS}" in texts
    changes = {c.column: c.text for c in table_changes(spark, shop.name, shop.layout, ORDERS)}
    assert changes["v"].endswith(", it is assumed")
    assert changes["d"] == "column d added; rows from before read 0.0, it is assumed"

    topic.change("r", 30, {"id": 1, "b": 5, "v": 5, "d": 0.7}, schema=new)
    merged(spark, shop, captured(spark, shop, tmp_path, topic.records))
    (table,) = status(spark, shop.name, shop.layout).tables
    assert not table.assumed
