"""An object store that fails temporarily delays a run; one that keeps failing gives an error. No event is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.archive import ManifestArchive, ObjectStore
from ingest.archive.manifest import manifests
from ingest.cli import app
from ingest.cli.pipeline import archive as archive_command
from ingest.cli.pipeline import backfill as backfill_command
from ingest.errors import EXIT_TRANSIENT, EXIT_USER, IngestError, SourceRefused, Unreachable
from ingest.lakehouse.bronze import Bronze
from ingest.names import Lakehouse
from ingest.stack import S3, Stack
from tests.archive.archived_shop import SHOP, archived, events, from_file, names, pipeline_file, silver
from tests.archive.faulty_proxy import Fault, FaultyProxy, faulty_proxy

pytestmark = [pytest.mark.integration, pytest.mark.long]
ROOT = Path(__file__).parents[2]
Command = Callable[..., Any]
AT_ONCE = {"give_up_after": "0s"}
"""Settings with which the first failure ends a run."""
ONE_REQUEST = 6
"""The number of attempts of the S3 client per request."""


@pytest.fixture
def proxy(s3: S3) -> Iterator[FaultyProxy]:
    with faulty_proxy(s3.endpoint) as found:
        yield found


def through(proxy: FaultyProxy, store: ObjectStore) -> ObjectStore:
    return replace(store, client_options={**store.client_options, "endpoint_url": proxy.endpoint})


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command and returns its error, or its exit code."""
    for module in (archive_command, backfill_command):
        monkeypatch.setattr(module, "running", lambda *_: nullcontext(spark))

    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(app, [*arguments, "--json"])
        return result.exception if isinstance(result.exception, IngestError) else result.exit_code

    return run


def is_fully_archived(store: ObjectStore) -> bool:
    """Returns True if the archive holds each event once, and no other object."""
    found = list(manifests(store, SHOP))
    objects = [o for m in found for o in m.objects]
    return sum(o.records for o in objects) == len(events()) and len(names(store)) == len(found) + len(objects)


def test_temporary_store_failures_are_retried(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, proxy: FaultyProxy, command: Command
) -> None:
    from_file(spark, tmp_path, batch=100)
    file = str(pipeline_file(tmp_path, through(proxy, store)))
    proxy.faults = [
        *(Fault("refused", "PUT", status=status, times=2) for status in (500, 503)),
        *(Fault("refused", "GET", path, times=1) for path in ("list-type", "manifests", "objects")),
        Fault("cut", "GET", "objects", times=1),
        Fault("slow", "GET", times=2),
        Fault("slow", "PUT", times=2),
    ]
    assert command("archive", "run", file) == 0
    assert is_fully_archived(store)
    assert command("archive", "verify", file) == 0
    again = tmp_path / "again"
    assert command("archive", "restore", str(pipeline_file(again, through(proxy, store)))) == 0
    assert Bronze(spark, Lakehouse(str(again / "lakehouse")).bronze(SHOP)).rows().count() == len(events())
    assert not [f for f in proxy.faults if f.times], "each fault was met"
    proxy.faults = [Fault("refused", times=2), Fault("cut", "GET", "objects", times=2)]
    restored = silver(spark, again)
    assert command("backfill", str(again / "shop.yaml"), "--source", "archive") == 0
    assert silver(spark, again) == restored
    assert proxy.met >= 14


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("objects", ("archive", "run")),
        ("manifests", ("archive", "run")),
        ("objects", ("archive", "verify")),
        ("objects", ("archive", "restore")),
        ("manifests", ("backfill", "--source", "archive")),
    ],
)
def test_store_that_answers_503_is_waited_for(
    spark: SparkSession,
    tmp_path: Path,
    store: ObjectStore,
    proxy: FaultyProxy,
    command: Command,
    path: str,
    arguments: tuple[str, ...],
) -> None:
    bronze = from_file(spark, tmp_path)
    if arguments != ("archive", "run"):
        archived(spark, bronze, store)
    again = tmp_path / "again" if "restore" in arguments else tmp_path
    proxy.faults = [Fault("refused", "PUT" if "run" in arguments else "GET", path, times=ONE_REQUEST)]
    assert command(*arguments, str(pipeline_file(again, through(proxy, store)))) == 0
    assert not [f for f in proxy.faults if f.times], "the request and its repetitions"
    assert is_fully_archived(store)
    if path == "objects" and "verify" not in arguments:
        assert Bronze(spark, Lakehouse(str(again / "lakehouse")).bronze(SHOP)).rows().count() == len(events())


