"""Old versions are removed next to a running stream, without files that a pending commit needs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.config import OldVersions, Pipeline
from ingest.delta import vacuum
from ingest.delta.delta_table import Table
from ingest.lakehouse.silver import Silver
from ingest.upkeep.upkeep import upkeep
from tests.shop import captured, digests, events, merged, pipeline

pytestmark = pytest.mark.spark
ORDERS = "public.orders"
_TEN_MINUTES = 600


def shop_with_retention(folder: Path, hours: float) -> Pipeline:
    """Returns a pipeline with a retention below an hour, which no file may set."""
    old = OldVersions.model_construct(keep_hours=hours)
    return pipeline(folder).model_copy(update={"old_versions": old})


def run_upkeep(spark: SparkSession, shop: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs upkeep as if it were due."""
    now = time.monotonic()
    with upkeep(spark, shop) as between_batches:
        monkeypatch.setattr(time, "monotonic", lambda: now + 100_000)
        between_batches()
        monkeypatch.undo()


@pytest.mark.long
def test_files_of_old_versions_are_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = shop_with_retention(tmp_path, 0)
    merged(spark, shop, captured(spark, shop, tmp_path, events()))
    before, orders = digests(spark, shop), Path(shop.layout.silver(shop.name, ORDERS))
    live = {Path(f).name for f in Silver(spark, str(orders)).rows().inputFiles()}
    assert {f.name for f in orders.glob("*.parquet")} > live
    run_upkeep(spark, shop, monkeypatch)
    assert {f.name for f in orders.glob("*.parquet")} == live
    assert digests(spark, shop) == before
    for name, kept in shop.old_versions.properties.items():
        assert Table(spark, str(orders)).property(name) == kept


@pytest.mark.long
def test_files_are_kept_for_a_fraction_of_an_hour(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta rounds hours down: it would delete the files of a running commit."""
    shop = shop_with_retention(tmp_path, 0.4)
    merged(spark, shop, captured(spark, shop, tmp_path, events()))
    orders = Path(shop.layout.silver(shop.name, ORDERS))
    written = {f.name for f in orders.glob("*.parquet")}
    run_upkeep(spark, shop, monkeypatch)
    assert {f.name for f in orders.glob("*.parquet")} == written


def test_first_upkeep_waits(spark: SparkSession, tmp_path: Path) -> None:
    shop = shop_with_retention(tmp_path, 1)
    merged(spark, shop, captured(spark, shop, tmp_path, events()[:50]))
    orders = Table(spark, shop.layout.silver(shop.name, ORDERS))
    before = orders.version()
    with upkeep(spark, shop) as between_batches:
        between_batches()
    assert orders.version() == before


def test_tables_have_the_retention_of_the_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    shop = pipeline(tmp_path, old_versions={"keep_hours": 7})
    try:
        for name, value in shop.session.items():
            spark.conf.set(name, value)
        merged(spark, shop, captured(spark, shop, tmp_path, events()[:50]))
    finally:
        for name in shop.session:
            spark.conf.unset(name)
    for path in (shop.layout.bronze(shop.name), shop.layout.silver(shop.name, ORDERS), shop.layout.accounts):
        table = Table(spark, path)
        assert {name: table.property(name) for name in shop.old_versions.properties} == shop.old_versions.properties
    assert shop.old_versions.properties["delta.logRetentionDuration"] == "interval 25200 seconds"


@pytest.mark.long
def test_log_is_deleted_up_to_the_last_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    shop = pipeline(tmp_path)
    merged(spark, shop, captured(spark, shop, tmp_path, events()))
    before, path = digests(spark, shop), shop.layout.silver(shop.name, ORDERS)
    table = Table(spark, path)
    log = Path(path) / "_delta_log"
    checkpoint = table.version()
    table._log.checkpoint(table._log.unsafeVolatileSnapshot(), table._delta.none)
    table.set_property("ingest.test", "a commit after the checkpoint")
    versions = {f.name: int(f.stem) for f in log.glob("*.json") if f.stem.isdigit()}
    ago = time.time() - _TEN_MINUTES
    for name, version in versions.items():
        os.utime(log / name, (ago + version, ago + version))
    vacuum.remove_old_versions(spark, [path], 1)
    assert {f.name for f in log.glob("*.json")} >= set(versions)
    vacuum.remove_old_versions(spark, [path], 0)
    left = {f.name for f in log.glob("*.json")}
    assert {name for name in versions if name in left} == {
        n for n, version in versions.items() if version >= checkpoint
    }
    assert table.property("ingest.test") == "a commit after the checkpoint"
    assert digests(spark, shop) == before
