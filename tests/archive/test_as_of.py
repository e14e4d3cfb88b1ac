"""Silver as of a position, built from the archive alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.archive import ObjectStore
from ingest.batches.rules import Rules
from ingest.cli import app
from ingest.cli.lakehouse import as_of as as_of_command
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from tests.archive.archived_shop import SHOP, archived, from_file, pipeline_file

pytestmark = [pytest.mark.integration, pytest.mark.long]
OTHERWISE_NAMED = {
    "source": {"kafka": {"bootstrap.servers": "127.0.0.1:9"}, "topics": ["x"], "topic_tables": {"x": "y"}}
}
"""Settings with which records are parsed differently than when they were archived, so none is imported unchanged."""


@pytest.fixture
def as_of(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr(as_of_command, "running", lambda *_: nullcontext(spark))
    return lambda *words: CliRunner().invoke(app, ["as-of", *map(str, words), "--json"])


@pytest.mark.parametrize("more", [{}, OTHERWISE_NAMED])
def test_as_of_from_the_archive_equals_bronze(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, as_of: Callable[..., Any], more: dict[str, Any]
) -> None:
    bronze = from_file(spark, tmp_path, batch=3)
    merge = Merge(spark, SHOP, Lakehouse(str(tmp_path / "lakehouse")), Rules(), bronze)
    while merge.step():
        pass
    archived(spark, bronze, store)
    lost = tmp_path / "lost"
    point = ("--position", "45")
    found = {}
    for name, file, source in (
        ("bronze", pipeline_file(tmp_path, store), "bronze"),
        ("archive", pipeline_file(lost, store, **more), "archive"),
    ):
        out = tmp_path / f"out of {name}"
        result = as_of(file, "--out", out, "--source", source, *point)
        assert result.exit_code == 0, result.output
        (found[name],) = json.loads(result.output)["tables"]
        orders = found[name].pop("path")
        rows = {r["id"]: r["v"] for r in spark.read.format("delta").load(orders).collect()}
        assert rows == {i: "ä" * i for i in range(12) if i != 3}, "3 was deleted at 40, 4 is changed at 50"
        assert not Path(Lakehouse(str(out)).bronze(SHOP)).exists()
    assert found["archive"] == found["bronze"]
    assert not (lost / "lakehouse").exists(), "the live one is left alone"


def test_impossible_as_of_is_refused(tmp_path: Path, store: ObjectStore, as_of: Callable[..., Any]) -> None:
    file, out = pipeline_file(tmp_path, store), tmp_path / "then"
    nothing = as_of(file, "--out", out, "--position", "45")
    assert "no event of pipeline Shop 1 was ever merged" in str(nothing.exception)
    empty = as_of(file, "--out", out, "--position", "45", "--source", "archive")
    assert "the archive of pipeline Shop 1 is empty" in str(empty.exception)
    without = pipeline_file(tmp_path / "without", store, archive=None)
    absent = as_of(without, "--out", out, "--position", "45", "--source", "archive")
    assert "has no archive" in str(absent.exception)
