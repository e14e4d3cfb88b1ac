"""`make bench PART=topic`: a Kafka topic into silver, capture and merge, beside the floor.

The floor is what anybody has to do with the same records: read and parse them, take the newest of each key, and append
it once, to a table that takes no second batch.
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
from tests.bench import floor
from tests.bench.clock import taken
from tests.bench.contenders import newest, parsed
from tests.bench.workload import COLUMNS, TABLE, Workload

NAME, TOPIC = "bench", "bench.shop.orders"
_MEMORY = {"spark.driver.memory": "4g"}


def pipeline(lakehouse: Path, servers: str) -> Pipeline:
    """Whose events come late on purpose: no log that begins anew."""
    source = {"kafka": {"bootstrap.servers": servers}, "topics": [TOPIC], "restarts": "ignore"}
    return Pipeline.model_validate({"name": NAME, "source": source, "lakehouse": str(lakehouse)})


def fill(spark: SparkSession, servers: str, workload: Workload) -> int:
    """The topic. How many records it holds."""
    records = workload.snapshot(spark).unionByName(workload.changes(spark).drop("batch"))
    writer = records.select("topic", "key", "value").write.format("kafka")
    writer.option("kafka.bootstrap.servers", servers).save()
    return records.count()


def one(way: str, folder: Path, rows: int, changes: int, servers: str) -> None:
    """A single turn, in this process."""
    made = pipeline(folder / "lakehouse", servers)
    with running(f"bench {way}", _MEMORY) as spark:
        with taken() as clock:
            if way == "ingest":
                Run(spark, made).available_now(threading.Event(), lambda _: None)
            else:
                source = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
                last = newest(parsed(source.option("subscribe", TOPIC).load()))
                last.write.format("delta").save(str(folder / "floor"))
        if way == "ingest":
            found = Silver(spark, made.layout.silver(NAME, TABLE)).rows()
        else:
            found = spark.read.format("delta").load(str(folder / "floor")).where(~F.col("gone"))
        floor.say(clock, Workload(rows, changes, 1).result(spark), found.select(*COLUMNS))


def race(rows: int, changes: int, runs: int, console: Console) -> None:
    """`rows` snapshot reads are in the topic, and `changes` after them; each way takes `runs` turns."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, Stack(Path(folder) / "stack", ("kafka",)) as stack:
        servers = stack.kafka.bootstrap_servers
        with running("bench", _MEMORY) as spark:
            count = fill(spark, servers, Workload(rows, changes, 1))
        floor.race("topic", [str(rows), str(changes), servers], folder, runs, count, console)


if __name__ == "__main__":
    typer.run(one)
