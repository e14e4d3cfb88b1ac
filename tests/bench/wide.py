"""`make bench PART=wide`: times batches of a table of 1,200 columns, and of one of ten columns with as many cells. A
quarter of the columns each are integers, texts, fractions and booleans."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from ingest.batches.batch_stats import BatchCounter
from ingest.batches.rules import Rules
from ingest.changelog.envelope import events
from ingest.lakehouse.bronze import Bronze, CaptureState
from ingest.lakehouse.silver import Silver
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from ingest.spark.session import running
from tests.bench import RESULTS
from tests.bench.timing import measure

NARROW, WIDE = 10, 1200
_WARM = 3


def value(number: int, column: int) -> Any:
    """Returns the value of a column in the image with this number."""
    base = number * 7 + column
    return (base, f"text {base}", base / 4, base % 2 == 0)[column % 4]


def image(key: int, version: int, columns: int) -> dict[str, Any]:
    """Returns the row of a key at a version."""
    return {"id": key} | {f"c{n}": value(key + version, n) for n in range(1, columns)}


def records(columns: int, keys: int, version: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields key and value of an event per key: a snapshot read at version 0, else an update."""
    source = {"connector": "postgresql", "schema": "shop", "table": "wide", "ts_ms": 1}
    for key in range(keys):
        at = {"lsn": 1000 + 10 * (version * keys + key), "snapshot": "true" if version == 0 else "false"}
        op = "r" if version == 0 else "u"
        envelope = {"before": None, "after": image(key, version, columns), "source": source | at, "op": op, "ts_ms": 1}
        yield json.dumps({"id": key}).encode(), json.dumps(envelope).encode()


def as_read(spark: SparkSession, folder: Path, columns: int, keys: int, version: int) -> DataFrame:
    """Returns the events as a Kafka consumer gets them."""
    keys_and_values = list(zip(*records(columns, keys, version), strict=True))
    offsets = range(version * keys, (version + 1) * keys)
    records_table = pa.table(
        {"offset": pa.array(offsets, pa.int64()), "key": keys_and_values[0], "value": keys_and_values[1]}
    )
    file = folder / f"{columns}-{version}.parquet"
    pq.write_table(records_table, file)
    nothing = F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers")
    written = F.timestamp_millis(F.lit(1_760_000_000_000)).alias("timestamp")
    place = F.lit("wide").alias("topic"), F.lit(0).alias("partition"), F.col("offset")
    return spark.read.parquet(str(file)).select(*place, written, nothing, "key", "value")


def batches(spark: SparkSession, folder: Path, columns: int, keys: int, count: int) -> dict[str, Any]:
    """Returns the medians of the warm batches, and the number of wrong rows."""
    lakehouse, name = Lakehouse(str(folder / f"of-{columns}")), "wide"
    bronze = Bronze(spark, lakehouse.bronze(name))
    merge = Merge(spark, name, lakehouse, Rules(stops_at_restart=False), bronze)
    clocks = []
    for version in range(count + _WARM):
        read = as_read(spark, folder, columns, keys, version)
        with measure() as clock:
            bronze.append(events(read, Rules().naming), CaptureState(version + 1, {}), BatchCounter(spark))
            merge.step(version + 1)
        clocks.append(clock)
    timed = clocks[_WARM:]
    last, rows = columns - 1, Silver(spark, lakehouse.silver(name, "shop.wide")).rows()
    right = sum(row[f"c{last}"] == value(row["id"] + version, last) for row in rows.select("id", f"c{last}").collect())
    median = {k: statistics.median(getattr(c, k) for c in timed) for k in ("wall", "cpu")}
    return {"columns": columns, "events": keys, **median, "first": clocks[0].cpu, "wrong": keys - right}


def run_benchmark(keys: int, count: int, console: Console) -> None:
    """Times `count` batches of `keys` wide rows, and of narrow rows with as many cells."""
    temporary = tempfile.TemporaryDirectory(prefix="bench-")
    with temporary as folder, running("bench wide", {"spark.driver.memory": "4g"}) as spark:
        shapes = ((NARROW, keys * WIDE // NARROW), (WIDE, keys))
        found = [batches(spark, Path(folder), columns, events, count) for columns, events in shapes]
    table = Table("columns", "events", "CPU s", "wall s", "first batch, CPU s", "ratio to narrow", "wrong rows")
    for one in found:
        figures = (f"{one['cpu']:.2f}", f"{one['wall']:.2f}", f"{one['first']:.1f}")
        ratio = f"{one['cpu'] / found[0]['cpu']:.2f}"
        table.add_row(f"{one['columns']:,}", f"{one['events']:,}", *figures, ratio, str(one["wrong"]))
    console.print(table)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"wide-{keys}-{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    file.write_text(json.dumps({"batches": count, "found": found}, indent=1) + "\n", encoding="utf-8")
    console.print(f"[dim]{file}")
