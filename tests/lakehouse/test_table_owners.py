"""The catalog records the owner of a table: across restarts, writers and rebuilds, and for older lakehouses."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.proving import prove
from ingest.backfill.rebuilding import Rebuild
from ingest.config import Pipeline
from ingest.lakehouse.catalog import Catalog
from ingest.lakehouse.quarantine import Quarantine
from ingest.loop.merge import Merge
from ingest.pipeline.composition import bronze_of, rules_of
from tests.changelogs import Record
from tests.merge.origin_rules import US, Database, two_databases
from tests.merge.rules import row
from tests.shop import captured, merged, pipeline

pytestmark = pytest.mark.spark
ORDERS = "public.orders"
TOPICS = {"topics": ["eu.public.orders", "us.public.orders"]}


def shop(folder: Path, **source: Any) -> Pipeline:
    return pipeline(folder, source=TOPICS | source)


def changes(one: Database, name: str, lsn: int) -> None:
    for n in range(3):
        one.change("c", lsn + n, row(n, f"{name} {n}"))
    one.change("d", lsn + 5, before=row(0, ""))
    one.tombstone(0)


def records(first: str) -> list[Record]:
    eu, us, found = two_databases()
    for name in ("eu", "us") if first == "eu" else ("us", "eu"):
        changes(eu if name == "eu" else us, name, 100 if name == "eu" else 5000)
    return found


def rows(spark: SparkSession, made: Pipeline, table: str = ORDERS) -> list[str]:
    return sorted(r["v"] for r in spark.read.format("delta").load(made.layout.silver("shop", table)).collect())


def owners(spark: SparkSession, made: Pipeline) -> dict[str, str]:
    return {e.table_schema.table: e.origin for e in Catalog(spark, made.layout.tables).entries("shop")}


def refused(spark: SparkSession, made: Pipeline) -> list[tuple[str, str]]:
    found = Quarantine(spark, made.layout.quarantine, "shop").rows().select("topic", "code", "reason").collect()
    assert all("server eu, database shop_eu" in r["reason"] for r in found)
    assert all("server us, database shop_us" in r["reason"] for r in found)
    return sorted((r["topic"], r["code"]) for r in found)


def older(spark: SparkSession, path: str) -> None:
    """Removes the column of origins, as in tables of older versions."""
    kept = spark.read.format("delta").load(path).drop("origin").toPandas()
    schema = spark.read.format("delta").load(path).drop("origin").schema
    shutil.rmtree(path)
    spark.createDataFrame(kept, schema).write.format("delta").save(path)


@pytest.mark.long
@pytest.mark.parametrize("first", ["eu", "us"])
def test_first_database_seen_owns_the_table(spark: SparkSession, tmp_path: Path, first: str) -> None:
    """Each change is its own batch, followed by a restart."""
    made = shop(tmp_path)
    bronze = captured(spark, made, tmp_path, records(first), batch=1)
    for through_batch in range(1, bronze.last_batch() + 1):
        Merge(spark, "shop", made.layout, rules_of(made), bronze_of(spark, made)).step(through_batch)
    right = [f"{first} 1", f"{first} 2"]
    assert rows(spark, made) == right
    other = "us" if first == "eu" else "eu"
    assert refused(spark, made) == [(f"{other}.{ORDERS}", "other-database")] * 4
    assert owners(spark, made) == {ORDERS: f"{first}/shop_{first}"}
    Rebuild(spark, made).run()
    assert rows(spark, made) == right, "in any order within a batch"
    (proof,) = prove(spark, made, made.layout.scratch("proof"))
    assert proof.equal
    named = shop(tmp_path, table_names="server.schema.table")
    Rebuild(spark, named).run()
    assert {t: rows(spark, named, t) for t in (f"eu.{ORDERS}", f"us.{ORDERS}")} == {
        f"{name}.{ORDERS}": [f"{name} 1", f"{name} 2"] for name in ("eu", "us")
    }
    assert all(proof.equal for proof in prove(spark, named, named.layout.scratch("proof of both")))
    assert owners(spark, named) == {f"{n}.{ORDERS}": f"{n}/shop_{n}" for n in ("eu", "us")} | {
        ORDERS: f"{first}/shop_{first}"
    }


def test_first_of_two_writers_owns_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """Both read the catalog before the other one writes."""
    made = shop(tmp_path)
    eu = captured(spark, made, tmp_path, [r for r in records("eu") if r["topic"].startswith("eu")])
    one = Merge(spark, "shop", made.layout, rules_of(made), eu)
    elsewhere = shop(tmp_path / "elsewhere")
    us = captured(spark, elsewhere, tmp_path / "elsewhere", [r for r in records("us") if r["topic"].startswith("us")])
    other = Merge(spark, "shop", made.layout, rules_of(made), us, writer="shop backfill 1")
    assert sum(a.applied for a in one.step()) > 0
    (account,) = (a for a in other.step() if a.table == ORDERS)
    assert (account.applied, account.quarantined) == (0, 4)
    assert rows(spark, made) == ["eu 1", "eu 2"]
    assert refused(spark, made) == [(f"us.{ORDERS}", "other-database")] * 4


@pytest.mark.long
@pytest.mark.parametrize("merged_before", [5, 10], ids=["one", "both"])
def test_older_lakehouse_gets_owners_from_bronze_and_a_rebuild_separates_databases(
    spark: SparkSession, tmp_path: Path, merged_before: int
) -> None:
    made = shop(tmp_path)
    bronze = captured(spark, made, tmp_path, records("eu")[:merged_before])
    merged(spark, made, bronze)
    older(spark, bronze.folder)
    older(spark, made.layout.tables)
    assert owners(spark, made) == {ORDERS: ""}
    us = Database(US, [])
    us.topic.next_offset = 5
    us.change("c", 6000, row(9, "us 9"))
    merged(spark, made, captured(spark, made, tmp_path, [*records("eu"), *us.topic.records]))
    assert owners(spark, made) == {ORDERS: "eu/shop_eu"}
    assert ("us.public.orders", "other-database") in refused(spark, made)
    Rebuild(spark, shop(tmp_path, table_names="database.schema.table")).run()
    assert {t: rows(spark, made, t) for t in (f"shop_eu.{ORDERS}", f"shop_us.{ORDERS}")} == {
        f"shop_eu.{ORDERS}": ["eu 1", "eu 2"],
        f"shop_us.{ORDERS}": ["us 1", "us 2", "us 9"],
    }
