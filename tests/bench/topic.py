"""`make bench PART=topic`: captures and merges a Kafka topic, compared with a lower bound.

The lower bound reads and parses the same records, takes the newest per key, and appends it once, to a table that can
merge no second batch.
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import typer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from ingest.config import Pipeline
from ingest.lakehouse.silver import Silver
from ingest.pipeline.composition import Run
from ingest.spark.session import running
from ingest.stack import Stack
from tests.bench import lower_bound
from tests.bench.contenders import newest_per_key, parse
from tests.bench.timing import measure
from tests.bench.workload import COLUMNS, TABLE, Workload

NAME, TOPIC = "bench", "bench.shop.orders"
_MEMORY = {"spark.driver.memory": "4g"}


def pipeline(lakehouse: Path, servers: str) -> Pipeline:
    """Returns a pipeline that allows late events, which the workload has on purpose."""
    source = {"kafka": {"bootstrap.servers": servers}, "topics": [TOPIC], "restarts": "ignore"}
    return Pipeline.model_validate({"name": NAME, "source": source, "lakehouse": str(lakehouse)})


def fill(spark: SparkSession, servers: str, workload: Workload) -> int:
    """Fills the topic and returns its number of records."""
    records = workload.snapshot(spark).unionByName(workload.changes(spark).drop("batch"))
    writer = records.select("topic", "key", "value").write.format("kafka")
    writer.option("kafka.bootstrap.servers", servers).save()
    return records.count()


def run_once(way: str, folder: Path, rows: int, changes: int, servers: str) -> None:
    """Runs `way` once, in this process."""
    made = pipeline(folder / "lakehouse", servers)
    with running(f"bench {way}", _MEMORY) as spark:
        with measure() as clock:
            if way == "ingest":
                Run(spark, made).available_now(threading.Event(), lambda _: None)
            else:
                source = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
                last = newest_per_key(parse(source.option("subscribe", TOPIC).load()))
                last.write.format("delta").save(str(folder / "table"))
        if way == "ingest":
            found = Silver(spark, made.layout.silver(NAME, TABLE)).rows()
        else:
            found = spark.read.format("delta").load(str(folder / "table")).where(~F.col("gone"))
        lower_bound.print_result(clock, Workload(rows, changes, 1).result(spark), found.select(*COLUMNS))


def run_benchmark(rows: int, changes: int, runs: int, console: Console) -> None:
    """Times both ways `runs` times, on a topic of `rows` snapshot reads and then `changes` events."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, Stack(Path(folder) / "stack", ("kafka",)) as stack:
        servers = stack.kafka.bootstrap_servers
        with running("bench", _MEMORY) as spark:
            count = fill(spark, servers, Workload(rows, changes, 1))
        lower_bound.compare("topic", [str(rows), str(changes), servers], folder, runs, count, console)


if __name__ == "__main__":
    typer.run(run_once)
