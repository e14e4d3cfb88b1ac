"""Every entry of the failure table, with the exception that Spark, Delta or the system really raises."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.archive import ObjectStore
from ingest.config import Pipeline
from ingest.delta.delta_table import Table
from ingest.errors import (
    EXIT_TRANSIENT,
    EXIT_USER,
    ChangelogUnusable,
    Contended,
    EngineOverloaded,
    IngestError,
    LakehouseDamaged,
    PrerequisiteMissing,
    SourceRefused,
    StorageRefused,
    Unreachable,
)
from ingest.failures.conversion import RunFailed, to_ingest_error
from ingest.failures.table import FAILURES
from ingest.spark.arrow_tasks import map_in_arrow

pytestmark = pytest.mark.spark
PERSONAL = "Änne Übelhör"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    source = {"kafka": {"bootstrap.servers": "127.0.0.1:1"}, "topics": ["t"]}
    return Pipeline.model_validate({"name": "shop", "source": source, "lakehouse": str(tmp_path / "lakehouse")})


def raised(what: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as failed:
        what()
    return failed.value


def raised_error(what: Callable[[], object], pipeline: Pipeline) -> IngestError:
    """Returns the error as users see it, which must hold no trace, plan or value."""
    error = to_ingest_error(raised(what), pipeline)
    assert error is not None
    for text in (error.problem, error.remedy):
        assert "\n" not in text
        assert not any(word in text for word in ("Exception", "Traceback", "at org.", PERSONAL))
    return error


def delta_table(spark: SparkSession, path: Path) -> Path:
    spark.range(10).write.format("delta").save(str(path))
    return path


def rows(spark: SparkSession, path: Path) -> list[Any]:
    return spark.read.format("delta").load(str(path)).collect()


def clear_delta_cache(spark: SparkSession) -> None:
    """Clears Delta's cache of snapshots."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def in_a_worker(spark: SparkSession, error: Callable[[], BaseException]) -> Callable[[], object]:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            raise error()
        yield from ()

    return lambda: map_in_arrow(spark.range(3), fail, "id long").collect()


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=False)
    if mounted.returncode:
        pytest.skip("this user may not mount a disk of its own")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_broadcast_timeout_is_not_a_kafka_failure(spark: SparkSession, pipeline: Pipeline) -> None:
    slow = spark.range(4).mapInArrow(_slowly, "id long")
    spark.conf.set("spark.sql.broadcastTimeout", "1")
    try:
        error = raised_error(lambda: spark.range(10).join(F.broadcast(slow), "id").collect(), pipeline)
    finally:
        spark.conf.unset("spark.sql.broadcastTimeout")
    assert isinstance(error, EngineOverloaded)
    assert (error.exit_code, error.retried) == (EXIT_TRANSIENT, True)
    assert "broadcast" in error.problem
    assert "Kafka" not in str(error)


def _slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import time

    time.sleep(3)
    yield from batches


@pytest.mark.parametrize("kind", [Unreachable, SourceRefused, ChangelogUnusable, Contended])
@pytest.mark.parametrize("setting", ["", "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"])
def test_ingest_error_in_a_worker_keeps_its_class(
    spark: SparkSession, pipeline: Pipeline, kind: type[IngestError], setting: str
) -> None:
    problem, remedy = 'what → happened: "ingest-cause: {}"\nin two lines', "ingest.errors.Contended: do → this"
    if setting:
        spark.conf.set(setting, "true")
    try:
        error = to_ingest_error(raised(in_a_worker(spark, lambda: kind(problem, remedy))), pipeline)
    finally:
        if setting:
            spark.conf.unset(setting)
    assert type(error) is kind
    assert (error.problem, error.remedy) == (problem, remedy)


def test_store_error_in_a_worker_keeps_its_class(spark: SparkSession, pipeline: Pipeline) -> None:
    options = {"endpoint_url": "http://127.0.0.1:1", "region_name": "x", "aws_access_key_id": "a"}
    store = ObjectStore("s3://bucket/some", options | {"aws_secret_access_key": "b"})

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            store.put_once("key", b"")
        yield from ()

    error = raised_error(lambda: map_in_arrow(spark.range(3), fail, "id long").collect(), pipeline)
    assert isinstance(error, Unreachable)
    assert "EndpointConnectionError" in error.problem or "would not write key" in error.problem


