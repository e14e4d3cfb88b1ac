"""`ingest vacuum` removes files of old versions, and prints machine-readable results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.lakehouse.silver import Silver
from tests.shop import captured, digests, events, merged, pipeline

pytestmark = pytest.mark.spark
ORDERS = "public.orders"


def test_vacuum_deletes_old_versions(spark: SparkSession, tmp_path: Path) -> None:
    shop = pipeline(tmp_path)
    merged(spark, shop, captured(spark, shop, tmp_path, events()))
    before, orders = digests(spark, shop), Path(shop.layout.silver(shop.name, ORDERS))
    live = set(Silver(spark, str(orders)).rows().inputFiles())
    files = [*orders.glob("*.parquet")]
    assert len(files) > len(live)
    command = [sys.executable, "-c", "from ingest.cli import main; main()", "vacuum", str(tmp_path / "shop.yaml")]
    done = subprocess.run([*command, "--keep-hours", "0", "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["keep_hours"] == 0
    assert summary["tables"] >= len(before) + 2
    assert {f.name for f in orders.glob("*.parquet")} == {Path(f).name for f in live}
    assert digests(spark, shop) == before
