"""`make bench PART=archive`: a lakehouse filled out of its archive, beside the floor: the same objects read, parsed and
written once, as a table that nobody could merge into. Medians of runs in turn, each in a process of its own."""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path
from typing import Any

import boto3
import typer
from pyspark.sql import SparkSession
from rich.console import Console

from ingest.backfill.restoring import restore
from ingest.changelog.envelope import events
from ingest.config import Pipeline
from ingest.lakehouse.bronze import CaptureState
from ingest.lakehouse.silver import Silver
from ingest.pipeline.archiving import archiving_of
from ingest.pipeline.composition import bronze_of, layout_of, rules_of
from ingest.spark.session import running
from ingest.stack import Stack
from tests.bench import floor
from tests.bench.clock import taken
from tests.bench.contenders import parsed
from tests.bench.workload import COLUMNS, TABLE, Workload

NAME, BUCKET = "bench", "changelogs"


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
        bronze.append(events(part, naming), CaptureState(number, {}))
    archiving = archiving_of(spark, made)
    count = 0
    while (manifest := archiving.step()) is not None:
        count += manifest.records
    return count


def one(way: str, folder: Path, rows: int, changes: int, s3: str) -> None:
    """A single turn, in this process."""
    made = pipeline(folder / "lakehouse", json.loads(s3))
    with running(f"bench {way}", {"spark.driver.memory": "4g"}) as spark:
        with taken() as clock:
            if way == "ingest":
                restore(spark, made, threading.Event())
            else:
                layout = layout_of(spark, made)
                history = parsed(layout.records(spark, layout.objects()))
                history.write.format("delta").save(str(folder / "floor"))
        # The floor keeps every change, and merges none: there is no table to be right or wrong.
        found = Silver(spark, made.layout.silver(NAME, TABLE)).rows().select(*COLUMNS) if way == "ingest" else None
        floor.say(clock, Workload(rows, changes, 1).result(spark), found)


def race(rows: int, changes: int, runs: int, console: Console) -> None:
    """`rows` snapshot reads are archived, and `changes` after them; each way takes `runs` turns."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, Stack(Path(folder) / "stack", parts=("s3",)) as stack:
        s3 = stack.s3.client_options
        boto3.client("s3", **s3).create_bucket(Bucket=BUCKET)
        with running("bench", {"spark.driver.memory": "4g"}) as spark:
            count = fill(spark, pipeline(Path(folder) / "made", s3), Workload(rows, changes, 1))
        floor.race("archive", [str(rows), str(changes), json.dumps(s3)], folder, runs, count, console)


if __name__ == "__main__":
    typer.run(one)
