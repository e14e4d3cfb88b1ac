"""`ingest vacuum` removes files of old versions, and prints machine-readable results."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.cli import app
from ingest.cli.lakehouse import vacuum as command
from ingest.lakehouse.silver import Silver
from tests.shop import captured, digests, events, merged, pipeline

pytestmark = pytest.mark.spark
ORDERS = "public.orders"


def test_vacuum_deletes_old_versions(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "running", lambda *_: nullcontext(spark))
    shop = pipeline(tmp_path)
    merged(spark, shop, captured(spark, shop, tmp_path, events()))
    before, orders = digests(spark, shop), Path(shop.layout.silver(shop.name, ORDERS))
    live = set(Silver(spark, str(orders)).rows().inputFiles())
    files = [*orders.glob("*.parquet")]
    assert len(files) > len(live)
    done = CliRunner().invoke(app, ["vacuum", str(tmp_path / "shop.yaml"), "--keep-hours", "0", "--json"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["keep_hours"] == 0
    assert summary["tables"] >= len(before) + 2
    assert {f.name for f in orders.glob("*.parquet")} == {Path(f).name for f in live}
    assert digests(spark, shop) == before
