"""The library's classes are used in executors, which are separate processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]
_SCRIPT = """
import json, os, sys
from pyspark.sql import functions as F, types as T
from ingest.jvm.schema_novelty import is_novel
from ingest.delta.delta_table import Table
from ingest.delta.txn_versions import TxnVersion
from ingest.jvm.library import tasks_have_library
from ingest.jvm.plain_json import CORRUPT, opened
from ingest.spark.prepared import run_prepared, collect_prepared
from ingest.spark.session import SMALL, running

def totals(least, rows):
    return rows.where(F.col("a") >= least).groupBy("a").agg(F.count("*").alias("n"))

def show(spark):
    values = spark.range(100).select(F.format_string('{"after": {"a": %d}}', "id").cast("binary").alias("value"))
    into = T.StructType([T.StructField("after", T.StructType([T.StructField("a", T.LongType())]))])
    into.add(CORRUPT, T.StringType())
    parsed = values.select(opened(F.col("value"), into).alias("it"))
    novel = is_novel(spark, F.col("value"), (F.lit(1), F.lit("t"), F.lit(False)))
    rows = spark.createDataFrame([(1,), (1,), (2,)], "a int").coalesce(1)
    answer = run_prepared(totals, (2,), rows)
    table = Table(spark, sys.argv[1])
    version = TxnVersion("test", 1, must_advance=False)
    table.commit(answer, properties={}, is_small=True, txn_version=version)
    return {
        "has": tasks_have_library(spark.sparkContext),
        "sum": parsed.agg(F.sum("it.after.a")).first()[0],
        "novel": sum(row[0] is not None for row in values.select(novel).collect()),
        "answer": [tuple(row) for row in answer.collect()],
        "told": collect_prepared(totals, (1,), rows),
        "stored": [tuple(row) for row in spark.read.format("delta").load(sys.argv[1]).collect()],
    }

with running("executors", SMALL) as spark:
    print(json.dumps(show(spark)))
"""
_REPLAY = "from ingest.cli import main; main()"
_MASTER = "--master local-cluster[2,1,1024] --conf spark.executor.memory=1g pyspark-shell"


@pytest.fixture
def on_a_cluster(tmp_path: Path) -> dict[str, str]:
    """Returns the environment of a process whose session has two executors."""
    installed, home = Path(pyspark.__file__).parent, tmp_path / "spark"
    home.mkdir()  # The working folder of executors.
    for name in ("bin", "jars", "sbin"):
        (home / name).symlink_to(installed / name)
    path = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))
    return os.environ | {"SPARK_HOME": str(home), "PYSPARK_SUBMIT_ARGS": _MASTER, "PYTHONPATH": path}


def test_executors_use_the_library(on_a_cluster: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path / "table")]
    done = subprocess.run(command, env=on_a_cluster, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {
        "has": True,
        "sum": 4950,
        "novel": 100,
        "answer": [[2, 1]],
        "told": [{"a": 1, "n": 2}, {"a": 2, "n": 1}],
        "stored": [[2, 1]],
    }


def test_replay_on_a_cluster_gives_the_same_tables(on_a_cluster: dict[str, str], tmp_path: Path) -> None:
    images = [{"op": "c", "after": {"id": n % 7, "n": n}} for n in range(20)] + [{"op": "d", "before": {"id": 3}}]
    keys = [n % 7 for n in range(20)] + [3]
    lines = (
        json.dumps({"topic": "t", "partition": 0, "offset": at, "key": {"id": key}, "value": image}) + "\n"
        for at, (key, image) in enumerate(zip(keys, images, strict=True))
    )
    (tmp_path / "events.jsonl").write_text("".join(lines), encoding="utf-8")
    command = [sys.executable, "-c", _REPLAY, "replay", str(tmp_path / "events.jsonl"), "--out"]
    found = []
    for name, environment in (("cluster", on_a_cluster), ("local", dict(os.environ))):
        out = tmp_path / name
        done = subprocess.run(
            [*command, str(out)], env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found.append(done.stdout.replace(str(out), "OUT"))
    assert found[0] == found[1]
    assert "6 rows" in found[0]
