"""An archive that a sink connector wrote gives the same tables as the stream, or an error that says what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.archive import ObjectStore
from ingest.cli import app
from ingest.cli.pipeline import archive as archive_command
from ingest.cli.pipeline import backfill as backfill_command
from ingest.errors import ChangelogUnusable, ConfigError, IngestError, SourceRefused
from ingest.pipeline.composition import bronze_of
from ingest.quality.digest import Digest
from ingest.stack import S3
from tests.archive.connector_objects import Objects, aiven, aiven_parquet, confluent, confluent_parquet
from tests.archive.connector_shop import DECLARED_KEYS, HOUR, TABLES, events, pipeline, pipeline_file, stored
from tests.changelogs import Record
from tests.shop import captured, digests, merged

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture
def store(s3: S3, request: pytest.FixtureRequest) -> ObjectStore:
    bucket = f"sunk-{abs(hash(request.node.name)) % 10**8}"
    boto3.client("s3", **s3.client_options).create_bucket(Bucket=bucket)
    return ObjectStore(f"s3://{bucket}/topics", s3.client_options)


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Returns a function that runs a command and returns its JSON, or its error."""
    for module in (archive_command, backfill_command):
        monkeypatch.setattr(module, "running", lambda *_: nullcontext(spark))

    def run(*arguments: str, code: int = 0) -> Any:
        result = CliRunner().invoke(app, [*arguments, "--json"])
        if isinstance(result.exception, IngestError):
            return result.exception
        assert result.exit_code == code, (result.output, result.exception)
        return json.loads(result.output.splitlines()[-1])

    return run


@pytest.fixture(scope="module")
def streamed(spark: SparkSession, s3: S3, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Digest]:
    """Returns the digests of the tables after a stream of the same events."""
    folder = tmp_path_factory.mktemp("streamed")
    shop = pipeline(folder, ObjectStore("s3://none", s3.client_options), "ingest")
    merged(spark, shop, captured(spark, shop, folder, events()))
    found = digests(spark, shop)
    assert found.keys() == set(TABLES.values())
    assert found["public.orders"].rows == 7
    return found


def ends(records: list[Record]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for r in records:
        found.setdefault(r["topic"], {})[r["partition"]] = r["offset"] + 1
    return found


@pytest.mark.parametrize(
    ("layout", "tombstones", "sink", "more"),
    [
        pytest.param("confluent", True, partial(confluent, size=1), {}, id="confluent, with keys and null tombstones"),
        pytest.param(
            "confluent",
            False,
            partial(confluent, size=4, keys=False, zipped=True, by_hour=True),
            DECLARED_KEYS,
            id="confluent, values alone, zipped, by the hour",
        ),
        pytest.param("confluent", False, partial(confluent_parquet, size=4), {}, id="confluent, Parquet and keys"),
        pytest.param("aiven", True, partial(aiven, size=4), {}, id="aiven, lines, zipped"),
        pytest.param("aiven", True, partial(aiven_parquet, size=5), {}, id="aiven, Parquet"),
    ],
)
def test_tables_equal_those_of_the_stream(
    spark: SparkSession,
    tmp_path: Path,
    store: ObjectStore,
    streamed: dict[str, Digest],
    command: Callable[..., Any],
    layout: str,
    tombstones: bool,
    sink: Callable[[list[Record]], Objects],
    more: dict[str, Any],
) -> None:
    sent = events(tombstones)
    of_others = {"confluent": "other/partition=0/other+0+0000000000.avro", "aiven": "other-0-0"}[layout]
    stored(store, sink(sent) | {of_others: b"not ours", "": b""})
    shop = pipeline(tmp_path, store, layout, **more)
    file = str(tmp_path / "shop.yaml")
    verified = command("archive", "verify", file)
    assert (verified["damaged"], verified["records"], len(verified["unchecked"])) == ([], len(sent), 2)
    command("archive", "restore", file)
    assert digests(spark, shop) == streamed
    assert bronze_of(spark, shop).captured().offsets == ends(sent)
    command("backfill", file, "--source", "archive")
    assert digests(spark, shop) == streamed, "the same events once more change nothing"


def test_archive_with_a_gap_is_refused(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, command: Callable[..., Any]
) -> None:
    """Each delete has a null tombstone, which is in an object of its own."""
    stored(store, confluent(events(), 5))
    shop = pipeline(tmp_path, store, "confluent")
    refused = command("archive", "restore", str(tmp_path / "shop.yaml"))
    assert isinstance(refused, ChangelogUnusable)
    hole = "shop.orders/partition=0/shop.orders+0+0000000005.json"
    assert f"{hole} in the archive holds 4 records where 2 offsets were" in refused.problem
    assert "topic shop.orders, partition 0, offsets 5 to 6" in refused.problem
    assert bronze_of(spark, shop).captured().batch == 0
    damaged = command("archive", "verify", str(tmp_path / "shop.yaml"), code=1)["damaged"]
    assert hole in [d["key"] for d in damaged]


def test_layout_without_timestamps_refuses_windows(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, command: Callable[..., Any]
) -> None:
    file = str(pipeline_file(tmp_path, store, "confluent"))
    empty = command("archive", "verify", file)
    assert isinstance(empty, SourceRefused)
    assert "holds no object of the pipeline's topics" in empty.problem
    window = command("backfill", file, "--source", "archive", "--from", "1970-01-01")
    assert isinstance(window, ConfigError)
    assert "writes no timestamps of records" in window.problem
    written = command("archive", "run", file)
    assert isinstance(written, ConfigError)
    assert "is written by the sink connector of confluent" in written.problem


def test_window_of_records_with_timestamps(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, command: Callable[..., Any]
) -> None:
    stored(store, aiven(events(), 4))
    file = str(pipeline_file(tmp_path, store, "aiven"))
    summary = command(
        "backfill", file, "--source", "archive", "--from", "1970-01-01T01:00:00Z", "--to", "1970-01-01T02:00:00Z"
    )
    inside = [r for r in events() if HOUR <= r["timestamp"] < 2 * HOUR]
    assert sum(t["read"] for t in summary["tables"].values()) == len(inside)
