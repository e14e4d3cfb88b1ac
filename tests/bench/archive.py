"""`make bench PART=archive`: restores a lakehouse from its archive, compared with a lower bound: a job that reads,
parses and writes the same objects once, without a merge. Prints medians of alternating runs, each in its own
process."""

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
from tests.bench import lower_bound
from tests.bench.contenders import parse
from tests.bench.timing import measure
from tests.bench.workload import COLUMNS, TABLE, Workload

NAME, BUCKET = "bench", "changelogs"


def pipeline(lakehouse: Path, s3: dict[str, Any]) -> Pipeline:
    """Returns a pipeline that allows late events, which the workload has on purpose."""
    source = {"kafka": {"bootstrap.servers": "127.0.0.1:9"}, "topics": ["bench"], "restarts": "ignore"}
    archive = {"uri": f"s3://{BUCKET}/bench", "s3": s3}
    document = {"name": NAME, "source": source, "lakehouse": str(lakehouse), "archive": archive}
    return Pipeline.model_validate(document)


def fill(spark: SparkSession, made: Pipeline, workload: Workload) -> int:
    """Fills the archive through a temporary bronze and returns its number of records."""
    bronze, naming = bronze_of(spark, made), rules_of(made).naming
    for number, part in enumerate((workload.snapshot(spark), workload.changes(spark).drop("batch")), start=1):
        bronze.append(events(part, naming), CaptureState(number, {}))
    archiving = archiving_of(spark, made)
    count = 0
    while (manifest := archiving.step()) is not None:
        count += manifest.records
    return count


def run_once(way: str, folder: Path, rows: int, changes: int, s3: str) -> None:
    """Runs `way` once, in this process."""
    made = pipeline(folder / "lakehouse", json.loads(s3))
    with running(f"bench {way}", {"spark.driver.memory": "4g"}) as spark:
        with measure() as clock:
            if way == "ingest":
                restore(spark, made, threading.Event())
            else:
                layout = layout_of(spark, made)
                history = parse(layout.records(spark, layout.objects()))
                history.write.format("delta").save(str(folder / "table"))
        # The lower bound merges nothing, so it has no rows to compare.
        found = Silver(spark, made.layout.silver(NAME, TABLE)).rows().select(*COLUMNS) if way == "ingest" else None
        lower_bound.print_result(clock, Workload(rows, changes, 1).result(spark), found)


def run_benchmark(rows: int, changes: int, runs: int, console: Console) -> None:
    """Times both ways `runs` times, on an archive of `rows` snapshot reads and then `changes` events."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, Stack(Path(folder) / "stack", parts=("s3",)) as stack:
        s3 = stack.s3.client_options
        boto3.client("s3", **s3).create_bucket(Bucket=BUCKET)
        with running("bench", {"spark.driver.memory": "4g"}) as spark:
            count = fill(spark, pipeline(Path(folder) / "made", s3), Workload(rows, changes, 1))
        lower_bound.compare("archive", [str(rows), str(changes), json.dumps(s3)], folder, runs, count, console)


if __name__ == "__main__":
    typer.run(run_once)
