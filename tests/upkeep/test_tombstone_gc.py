"""`ingest gc` with a real topic: the horizon, and the fate of events below it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.archive import ObjectStore
from ingest.cli import app
from ingest.cli.lakehouse import gc
from ingest.stack import S3, Stack
from tests.topic_shop import Shop

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture
def shop(tmp_path: Path, stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Shop:
    @contextmanager
    def shared(name: str, properties: Mapping[str, str]) -> Iterator[SparkSession]:
        del name, properties
        yield spark

    monkeypatch.setattr(gc, "running", shared)
    return Shop(spark, stack.kafka.bootstrap_servers, tmp_path)


def collected(shop: Shop, *options: str) -> dict[str, Any]:
    """Returns the command's result for the one table."""
    summary = CliRunner().invoke(app, ["gc", str(shop.file), "--json", *options], catch_exceptions=False)
    assert summary.exit_code == 0, summary.output
    (table,) = json.loads(summary.stdout)["tables"]
    return dict(table)


def test_gc_horizon_follows_the_topic(shop: Shop) -> None:
    log = shop.log
    shop.send(
        log.change("c", 10, {"id": 1, "v": "a"}),
        log.change("c", 20, {"id": 2, "v": "b"}),
        log.change("d", 30, before={"id": 1, "v": "a"}),
        log.change("d", 50, before={"id": 2, "v": "b"}),
        log.change("c", 60, {"id": 3, "v": "c"}),
    )
    assert collected(shop)["forgotten"] == 0, "the topic holds everything"
    shop.expire(3)
    summary = collected(shop, "--dry-run")
    assert (summary["tombstones"], summary["forgotten"]) == (2, 1)
    assert collected(shop) == summary, "a dry run says what will be, and changes nothing"
    assert collected(shop)["tombstones"] == 1
    # The first key's tombstone is deleted, so nothing is known of it; the second's is kept.
    shop.send(log.change("u", 25, {"id": 1, "v": "late"}), log.change("u", 45, {"id": 2, "v": "late"}))
    assert shop.rows() == [(3, "c")]
    assert shop.quarantined() == [(5, "older-than-horizon")]


def test_gc_horizon_follows_the_archive(shop: Shop, s3: S3) -> None:
    log, bucket = shop.log, f"gc-{uuid.uuid4().hex}"
    boto3.client("s3", **s3.client_options).create_bucket(Bucket=bucket)
    shop.send(
        log.change("c", 10, {"id": 1, "v": "a"}),
        log.change("d", 30, before={"id": 1, "v": "a"}),
        log.change("c", 60, {"id": 3, "v": "c"}),
    )
    shop.archive(ObjectStore(f"s3://{bucket}/shop", s3.client_options))
    shop.expire(2)
    assert collected(shop)["forgotten"] == 0
    assert collected(shop, "--keep-days", "0")["forgotten"] == 1


def test_keep_days_overrides_the_horizon(shop: Shop) -> None:
    log = shop.log
    shop.send(
        log.change("c", 10, {"id": 1, "v": "a"}),
        log.change("d", 30, before={"id": 1, "v": "a"}),
        log.change("c", 60, {"id": 3, "v": "c"}),
    )
    assert collected(shop, "--keep-days", "1")["forgotten"] == 0
    assert collected(shop, "--keep-days", "0")["forgotten"] == 1
    shop.send(log.change("c", 25, {"id": 1, "v": "late"}), log.change("c", 70, {"id": 4, "v": "d"}))
    assert shop.rows() == [(3, "c"), (4, "d")]
    assert shop.quarantined() == [(3, "older-than-horizon")]
