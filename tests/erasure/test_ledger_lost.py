"""A lakehouse whose ledger was lost, rolled back or altered: no command that reads events brings an erased subject
back, and the ledger is restored from its copy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import boto3
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner, Result

from ingest.cli import app
from ingest.cli.erasure import erase, ledger
from ingest.cli.lakehouse import as_of, sql
from ingest.cli.lakehouse import prove as prove_command
from ingest.cli.pipeline import archive, backfill, run
from ingest.config import Pipeline
from ingest.errors import EXIT_USER, ConfigError, LedgerIncomplete
from ingest.pipeline.ledger_guard import LedgerGuard
from ingest.proof.scan import SearchTerm
from ingest.spark.local_rows import local_rows
from ingest.stack import S3
from ingest.suppression.ledger import FOUND, KEY, KEYS, REQUESTED, Ledger, LedgerEntry
from tests.erasure.people import CLAIMS, MEMBERS, cutoff, insured
from tests.erasure.test_removal import ANNA, BEN, NAME, TEXT, merge, table_event
from tests.proof.subject import scan
from tests.suppression.test_suppression import rows, write_requests

pytestmark = pytest.mark.spark
COMMANDS: tuple[ModuleType, ...] = (archive, as_of, backfill, erase, ledger, prove_command, run, sql)
STORY = [
    table_event(MEMBERS, "c", 0, 10, ANNA, name=NAME),
    table_event(MEMBERS, "c", 1, 11, BEN, name="Ben"),
    table_event(CLAIMS, "c", 0, 20, 99150, member_id=ANNA, text=TEXT),
]
SENT_AGAIN = [*STORY, table_event(MEMBERS, "c", 2, 10, ANNA, name=NAME)]
Command = Callable[..., Result]


@pytest.fixture
def command(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command of the pipeline in this session."""
    for module in COMMANDS:
        monkeypatch.setattr(module, "running", lambda *_: nullcontext(spark))

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(app, [word.format(tmp_path / "insured.yaml") for word in words])

    return invoke


def succeeded(done: Result) -> str:
    if done.exception is not None:
        raise done.exception
    return done.stdout


def refused(done: Result) -> str:
    """Returns the problem and the remedy of a command that was refused for its ledger."""
    assert isinstance(done.exception, LedgerIncomplete), done.output
    assert done.exception.exit_code == EXIT_USER
    return str(done.exception)


def requested(spark: SparkSession, pipeline: Pipeline, *members: int) -> Ledger:
    """Requests the erasure of members, and copies the ledger."""
    written = write_requests(spark, pipeline, dict.fromkeys(members, cutoff(1, STORY)))
    LedgerGuard(spark, pipeline).save()
    return written


@pytest.mark.long
@pytest.mark.integration
def test_lakehouse_restored_from_its_archive_does_not_bring_the_subject_back(
    spark: SparkSession, s3: S3, tmp_path: Path, command: Command
) -> None:
    boto3.client("s3", **s3.client_options).create_bucket(Bucket="ledger-lost")
    pipeline = insured(tmp_path, archive={"uri": "s3://ledger-lost/a", "s3": dict(s3.client_options)})
    merge(spark, pipeline, tmp_path / "events", STORY)
    requested(spark, pipeline, ANNA)
    # The source sends an old event again: it is suppressed, and the archive gets it.
    merge(spark, pipeline, tmp_path / "again", SENT_AGAIN)
    succeeded(command("archive", "run", "{}"))
    shutil.rmtree(pipeline.lakehouse)
    shutil.rmtree(tmp_path / "ledger.key.ledger", ignore_errors=True)  # the archive alone knows of it
    for words in (
        ("archive", "restore", "{}"),
        ("run", "{}", "--available-now"),
        ("backfill", "{}", "--source", "archive"),
        ("backfill", "{}", "--rebuild"),
        ("as-of", "{}", "--source", "archive", "--time", "2030-01-01T00:00:00Z", "--out", str(tmp_path / "out")),
        ("prove", "{}"),
        ("sql", "SELECT 1", "--pipeline", "{}"),
        ("erase", "{}", "--subject", f"member:{BEN}"),
    ):
        assert "ingest ledger restore insured" in refused(command(*words)), words
    assert not Path(pipeline.layout.bronze(pipeline.name)).exists()
    assert command("ledger", "verify", "{}").exit_code == 1
    restored = json.loads(succeeded(command("ledger", "restore", "{}", "--json")))
    assert restored["requests"] == 1
    assert restored["faults"] == []
    succeeded(command("archive", "restore", "{}"))
    succeeded(command("backfill", "{}", "--source", "archive"))
    assert rows(spark, pipeline, MEMBERS) == {BEN: {"name": "Ben"}}
    assert rows(spark, pipeline, CLAIMS) == {}
    # The archive still has the events of before the request: in no bronze they have any content.
    assert scan(Path(pipeline.lakehouse), (SearchTerm("name", NAME), SearchTerm("text", TEXT))).findings == {}
    succeeded(command("ledger", "verify", "{}"))


