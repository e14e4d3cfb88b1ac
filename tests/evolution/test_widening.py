"""A column that is widened keeps its rows for every reader, and the change data feed gets no events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension
from pyspark.sql import SparkSession

from ingest.backfill.row_history import row_events
from ingest.config import Pipeline
from tests.changelogs import Record, Topic, schema
from tests.shop import captured, merged, pipeline

pytestmark = pytest.mark.spark
ORDERS = "public.orders"
BIG = 1 << 40
NARROW = schema(("id", "int64"), ("q", "int32"))
WIDE = schema(("id", "int64"), ("q", "int64"))


def orders(*changes: tuple[str, dict[str, Any], dict[str, Any]]) -> list[Record]:
    topic = Topic("shop.orders", ("public", "orders"))
    for number, (op, row, columns) in enumerate(changes, start=1):
        topic.change(op, 10 * number, row, schema=columns)
    return topic.records


def one_by_one(spark: SparkSession, shop: Pipeline, folder: Path, records: list[Record]) -> str:
    """Captures and merges each record by itself. Returns the path of silver."""
    for count in range(1, len(records) + 1):
        merged(spark, shop, captured(spark, shop, folder, records[:count]))
    return shop.layout.silver(shop.name, ORDERS)


def feed(spark: SparkSession, path: str, since: int, columns: tuple[str, ...] = ("id", "q")) -> list[tuple[Any, ...]]:
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", since).load(path)
    return sorted((tuple(row) for row in changes.select(*columns, "_change_type").collect()), key=repr)


def widened_at(spark: SparkSession, path: str) -> int:
    """Returns the version that changed the types of columns."""
    shown = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").select("version", "userMetadata").collect()
    (version,) = (row.version for row in shown if "types" in json.loads(row.userMetadata or "{}"))
    return int(version)


@pytest.mark.long
def test_widening_adds_nothing_to_the_feed_and_all_readers_read_it(spark: SparkSession, tmp_path: Path) -> None:
    shop = pipeline(tmp_path)
    changes = (("c", 1, 1, NARROW), ("c", 2, 2, NARROW), ("d", 2, 2, NARROW), ("c", 3, BIG, WIDE), ("u", 1, 7, WIDE))
    records = orders(*((op, {"id": key, "q": q}, columns) for op, key, q, columns in changes))
    path = one_by_one(spark, shop, tmp_path, records)
    version = widened_at(spark, path)
    assert feed(spark, path, version) == [
        (1, 1, "update_preimage"),
        (1, 7, "update_postimage"),
        (3, BIG, "insert"),
    ]
    rows = [(1, 7), (3, BIG)]
    assert sorted(tuple(r) for r in spark.read.format("delta").load(path).select("id", "q").collect()) == rows
    assert polars.read_delta(path).select("id", "q").sort("id").rows() == rows
    import_extension("delta")
    assert duckdb.sql(f"SELECT id, q FROM delta_scan('{path}') ORDER BY id").fetchall() == rows
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
    found = pa.table(query.execute("SELECT id, q FROM t ORDER BY id").read_all()).to_pylist()
    assert [tuple(row.values()) for row in found] == rows


def test_filling_a_column_with_its_default_is_in_the_feed(spark: SparkSession, tmp_path: Path) -> None:
    """The rows have changed, so readers of the feed must see the default."""
    shop = pipeline(tmp_path)
    filled = {"field": "n", "type": "int32", "optional": False, "default": 5}
    more = schema(("id", "int64"), ("q", "int64"), filled)
    records = orders(("c", {"id": 1, "q": 1}, NARROW), ("c", {"id": 2, "q": 2, "n": 9}, more))
    path = one_by_one(spark, shop, tmp_path, records)
    version = widened_at(spark, path)
    shown = feed(spark, path, version, ("id", "q", "n"))
    assert shown == [(1, 1, 5, "insert"), (1, 1, None, "delete"), (2, 2, 9, "insert")]


@pytest.mark.long
def test_columns_with_special_names_widen_twice(spark: SparkSession, tmp_path: Path) -> None:
    shop = pipeline(tmp_path)
    kinds = ("int16", "int32", "int64")
    columns = [schema(("id", "int64"), ("unit price", kind)) for kind in kinds]
    records = orders(*(("c", {"id": n, "unit price": n}, one) for n, one in enumerate(columns)))
    path = one_by_one(spark, shop, tmp_path, records)
    rows = spark.read.format("delta").load(path).select("id", "unit price").collect()
    assert sorted(tuple(row) for row in rows) == [(0, 0), (1, 1), (2, 2)]
    assert dict(spark.read.format("delta").load(path).dtypes)["unit price"] == "bigint"


@pytest.mark.long
@pytest.mark.parametrize("history", [False, True], ids=["refolded", "kept"])
def test_row_history_spans_added_and_widened_columns(spark: SparkSession, tmp_path: Path, history: bool) -> None:
    """Old versions have the current columns: null where the source had none, the default where it fills older rows."""
    shop = pipeline(tmp_path, tables={ORDERS: {"history": history}})
    added = schema(
        ("id", "int64"),
        ("q", "int64"),
        ("w", "string"),
        {"field": "n", "type": "int32", "optional": False, "default": 5},
    )
    records = orders(
        ("c", {"id": 1, "q": 1}, NARROW),
        ("u", {"id": 1, "q": 2}, NARROW),
        ("c", {"id": 2, "q": BIG, "w": "x", "n": 6}, added),
    )
    one_by_one(spark, shop, tmp_path, records)
    shown = [(s.what, s.changed) for s in row_events(spark, shop, ORDERS, {"id": "1"}, shop.layout.scratch("life"))]
    assert shown == [
        ("appears", {"id": (None, 1), "q": (None, 1), "w": (None, None), "n": (None, 5)}),
        ("changes", {"q": (1, 2)}),
    ]