def test_unreachable_store_is_waited_for(
    spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Runs in a process of its own, which prints what it waits for."""
    with Stack(tmp_path_factory.mktemp("s3") / "stack", parts=("s3",)) as stack:
        boto3.client("s3", **stack.s3.client_options).create_bucket(Bucket="archive")
        store = ObjectStore("s3://archive/some/prefix", stack.s3.client_options)
        from_file(spark, tmp_path)
        stack.s3.stop()
        command = ["archive", "run", str(pipeline_file(tmp_path, store)), "--json"]
        with subprocess.Popen(
            [sys.executable, "-c", "from ingest.cli import main; main()", *command],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            assert running.stderr is not None
            # Spark warns there too.
            waiting = json.loads(next(line for line in running.stderr if line.startswith("{")))
            assert waiting["event"] == "waiting"
            assert "object store" in waiting["problem"]
            stack.s3.start()
            ingest_error, waited = running.communicate(timeout=240)
        assert running.returncode == 0, waited
        assert json.loads([line for line in waited.splitlines() if line.startswith("{")][-1])["event"] == "resumed"
        assert json.loads(ingest_error)["records"] == len(events())
        assert is_fully_archived(store)


@pytest.mark.parametrize("path", ["objects", "manifests"])
def test_run_that_could_not_write_is_repeated(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, proxy: FaultyProxy, command: Command, path: str
) -> None:
    from_file(spark, tmp_path)
    file = str(pipeline_file(tmp_path, through(proxy, store), retry=AT_ONCE))
    proxy.faults = [Fault("refused", "PUT", path)]
    failed = command("archive", "run", file)
    assert isinstance(failed, Unreachable), failed
    assert (failed.exit_code, "would not write" in failed.problem) == (EXIT_TRANSIENT, True)
    assert list(manifests(store, SHOP)) == []
    proxy.faults = []
    assert command("archive", "run", file) == 0
    assert is_fully_archived(store)


def test_write_with_a_lost_response_is_recognised(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, proxy: FaultyProxy
) -> None:
    proxy.faults = [Fault("lost", "PUT", path, times=1) for path in ("objects", "manifests")]
    archived(spark, from_file(spark, tmp_path), through(proxy, store))
    assert proxy.met == 2
    assert is_fully_archived(store)


@pytest.mark.parametrize(
    ("fault", "arguments"),
    [
        (Fault("refused", path="manifests"), ("archive", "verify")),
        (Fault("cut", path="objects"), ("archive", "verify")),
        (Fault("refused", path="objects", after=2), ("archive", "restore")),
        (Fault("cut", path="objects", after=2), ("archive", "restore")),
        (Fault("cut", path="objects", after=2), ("backfill", "--source", "archive")),
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else " ".join(value),
)
def test_failed_read_continues(
    spark: SparkSession,
    tmp_path: Path,
    store: ObjectStore,
    proxy: FaultyProxy,
    command: Command,
    fault: Fault,
    arguments: tuple[str, ...],
) -> None:
    archived(spark, from_file(spark, tmp_path), store)
    again = tmp_path / "again"
    file = str(pipeline_file(again, through(proxy, store), batch={"max_events": 6}, retry=AT_ONCE))
    proxy.faults = [replace(fault)]
    failed = command(*arguments, file)
    assert isinstance(failed, Unreachable), failed
    assert (failed.exit_code, "would not " in failed.problem) == (EXIT_TRANSIENT, True)
    assert fault.path in failed.problem
    proxy.faults = []
    assert command(*arguments, file) == 0
    assert command("archive", "restore", file) == 0
    rows = Bronze(spark, Lakehouse(str(again / "lakehouse")).bronze(SHOP)).rows()
    assert rows.dropDuplicates(["topic", "partition", "offset"]).count() == rows.count() == len(events())


def test_wrong_credentials_are_a_user_error_and_not_shown(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_file(spark, tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    given = dict(store.client_options)
    nobody = {k: v for k, v in given.items() if not k.startswith("aws_")}
    for number, options in enumerate(
        ({**given, "aws_secret_access_key": "guessed"}, {**given, "aws_access_key_id": "unknown"}, nobody)
    ):
        file = str(pipeline_file(tmp_path / str(number), replace(store, client_options=options)))
        for arguments in (("archive", "verify"), ("archive", "restore"), ("backfill", "--source", "archive")):
            refused = command(*arguments, file)
            assert isinstance(refused, SourceRefused), refused
            assert refused.exit_code == EXIT_USER
            assert not any(secret in str(refused) for secret in ("guessed", "unknown", given["aws_secret_access_key"]))
    archive = ManifestArchive(replace(store, client_options={**given, "aws_secret_access_key": "guessed"}), SHOP)
    assert "guessed" not in repr(archive._store)
