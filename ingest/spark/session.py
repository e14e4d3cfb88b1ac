"""Starts the Spark session, which is passed to all other code."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from pyspark import SparkConf
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from ingest.errors import EngineDied
from ingest.jvm.causes import JVM_ENDED
from ingest.jvm.class_archive import is_writing, java_options
from ingest.jvm.constructors import require_versions
from ingest.jvm.gateway import cache_classes, connect_to_jvm, is_stopped, jvm_process, silence_lost_connections
from ingest.jvm.jars import require_java
from ingest.jvm.jit_options import PATIENT_COMPILER
from ingest.jvm.library import is_enabled, session_jars
from ingest.jvm.output import engine_output
from ingest.spark import local_disk
from ingest.spark.settings import (
    EVERYWHERE,
    from_defaults_file,
    from_submit_arguments,
    local_cores,
    on_one_machine,
    resolved,
)
from ingest.spark.spill_folders import own_spill_folders

# Without an optimising compiler, code runs without the counters that it needs, a tenth faster; many plans over few rows
# don't earn its work back. The default code cache is then too small.
_SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=400m"
SMALL = {
    # For many plans over a handful of rows each, as in tests: several tasks and generated code cost more than they
    # save. The results are the same.
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # One process at a time writes these tables: without a rename into the log, and without checksums.
    "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    # By default the logs of 10,000 tables are cached: a gigabyte for a thousand small tables.
    "spark.databricks.delta.delta.log.cacheSize": "64",
    # By default a hash table of one row takes a megabyte until it is collected.
    "spark.buffer.pageSize": "64k",
    "spark.driver.extraJavaOptions": _SMALL_JVM,
}
SHORT_LIVED = SMALL | {
    # It opens more tables than it commits to: from a checksum Delta reads a table's schema without a query.
    "spark.databricks.delta.writeChecksumFile.enabled": "true",
}
_PLAN_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers of PySpark that print a failed plan with the values in it, although the failure is raised."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CLASS_PATH = "spark.driver.extraClassPath"
_JARS = "spark.jars"
_LOG4J = Path(__file__).with_name("log4j2.properties")


def spark_session(name: str, properties: Mapping[str, str] | None = None, master: str | None = None) -> SparkSession:
    """Returns a session with Delta and Kafka. `properties`: of the pipeline's file (see `settings` for precedence).

    Under `spark-submit` master and jars are the submitter's. Raises ConfigError for a setting that would change
    results, PrerequisiteMissing without Java or with other versions of PySpark or Delta."""
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    defaults = from_defaults_file()
    if is_submitted:
        connect_to_jvm()
        # The JVM has the settings of `--conf` and of the defaults file; equal ones are taken for defaults.
        submitted = {k: v for k, v in SparkConf().getAll() if defaults.get(k) != v}
    else:
        submitted = from_submit_arguments(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    properties = properties or {}
    named = master or submitted.get("spark.master") or properties.get("spark.master")
    master = named or f"local[{os.cpu_count() or 2}]"
    project = dict(EVERYWHERE)
    if (cores := local_cores(master)) is not None:
        project |= on_one_machine(cores)
    require_versions()
    if not is_submitted:
        require_java()
        project |= _own_process(is_enabled({**defaults, **properties, **submitted}))
    settings = resolved(project, properties, submitted, defaults)
    if not is_submitted:
        settings |= own_spill_folders({**defaults, **settings, **submitted})
        cluster = local_cores(master) is None
        settings |= {"spark.master": master, **_java_settings({**defaults, **settings, **submitted}, cluster)}
    builder: SparkSession.Builder = SparkSession.builder
    if submitted.get("spark.app.name") in (None, Path(sys.argv[0]).name):
        # Without `--name` Spark takes the name of the script.
        builder = builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    # The writer of the class archive waits until the JVM closes the output that it inherits from this process.
    with nullcontext() if is_writing() else engine_output():
        session = builder.getOrCreate()
    cache_classes(session)
    silence_lost_connections()
    for logger in _PLAN_LOGGERS:
        PySparkLogger.getLogger(logger).disabled = True
    # Objects that exist by now stay: Python's garbage collector, which runs at each slice, can skip them.
    gc.collect()
    gc.freeze()
    return session


def _own_process(has_library: bool) -> dict[str, str]:
    """Returns the settings of a JVM that this process starts."""
    return {
        "spark.driver.memory": "2g",
        # A concurrent collector takes cores that the program needs.
        _JAVA_OPTIONS: f"-XX:+UseParallelGC {PATIENT_COMPILER}",
        **local_disk.properties(has_library),
        # Spark makes this folder, which stays empty, by default in the current folder.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "ingest-warehouse"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def _java_settings(settings: Mapping[str, str], cluster: bool) -> dict[str, str]:
    """Returns the JVM's options and class path: the project's first, then those of `settings`.

    `cluster`: executors are other processes, to which Spark sends the jars."""
    log4j = f"-Dlog4j2.configurationFile=file:{_LOG4J}"
    # On the class path rather than in spark.jars alone: the class archive covers the class path only.
    added = session_jars(settings)
    own = os.pathsep.join(str(path) for path in added)
    return {
        **(_sent_to_executors(added, settings.get(_JARS, "")) if cluster else {}),
        _JAVA_OPTIONS: " ".join(filter(None, (log4j, java_options(added), settings.get(_JAVA_OPTIONS)))),
        _CLASS_PATH: os.pathsep.join(filter(None, (own, settings.get(_CLASS_PATH)))),
    }


def _sent_to_executors(added: Sequence[Path], listed: str) -> dict[str, str]:
    """Returns the property that sends the `added` jars to executors, with those that it lists already."""
    given = [jar.strip() for jar in listed.split(",") if jar.strip()]
    names = {Path(jar).name for jar in given}
    return {_JARS: ",".join([*given, *(str(jar) for jar in added if jar.name not in names)])}


@contextmanager
def running(name: str, properties: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Yields a session and stops it at the end. Raises EngineDied if Spark's process ended before."""
    session = spark_session(name, properties)
    process = jvm_process(session)
    try:
        yield session
    except Exception as error:
        if process is not None and (code := _ended(process)) is not None:
            raise EngineDied(
                f"{name}: Spark's process ended with {code} in the middle of its work",
                "see whether the machine ran out of memory; the same command continues where it stopped",
            ) from error
        raise
    finally:
        # A process that has ended can't be stopped.
        if process is None or process.poll() is None:
            session.stop()


def is_running(session: SparkSession) -> bool:
    """Returns True if Spark still takes work: its process may have been killed, or its cluster may have ended it."""
    try:
        return not is_stopped(session)
    except JVM_ENDED:
        return False


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    """Returns the exit code of a process; None if it runs. Its connections break a moment before it ends."""
    try:
        return process.wait(0.5)
    except subprocess.TimeoutExpired:
        return None