@pytest.mark.parametrize(
    ("what", "kind", "word"),
    [
        (lambda: OSError(28, PERSONAL), StorageRefused, "is full"),
        (lambda: PermissionError(13, PERSONAL), StorageRefused, "refuses this user"),
        (lambda: FileNotFoundError(2, PERSONAL), LakehouseDamaged, "missing"),
        (lambda: MemoryError(PERSONAL), EngineOverloaded, "memory"),
        (lambda: ConnectionResetError(104, PERSONAL), Unreachable, "does not answer"),
        (lambda: TimeoutError(PERSONAL), Unreachable, "does not answer"),
        (lambda: psycopg.OperationalError(PERSONAL), Unreachable, "database"),
        (lambda: ValueError(PERSONAL), RunFailed, "ValueError"),
        (lambda: ValueError("data loss, TimeoutException, Connection refused"), RunFailed, "ValueError"),
    ],
)
def test_failure_in_a_worker_is_matched_by_class(
    spark: SparkSession, pipeline: Pipeline, what: Callable[[], Exception], kind: type[IngestError], word: str
) -> None:
    error = raised_error(in_a_worker(spark, what), pipeline)
    assert type(error) is kind
    assert word in error.problem


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        (OSError(28, PERSONAL), StorageRefused),
        (OSError(30, PERSONAL), StorageRefused),
        (ConnectionRefusedError(111, PERSONAL), Unreachable),
        (psycopg.OperationalError(PERSONAL), Unreachable),
    ],
)
def test_failure_in_the_driver_is_matched_by_class(
    spark: SparkSession, pipeline: Pipeline, what: Exception, kind: type[IngestError]
) -> None:
    assert type(to_ingest_error(what, pipeline)) is kind


def test_defects_of_ingest_are_not_converted(spark: SparkSession, pipeline: Pipeline) -> None:
    assert to_ingest_error(KeyError("Connection refused"), pipeline) is None
    assert to_ingest_error(AssertionError(), pipeline) is None
    assert to_ingest_error(BrokenPipeError(32, "of the reader of the output"), pipeline) is None


