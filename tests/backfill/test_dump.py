"""A dump fills a table that is older than its changelog, without gaps and duplicates."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.backfill.proving import prove
from ingest.cli import app
from ingest.cli.pipeline import backfill as command
from ingest.errors import ConfigError
from ingest.lakehouse.silver import Silver
from tests.shop import DAY_BEGINS, HOUR, captured, digests, events, merged, pipeline

pytestmark = pytest.mark.spark
ORDERS, KINDS = "public.orders", "public.kinds"
BETWEEN = "0/157C"
"""Position 5500: after the events of hour 4 and before those of hour 5."""


@pytest.fixture
def run_command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(command, "running", lambda *_: nullcontext(spark))

    def run(folder: Path, *words: str) -> dict[str, Any]:
        result = CliRunner().invoke(app, ["backfill", str(folder / "shop.yaml"), *words, "--json"])
        if result.exception is not None:
            raise result.exception
        summary: dict[str, Any] = json.loads(result.output)
        return summary

    return run


@pytest.mark.long
def test_dump_and_later_changes_give_the_table(spark: SparkSession, tmp_path: Path, run_command: Any) -> None:
    early = [r for r in events() if r["timestamp"] < DAY_BEGINS + 5 * HOUR]
    whole, before = pipeline(tmp_path / "whole"), pipeline(tmp_path / "before")
    merged(spark, whole, captured(spark, whole, tmp_path / "whole", events()))
    merged(spark, before, captured(spark, before, tmp_path / "before", early))
    dump = str(tmp_path / "orders")
    rows = Silver(spark, before.layout.silver("shop", ORDERS)).rows().select("id", "v")
    rows.repartition(3).write.parquet(dump)
    shop = pipeline(tmp_path, tables={ORDERS: {"history": True}})
    merged(spark, shop, captured(spark, shop, tmp_path, [r for r in events() if r not in early]))
    assert digests(spark, shop)[ORDERS] != digests(spark, whole)[ORDERS]
    words = ("--dump", dump, "--at", BETWEEN, "--table", ORDERS)
    assert run_command(tmp_path, *words, "--dry-run")["would_read"] == {ORDERS: rows.count()}
    assert run_command(tmp_path, *words)["tables"][ORDERS]["read"] == rows.count()
    assert digests(spark, shop)[ORDERS] == digests(spark, whole)[ORDERS]
    assert run_command(tmp_path, *words)["tables"][ORDERS]["applied"] == 0, "a second run changes nothing"
    assert all(p.equal for p in prove(spark, shop, shop.layout.scratch("proof")))


def test_every_type_of_a_dump_is_kept(spark: SparkSession, tmp_path: Path, run_command: Any) -> None:
    columns = {
        "id": "7L",
        "small": "cast(3 as smallint)",
        "yes": "true",
        "price": "cast(12345678901234567.10 as decimal(20,2))",
        "ratio": "0.1D",
        "day": "date'1969-12-31'",
        "local": "timestamp_ntz'2026-01-02 03:04:05.678901'",
        "moment": "timestamp'2026-01-02 03:04:05.678901Z'",
        "bytes": "unhex('00ff')",
        "tags": "array('ä', null)",
        "nothing": "cast(null as string)",
    }
    one = spark.sql("SELECT " + ", ".join(f"{value} AS {name}" for name, value in columns.items()))
    one.write.parquet(str(tmp_path / "kinds"))
    shop = pipeline(tmp_path, tables={KINDS: {"primary_key": ["id"]}})
    words = ("--dump", str(tmp_path / "kinds"), "--at", "binlog.000003:77", "--table", KINDS)
    assert run_command(tmp_path, *words)["tables"][KINDS]["applied"] == 1
    found = Silver(spark, shop.layout.silver("shop", KINDS)).rows()
    assert [(f.name, f.dataType) for f in found.select(*columns).schema] == [(f.name, f.dataType) for f in one.schema]
    assert found.select(*columns).collect() == one.collect()
    place = found.selectExpr("_position.major", "_position.minor", "_position.streamed").first()
    assert place is not None
    assert tuple(place) == (3, 77, 0)


def test_invalid_dump_is_refused(tmp_path: Path, spark: SparkSession, run_command: Any) -> None:
    pipeline(tmp_path)
    spark.range(1).write.parquet(str(tmp_path / "keyless"))
    for words, problem in (
        (("--dump", str(tmp_path / "x"), "--at", "1", "--table", ORDERS), "no Parquet files can be read"),
        (("--dump", str(tmp_path / "keyless"), "--at", "1", "--table", ORDERS), r"lacks the key \(none is declared\)"),
        (("--dump", str(tmp_path / "x"), "--table", ORDERS), "give --dump, --at and --table together"),
        (("--dump", str(tmp_path / "x"), "--at", "2026-01-01", "--table", ORDERS), "is no position"),
    ):
        with pytest.raises(ConfigError, match=problem):
            run_command(tmp_path, *words)
