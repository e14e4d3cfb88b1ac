"""A run folds a table from its events again if a message about it came too late to revise the stored rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.backfill.refolding import Refolding
from ingest.cli import app
from ingest.cli.pipeline import run as command
from ingest.config import Pipeline
from ingest.lakehouse.backfills import Backfills
from ingest.lakehouse.catalog import Catalog
from ingest.pipeline.composition import Run
from ingest.sources.files import FileSource, lines
from ingest.testing.table_deliveries import Record, interleaved
from ingest.testing.table_records import as_debezium
from tests.changelogs import write
from tests.loop.test_told_tables import INT, Source
from tests.shop import pipeline

pytestmark = pytest.mark.spark
BACK = "public.back"
RIGHT = [(3, 3), (4, 4), (5, 5)]


def records() -> list[Record]:
    """Returns a table that was dropped and created again, whose rows 4 and 3 are written before and after the message
    of the creation. That of the drop comes after them; then row 5 is written."""
    source = Source(BACK, ("id",), id=INT, a=INT)
    source.write("c", id=1, a=1)
    source.recreate(("id",), id=INT, a=INT)
    for number in (3, 4, 5):
        source.write("c", id=number, a=number)
    first, one, drop, create, *others = source.events
    others[1] = replace(others[1], lsn=drop.lsn + 5)
    records = as_debezium(source.story(), [first, one, create, *others[:2], drop, others[2]])
    return interleaved([records], Random(0))


def sources(folder: Path, *ends: int) -> list[FileSource]:
    """Returns sources that hold the records up to each end."""
    sent = [write(folder / f"through {end}", records()[:end], None) / "events.jsonl" for end in ends]
    return [FileSource(list(lines([file]))) for file in sent]


def rows(spark: SparkSession, shop: Pipeline) -> list[tuple[int, int]]:
    found = spark.read.format("delta").load(shop.layout.silver(shop.name, BACK)).select("id", "a").orderBy("id")
    return [tuple(row) for row in found.collect()]


def refold(spark: SparkSession, shop: Pipeline) -> str:
    return Catalog(spark, shop.layout.tables).entry(shop.name, BACK).refold


@pytest.mark.long
def test_a_run_goes_on_with_a_table_that_it_has_folded_again(spark: SparkSession, tmp_path: Path) -> None:
    shop = pipeline(tmp_path, batch={"max_events": 1})
    found: list[Sequence[str]] = []
    refolding = Refolding(spark, shop, Event())
    (source,) = sources(tmp_path, 7)
    with Run(spark, shop, source=source) as run:
        while not run.step().idle:
            found.append(refolding.run(run.merge))
    assert found == [[], [], [], [], [], [BACK], []]
    assert (rows(spark, shop), refold(spark, shop)) == (RIGHT, "")


@pytest.mark.long
def test_a_stopped_run_leaves_the_table_to_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, stop = pipeline(tmp_path), Event()
    for source in sources(tmp_path, 5, 6):
        with Run(spark, shop, source=source) as run:
            run.available_now(stop, lambda _: None)
    assert Refolding(spark, shop, stop).run(run.merge, stop.set) == []
    assert refold(spark, shop) != ""
    monkeypatch.setattr(command, "running", lambda *_: nullcontext(spark))
    (last,) = sources(tmp_path, 7)
    monkeypatch.setattr(command._Attempts, "_source", lambda _: last)
    result = CliRunner().invoke(app, ["run", str(tmp_path / "shop.yaml"), "--available-now"])
    assert result.exit_code == 0, result.output
    assert (rows(spark, shop), refold(spark, shop)) == (RIGHT, "")
    (rebuild,) = Backfills(spark, shop.layout.backfills, shop.name).all()
    assert (rebuild.request["tables"], rebuild.ended_at is not None) == ([BACK], True)