def test_killed_worker_is_an_overload(spark: SparkSession, pipeline: Pipeline) -> None:
    def die(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    error = raised_error(lambda: map_in_arrow(spark.range(3), die, "id long").collect(), pipeline)
    assert isinstance(error, EngineOverloaded)
    assert "Python worker" in error.problem


def test_out_of_memory_is_an_overload(spark: SparkSession, pipeline: Pipeline) -> None:
    jvm: Any = spark._jvm
    arrays = jvm.java.lang.reflect.Array
    # More than the heap of any test, and less than the maximum length of an array.
    error = raised_error(lambda: arrays.newInstance(jvm.java.lang.Class.forName("[J"), (1 << 31) - 10), pipeline)
    assert isinstance(error, EngineOverloaded)
    assert "memory" in error.problem


def test_conflict_with_another_writer_is_contention(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> None:
    path = delta_table(spark, tmp_path / "t")
    table = Table(spark, str(path))
    files = list(table.files().values())
    transaction = table._transaction(files)
    spark.sql(f"DELETE FROM delta.`{path}`")
    error = raised_error(
        lambda: table._commit_actions(transaction, [], files, [f.action.remove() for f in files], {}), pipeline
    )
    assert isinstance(error, Contended)
    assert error.retried


@pytest.mark.parametrize("damage", ["data file", "log file", "corrupt data", "corrupt log"])
def test_missing_or_damaged_files_are_damage(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path, damage: str
) -> None:
    path = delta_table(spark, tmp_path / "t")
    delta_table(spark, tmp_path / "other")
    spark.range(5).write.format("delta").mode("append").save(str(path))
    clear_delta_cache(spark)
    place = path / "_delta_log" if "log" in damage else path
    file = sorted(place.glob("*.parquet" if "data" in damage else "*.json"))[0]
    if "corrupt" in damage:
        file.write_bytes(b"no such thing")
    else:
        file.unlink()
    error = raised_error(lambda: rows(spark, path), pipeline)
    assert isinstance(error, LakehouseDamaged)
    assert (error.exit_code, error.retried) == (EXIT_USER, False)
    assert (path.name in error.problem) or (str(pipeline.lakehouse) in error.problem)


def test_missing_table_is_damage(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> None:
    assert isinstance(raised_error(lambda: rows(spark, tmp_path / "none"), pipeline), LakehouseDamaged)


def test_table_of_a_newer_delta_is_refused(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> None:
    path = delta_table(spark, tmp_path / "t")
    commit = path / "_delta_log" / f"{0:020}.json"
    features = {"readerFeatures": ["martian"], "writerFeatures": ["martian"]}
    newer = json.dumps({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    lines = [newer if "protocol" in json.loads(line) else line for line in commit.read_text().splitlines()]
    commit.write_text("\n".join(lines))
    clear_delta_cache(spark)
    error = raised_error(lambda: rows(spark, path), pipeline)
    assert isinstance(error, LakehouseDamaged)
    assert "features" in error.problem


def test_full_disk_is_refused_storage(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=200k") as disk:
        on_disk = pipeline.model_copy(update={"lakehouse": str(disk / "lakehouse")})
        many = spark.range(100_000).select(F.rand().alias("x"))
        error = raised_error(lambda: many.write.format("delta").save(str(disk / "lakehouse" / "t")), on_disk)
    assert isinstance(error, StorageRefused)
    assert "is full" in error.problem


def test_read_only_lakehouse_is_refused_storage(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=2m,ro") as disk:
        on_disk = pipeline.model_copy(update={"lakehouse": str(disk / "lakehouse")})
        error = raised_error(lambda: delta_table(spark, disk / "lakehouse" / "t"), on_disk)
    assert isinstance(error, StorageRefused)
    assert "refuses this user" in error.problem


def test_missing_jar_of_a_storage_is_named(spark: SparkSession, pipeline: Pipeline) -> None:
    error = raised_error(lambda: spark.read.format("delta").load("s3a://bucket/t").collect(), pipeline)
    assert isinstance(error, PrerequisiteMissing)
    assert "hadoop-aws" in error.remedy


@pytest.mark.parametrize(
    ("what", "condition"),
    [
        (lambda spark: spark.range(1).select("nope"), "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        (lambda spark: spark.sql("selec"), "PARSE_SYNTAX_ERROR"),
        (lambda spark: spark.sql(f"SELECT CAST('{PERSONAL}' AS int)").collect(), "CAST_INVALID_INPUT"),
        (lambda spark: spark.sql("SELECT 1 / 0").collect(), "DIVIDE_BY_ZERO"),
    ],
)
def test_unknown_failure_is_named_by_its_condition(
    spark: SparkSession, pipeline: Pipeline, what: Callable[[SparkSession], object], condition: str
) -> None:
    error = raised_error(lambda: what(spark), pipeline)
    assert type(error) is RunFailed
    assert condition in error.problem
    assert "report it" in error.remedy


def test_python_classes_of_the_table_exist() -> None:
    """They are named by text, because importing their libraries would slow every command."""
    named = [c for f in FAILURES for c in f.classes if c.startswith(("psycopg", "sqlalchemy", "requests", "botocore"))]
    assert len(named) >= 7
    for name in named:
        module, _, kind = name.rpartition(".")
        assert issubclass(getattr(importlib.import_module(module), kind), Exception)


def test_worker_functions_use_map_in_arrow() -> None:
    """Other ways to run Python in workers lose the class of an exception."""
    root = Path(__file__).parents[2] / "ingest"
    doors = re.compile(r"\.(mapIn|applyIn|mapPartitions|foreach\w*|udf)\w*\(|pandas_udf|F\.udf")
    calls = {f.name for f in root.rglob("*.py") if doors.search(f.read_text(encoding="utf-8"))}
    assert calls == {"arrow_tasks.py"}
