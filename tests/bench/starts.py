"""`make bench PART=starts`: times a start and the erasure of one person, after a history and after one ten times as
long. The erased persons are in the first events of both histories; later events are about others."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from ingest.changelog.envelope import events
from ingest.config import Pipeline
from ingest.delta import log_cache
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import Bronze, CaptureState
from ingest.loop.capture import Capture
from ingest.pipeline.composition import Run, bronze_of, rules_of
from ingest.sources.files import FileSource
from ingest.spark.session import running
from tests.bench import RESULTS, erasure
from tests.bench.timing import Timing, measure
from tests.bench.workload import TABLE, Workload

_BATCH = 50_000
_FIRST = 50_000
"""Number of the first rows, those of customers who may be erased."""
_OTHERS = 1_000_000
"""The first customer number of the later events."""


def fill(spark: SparkSession, made: Pipeline, count: int) -> None:
    """Writes `count` events to bronze. Merges the first ones and marks the others as merged, so that silver is the same
    for both histories."""
    bronze, naming = bronze_of(spark, made), rules_of(made).naming
    ends = {f"bench.{erasure.CUSTOMERS}": {0: erasure.CUSTOMER_COUNT}, f"bench.{TABLE}": {0: _FIRST + 1}}
    bronze.append(events(erasure.customers(spark), naming), CaptureState(1, ends))
    bronze.append(events(Workload(_FIRST, 1, 1).snapshot(spark), naming), CaptureState(2, ends))
    run = Run(spark, made, ("merge",))
    while not run.step().idle:
        pass
    accounts, batch = Accounts(spark, made.layout.accounts, made.name), 2
    while (batch - 2) * _BATCH < count:
        first = _FIRST + (batch - 2) * _BATCH
        part = _of_others(Workload(count, 1, 1).snapshot(spark, first, first + _BATCH))
        ends[f"bench.{TABLE}"][0] = first + _BATCH + 1
        bronze.append(events(part, naming), CaptureState(batch + 1, ends))
        accounts.add(batch, batch + 1, [])
        batch += 1
    # A stream compacts while it runs.
    while bronze.compact(batch):
        pass


def _of_others(records: DataFrame) -> DataFrame:
    text = F.col("value").cast("string")
    later = F.regexp_replace(text, '"op":"r"', '"op":"u"')
    moved = F.concat(F.lit('"customer":'), F.lit(_OTHERS) + F.col("offset"))
    number = F.concat(F.lit('"lsn":'), F.lit(2000) + F.col("offset"))
    value = F.regexp_replace(F.regexp_replace(later, F.lit('"customer":[0-9]+'), moved), F.lit('"lsn":[0-9]+'), number)
    return records.withColumn("value", value.cast("binary"))


def start(spark: SparkSession, made: Pipeline) -> None:
    """Starts a run: reads the state of the history and checks for position regressions."""
    log_cache._shared.cache_clear()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    bronze = Bronze(spark, made.layout.bronze(made.name))
    captured = Capture(spark, FileSource([]), bronze, rules_of(made).naming, 1).captured
    run = Run(spark, made, ("merge",))
    assert run._merge is not None
    assert run._merge.merged == captured.batch == bronze.last_batch()
    run._merge._position_regression._learn(captured.batch)


def measured(spark: SparkSession, folder: Path, count: int, turns: int) -> dict[str, Any]:
    """Returns the medians for a history of `count` events."""
    folder.mkdir()
    made = erasure.pipeline(folder)
    fill(spark, made, count)
    starts = [_timed(lambda: start(spark, made)) for _ in range(turns + 1)]
    first = erasure.erased(spark, made, 10, 1)
    erasures = [erasure.erased(spark, made, 11 + n, 1) for n in range(turns)]
    cpu = [sum(step["cpu"] for step in one["steps"].values()) for one in erasures]
    return {
        "events": count,
        "files": len([f for f in erasure._files(made) if "/bronze/" in f]),
        "first start": starts[0].cpu,
        "start": statistics.median(clock.cpu for clock in starts[1:]),
        "first erasure": sum(step["cpu"] for step in first["steps"].values()),
        "erasure": statistics.median(cpu),
        "erased": [one["taken"]["bronze"] for one in erasures],
        "left": sum(one["left"] for one in [first, *erasures]),
    }


def _timed(work: Callable[[], object]) -> Timing:
    with measure() as clock:
        work()
    return clock


def run_benchmark(count: int, turns: int, console: Console) -> None:
    """Times starts and erasures after `count` events and after ten times as many."""
    found = []
    temporary = tempfile.TemporaryDirectory(prefix="bench-")
    with temporary as folder, running("bench starts", {"spark.driver.memory": "4g"}) as spark:
        for size in (count // 10, count, 10 * count):  # The first one warms up.
            console.print(f"[dim]a history of {size:,} events")
            found.append(measured(spark, Path(folder) / str(size), size, turns))
    names = ("first start", "start", "first erasure", "erasure")
    table = Table("events", *names, "events, files erased", "left", title="CPU s, medians")
    for one in found[1:]:
        away = ", ".join(f"{e['events']} in {e['files']}" for e in one["erased"])
        table.add_row(f"{one['events']:,}", *(f"{one[name]:.2f}" for name in names), away, str(one["left"]))
    table.add_row("ratio", *(f"{found[2][name] / found[1][name]:.2f}" for name in names), "", "")
    console.print(table)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"starts-{count}-{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    file.write_text(json.dumps({"turns": turns, "found": found}, indent=1) + "\n", encoding="utf-8")
    console.print(f"[dim]{file}")
