"""`make bench PART=erasure`: erases one subject, then many at once, from a lakehouse of a million rows; prints the time
of each step and the rewritten bytes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from ingest.changelog.envelope import events
from ingest.config import Pipeline
from ingest.erasure.removal import Removal
from ingest.erasure.request import SubjectId, current_cutoff, plan_erasure, request_erasure
from ingest.lakehouse.bronze import CaptureState
from ingest.lakehouse.silver import Silver
from ingest.pipeline.composition import Run, bronze_of, rules_of
from ingest.spark.session import running
from ingest.suppression.cutoff import Cutoff
from tests.bench import RESULTS
from tests.bench.timing import measure
from tests.bench.workload import TABLE, Workload

NAME, CUSTOMERS, EVERY_BATCH = "bench", "shop.customers", 100_000
CUSTOMER_COUNT = 50_000


def pipeline(folder: Path) -> Pipeline:
    key = folder / "ledger.key"
    key.write_text("1 " + "5a" * 32, encoding="ascii")
    key.chmod(0o600)
    document = {
        "name": NAME,
        "source": {"kafka": {"bootstrap.servers": "127.0.0.1:9"}, "topic_pattern": "bench.*", "restarts": "ignore"},
        "lakehouse": str(folder / "lakehouse"),
        "privacy": {"key_file": str(key), "keep_old_files_hours": 0},
        "tables": {
            CUSTOMERS: {"subject": {"of": "customer", "key": "id"}, "personal": ["name"]},
            TABLE: {"subject": {"through": {"customer": CUSTOMERS}}, "personal": ["email", "note"]},
        },
    }
    return Pipeline.model_validate(document)


def customers(spark: SparkSession) -> DataFrame:
    """Returns snapshot reads of all customers."""
    name = F.concat(F.lit("customer number "), F.col("id")).alias("name")
    source = F.struct(F.lit("shop").alias("schema"), F.lit("customers").alias("table"), F.lit(1000).alias("lsn"))
    value = F.to_json(F.struct(F.struct("id", name).alias("after"), F.lit("r").alias("op"), source.alias("source")))
    ids = spark.range(CUSTOMER_COUNT)
    return ids.select(
        F.lit(f"bench.{CUSTOMERS}").alias("topic"),
        F.lit(0).alias("partition"),
        F.col("id").alias("offset"),
        F.timestamp_millis(F.lit(1_760_000_000_000)).alias("timestamp"),
        F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
        F.to_json(F.struct("id")).cast("binary").alias("key"),
        value.cast("binary").alias("value"),
    )


def fill(spark: SparkSession, made: Pipeline, rows: int, changes: int) -> None:
    bronze, naming, work = bronze_of(spark, made), rules_of(made).naming, Workload(rows, changes, 1)
    parts = [customers(spark)]
    parts += [work.snapshot(spark, n, min(n + EVERY_BATCH, rows)) for n in range(0, rows, EVERY_BATCH)]
    parts.append(work.changes(spark).drop("batch"))
    for number, part in enumerate(parts, start=1):
        bronze.append(events(part, naming), CaptureState(number, {}))
    run = Run(spark, made, ("merge",))
    while not run.step().idle:
        pass


def erased(spark: SparkSession, made: Pipeline, first: int, count: int) -> dict[str, Any]:
    """Erases `count` customers and returns the times, counts and bytes."""
    before, steps = _files(made), dict[str, Any]()
    subjects = [SubjectId("customer", str(n)) for n in range(first, first + count)]
    with measure() as clock:
        cutoff: Cutoff = current_cutoff(spark, made, topics=False)
        planned = plan_erasure(spark, made, subjects, None, cutoff)
        request_erasure(spark, made, planned)
    steps["ask"] = {"wall": clock.wall, "cpu": clock.cpu}
    with measure() as clock:
        outcome = Removal(spark, made).run()
    steps["remove"] = {"wall": clock.wall, "cpu": clock.cpu}
    after = _files(made)
    new = sum(size for name, size in after.items() if name not in before)
    left = Silver(spark, made.layout.silver(NAME, TABLE)).rows()
    wrong = left.where(F.col("customer").between(first, first + count - 1)).count()
    taken = {place: dict(counts) for place, counts in outcome.taken.items()}
    return {
        "subjects": count, "steps": steps, "taken": taken, "bytes_before": sum(before.values()),
        "bytes_written": new, "left": wrong,
    }  # fmt: skip


def _files(made: Pipeline) -> Mapping[str, int]:
    """Returns the Parquet files of the lakehouse and their sizes."""
    return {str(f): f.stat().st_size for f in Path(made.lakehouse).rglob("*.parquet") if f.is_file()}


def run_benchmark(rows: int, changes: int, subjects: int, console: Console) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        made = pipeline(Path(folder))
        with running("bench erasure", {"spark.driver.memory": "4g"}) as spark:
            console.print(f"[dim]filling: {rows:,} orders, {changes:,} changes, {CUSTOMER_COUNT:,} customers")
            fill(spark, made, rows, changes)
            results = [erased(spark, made, 0, 1), erased(spark, made, 1, subjects)]
    table = Table("subjects", "ask, s", "remove, s", "CPU s", "events", "rows", "MB before", "MB written", "left")
    for one in results:
        steps, away = one["steps"], one["taken"]
        cpu = f"{sum(s['cpu'] for s in steps.values()):.0f}"
        walls = (f"{steps[name]['wall']:.1f}" for name in ("ask", "remove"))
        counts = (f"{away['bronze']['events']:,}", f"{away['tables']['rows']:,}")
        sizes = (f"{one[name] / 1e6:.1f}" for name in ("bytes_before", "bytes_written"))
        table.add_row(f"{one['subjects']:,}", *walls, cpu, *counts, *sizes, str(one["left"]))
    console.print(table)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"erasure-{rows}-{subjects}-{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    file.write_text(json.dumps({"rows": rows, "changes": changes, "runs": results}, indent=1) + "\n", encoding="utf-8")
    console.print(f"[dim]{file}")
