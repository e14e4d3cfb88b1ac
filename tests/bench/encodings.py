"""`make bench PART=encodings`: captures and merges one changelog in Avro with a registry, and in JSON with schemas."""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path
from typing import Any

import requests
import typer
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.avro.functions import to_avro
from rich.console import Console

from ingest.config import Pipeline
from ingest.lakehouse.silver import Silver
from ingest.pipeline.composition import Run
from ingest.spark.session import running
from ingest.stack import Stack
from tests.bench import lower_bound
from tests.bench.timing import measure
from tests.bench.workload import COLUMNS, IMAGE, TABLE, Workload

NAME = "bench"
WAYS = ("avro", "json")
_MEMORY = {"spark.driver.memory": "4g"}
_SOURCE = (
    "version string, connector string, name string, ts_ms bigint, snapshot string, db string, sequence string, "
    "schema string, table string, txId bigint, lsn bigint, xmin bigint"
)
_CONNECT = {"bigint": "int64", "double": "double", "string": "string", "boolean": "boolean"}
_AVRO = {"bigint": "long", "double": "double", "string": "string", "boolean": "boolean"}


def _topic(way: str) -> str:
    return f"bench-{way}.{TABLE}"


def pipeline(way: str, lakehouse: Path, servers: str, registry: str) -> Pipeline:
    """Returns a pipeline that allows late events, which the workload has on purpose."""
    source: dict[str, Any] = {"kafka": {"bootstrap.servers": servers}, "topics": [_topic(way)], "restarts": "ignore"}
    if way == "avro":
        source["registry"] = {"url": registry}
    return Pipeline.model_validate({"name": NAME, "source": source, "lakehouse": str(lakehouse)})


def _envelope(spark: SparkSession) -> T.StructType:
    image = IMAGE.replace(" ", ":").replace(",:", ",")
    source = _SOURCE.replace(" ", ":").replace(",:", ",")
    text = f"before struct<{image}>, after struct<{image}>, source struct<{source}>, op string, ts_ms bigint"
    return spark.createDataFrame([], text).schema


def _connect(kind: T.DataType, name: str) -> dict[str, Any]:
    """Returns Connect's schema of a type."""
    if isinstance(kind, T.StructType):
        fields = [_connect(f.dataType, f"{name}.{f.name}") | {"field": f.name} for f in kind]
        return {"type": "struct", "optional": True, "name": name, "version": 1, "fields": fields}
    return {"type": _CONNECT[kind.simpleString()], "optional": True}


def _avro(kind: T.DataType, name: str) -> Any:
    """Returns the Avro schema of a type."""
    if isinstance(kind, T.StructType):
        fields = [{"name": f.name, "type": ["null", _avro(f.dataType, f"{name}_{f.name}")]} for f in kind]
        return {"type": "record", "name": name, "fields": fields}
    return _AVRO[kind.simpleString()]


def _framed(registry: str, subject: str, part: Column, kind: T.StructType) -> Column:
    """Returns a value in Avro behind the ID of its schema, which is registered."""
    text = json.dumps(_avro(kind, subject))
    answer = requests.post(f"{registry}/subjects/{subject}/versions", json={"schema": text}, timeout=30)
    answer.raise_for_status()
    frame = b"\0" + int(answer.json()["id"]).to_bytes(4)
    return F.concat(F.lit(frame), to_avro(F.from_json(part.cast("string"), kind), text))


def fill(spark: SparkSession, servers: str, registry: str, workload: Workload) -> int:
    """Fills a topic for each way and returns the number of records of one."""
    records = workload.snapshot(spark).unionByName(workload.changes(spark).drop("batch")).select("key", "value")
    value, key = _envelope(spark), T.StructType([T.StructField("id", T.LongType())])
    schema = json.dumps(_connect(value, "bench.Envelope"), separators=(",", ":"))
    wrapped = F.concat(F.lit(f'{{"schema":{schema},"payload":'), F.col("value").cast("string"), F.lit("}"))
    ways = {
        "json": {"key": F.col("key"), "value": wrapped.cast("binary")},
        "avro": {name: _framed(registry, name, F.col(name), kind) for name, kind in (("key", key), ("value", value))},
    }
    for way, columns in ways.items():
        _write(records.select(F.lit(_topic(way)).alias("topic"), *(c.alias(n) for n, c in columns.items())), servers)
    return records.count()


def _write(records: DataFrame, servers: str) -> None:
    records.write.format("kafka").option("kafka.bootstrap.servers", servers).save()


def run_once(way: str, folder: Path, rows: int, changes: int, servers: str, registry: str) -> None:
    """Runs `way` once, in this process."""
    made = pipeline(way, folder / "lakehouse", servers, registry)
    with running(f"bench {way}", _MEMORY) as spark:
        with measure() as clock:
            Run(spark, made).available_now(threading.Event(), lambda _: None)
        found = Silver(spark, made.layout.silver(NAME, TABLE)).rows()
        lower_bound.print_result(clock, Workload(rows, changes, 1).result(spark), found.select(*COLUMNS))


def run_benchmark(rows: int, changes: int, runs: int, console: Console) -> None:
    """Times both ways `runs` times, on topics of `rows` snapshot reads and then `changes` events."""
    parts = ("kafka", "registry")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, Stack(Path(folder) / "stack", parts) as stack:
        servers, registry = stack.kafka.bootstrap_servers, stack.registry.url
        with running("bench", _MEMORY) as spark:
            count = fill(spark, servers, registry, Workload(rows, changes, 1))
        arguments = [str(rows), str(changes), servers, registry]
        lower_bound.compare("encodings", arguments, folder, runs, count, console, WAYS)


if __name__ == "__main__":
    typer.run(run_once)