def rolled_back(spark: SparkSession, pipeline: Pipeline) -> None:
    DeltaTable.forPath(spark, pipeline.layout.ledger).restoreToVersion(0)


def altered(spark: SparkSession, pipeline: Pipeline) -> None:
    table = DeltaTable.forPath(spark, pipeline.layout.ledger)
    table.update(F.col("kind") == REQUESTED, {"cut_off": F.lit('{"offsets": {}, "positions": {}}')})


def without_a_key(spark: SparkSession, pipeline: Pipeline) -> None:
    DeltaTable.forPath(spark, pipeline.layout.ledger).delete((F.col("kind") == KEY) & (F.col("table") == CLAIMS))


def gone(_: SparkSession, pipeline: Pipeline) -> None:
    shutil.rmtree(pipeline.layout.ledger)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(rolled_back, marks=pytest.mark.long),
        pytest.param(altered, marks=pytest.mark.long),
        without_a_key,
        gone,
    ],
)
def test_damaged_ledger_is_refused_and_restored(
    spark: SparkSession, tmp_path: Path, command: Command, damage: Callable[[SparkSession, Pipeline], None]
) -> None:
    """Without an archive, the copy is beside the key file."""
    pipeline = insured(tmp_path)
    before = requested(spark, pipeline, ANNA, BEN)
    request = next(before.entries()).request
    child = {"request": request, "table": CLAIMS, "key_hash": "h", "key_version": 1}
    before.append([LedgerEntry(FOUND, request, table=CLAIMS)], local_rows(spark, [child], KEYS))
    succeeded(command("sql", "SELECT 1", "--pipeline", "{}"))
    entries, keys = list(before.entries()), sorted(before.keys().collect())
    damage(spark, pipeline)
    assert "ingest ledger restore" in refused(command("sql", "SELECT 1", "--pipeline", "{}"))
    succeeded(command("ledger", "restore", "{}"))
    after = Ledger(spark, pipeline.layout.ledger, pipeline.name)
    assert list(after.entries()) == entries
    assert sorted(after.keys().collect()) == keys
    succeeded(command("sql", "SELECT 1", "--pipeline", "{}"))
    assert json.loads(succeeded(command("ledger", "verify", "{}", "--json")))["faults"] == []


def test_restored_ledger_keeps_requests_that_only_it_has(spark: SparkSession, tmp_path: Path, command: Command) -> None:
    pipeline = insured(tmp_path)
    requested(spark, pipeline, ANNA)
    requested(spark, insured(tmp_path / "other"), BEN)
    shutil.rmtree(tmp_path / "ledger.key.ledger")
    shutil.copytree(tmp_path / "other" / "ledger.key.ledger", tmp_path / "ledger.key.ledger")
    assert "rolled back" in refused(command("sql", "SELECT 1", "--pipeline", "{}"))
    assert json.loads(succeeded(command("ledger", "restore", "{}", "--json")))["requests"] == 2
    found = Ledger(spark, pipeline.layout.ledger, pipeline.name)
    assert list(found.verify()) == []
    assert [entry.request for entry in found.entries()] == [f"r{BEN}", f"r{ANNA}"]
    assert {row["request"] for row in found.keys().collect()} == {f"r{BEN}", f"r{ANNA}"}
    succeeded(command("ledger", "verify", "{}"))


def test_entries_that_nothing_holds_any_more_are_lost_only_on_demand(
    spark: SparkSession, tmp_path: Path, command: Command
) -> None:
    pipeline = insured(tmp_path, privacy={"key_file": str(tmp_path / "ledger.key"), "ledger_copy": str(tmp_path / "c")})
    requested(spark, pipeline, ANNA)
    shutil.rmtree(tmp_path / "c")
    shutil.rmtree(pipeline.layout.ledger)
    assert "its anchor" in refused(command("sql", "SELECT 1", "--pipeline", "{}"))
    assert "--accept-loss" in refused(command("ledger", "restore", "{}"))
    assert "its anchor" in refused(command("sql", "SELECT 1", "--pipeline", "{}"))
    succeeded(command("ledger", "restore", "{}", "--accept-loss"))
    succeeded(command("sql", "SELECT 1", "--pipeline", "{}"))


def test_pipeline_that_forgets_its_subjects_is_refused(spark: SparkSession, tmp_path: Path, command: Command) -> None:
    requested(spark, insured(tmp_path), ANNA)
    for more in ({}, {"privacy": None}):
        insured(tmp_path, tables={}, **more)
        done = command("backfill", "{}", "--rebuild")
        assert isinstance(done.exception, ConfigError)
        assert "subjects" in done.exception.problem
