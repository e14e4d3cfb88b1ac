"""`make bench PART=archive`: a lakehouse filled out of its archive, beside the floor: the same objects read, parsed and
written once, as a table that nobody could merge into. Medians of runs in turn, each in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import typer
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from ingest.changelog.envelope import events
from ingest.config import Pipeline
from ingest.run.archiving import archiving_of
from ingest.run.pipeline import bronze_of, layout_of, rules_of
from ingest.run.restoring import restore
from ingest.session import running
from ingest.stack import Stack
from ingest.tables.bronze import Captured
from ingest.tables.silver import Silver
from tests.bench import RESULTS
from tests.bench.clock import taken
from tests.bench.contenders import parsed
from tests.bench.workload import COLUMNS, TABLE, Workload

NAME, BUCKET = "bench", "changelogs"
WAYS = ("ingest", "floor")


def pipeline(lakehouse: Path, s3: dict[str, Any]) -> Pipeline:
    """Whose events come late on purpose: no log that begins anew."""
    source = {"kafka": {"bootstrap.servers": "127.0.0.1:9"}, "topics": ["bench"], "restarts": "ignore"}
    archive = {"uri": f"s3://{BUCKET}/bench", "s3": s3}
    told = {"name": NAME, "source": source, "lakehouse": str(lakehouse), "archive": archive}
    return Pipeline.model_validate(told)


def fill(spark: SparkSession, made: Pipeline, workload: Workload) -> int:
    """The archive, through a bronze that is not needed afterwards. How many records it holds."""
    bronze, naming = bronze_of(spark, made), rules_of(made).naming
    for number, part in enumerate((workload.snapshot(spark), workload.changes(spark).drop("batch")), start=1):
        bronze.append(events(part, naming), Captured(number, {}))
    archiving = archiving_of(spark, made)
    count = 0
    while (manifest := archiving.step()) is not None:
        count += manifest.records
    return count


def one(way: str, folder: Path, rows: int, changes: int, s3: str) -> None:
    """A single run, in this process."""
    made = pipeline(folder / "lakehouse", json.loads(s3))
    with running(f"bench {way}", {"spark.driver.memory": "4g"}) as spark:
        with taken() as clock:
            if way == "ingest":
                restore(spark, made, threading.Event())
            else:
                layout = layout_of(spark, made)
                history = parsed(layout.records(spark, layout.objects()))
                history.write.format("delta").save(str(folder / "floor"))
        wrong = 0
        if way == "ingest":
            found = Silver(spark, made.layout.silver(NAME, TABLE)).rows().select(*COLUMNS)
            expected = Workload(rows, changes, 1).result(spark)
            wrong = expected.exceptAll(found).count() + found.exceptAll(expected).count()
    sys.stdout.write(json.dumps({"wall": clock.wall, "cpu": clock.cpu, "wrong": wrong}) + "\n")


def race(rows: int, changes: int, runs: int, console: Console) -> None:
    """`rows` snapshot reads are archived, and `changes` after them; each way takes `runs` turns."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, Stack(Path(folder) / "stack", parts=("s3",)) as stack:
        s3 = stack.s3.client_options
        boto3.client("s3", **s3).create_bucket(Bucket=BUCKET)
        with running("bench", {"spark.driver.memory": "4g"}) as spark:
            count = fill(spark, pipeline(Path(folder) / "made", s3), Workload(rows, changes, 1))
        for run in range(runs):
            for way in WAYS:
                console.print(f"[dim]running: {way}, {run + 1} of {runs}")
                found[way].append(_apart([way, f"{folder}/{way}-{run}", str(rows), str(changes), json.dumps(s3)]))
    _show(found, count, console)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"archive-{count}-{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    file.write_text(json.dumps({"records": count, "runs": found}, indent=1) + "\n", encoding="utf-8")
    console.print(f"[dim]{file}")


def _apart(words: list[str]) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.bench.archive", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _show(found: dict[str, list[dict[str, float]]], count: int, console: Console) -> None:
    medians = {way: {k: statistics.median(r[k] for r in runs) for k in runs[0]} for way, runs in found.items()}
    table = Table("way", "CPU s", "wall s", "records/s", "wall, of the floor", "wrong rows")
    for way, mine in medians.items():
        ratio = mine["wall"] / medians["floor"]["wall"]
        figures = (f"{mine['cpu']:.1f}", f"{mine['wall']:.1f}", f"{count / mine['wall']:,.0f}", f"{ratio:.2f}")
        table.add_row(way, *figures, f"{mine['wrong']:.0f}")
    console.print(table)


if __name__ == "__main__":
    typer.run(one)
