"""The SparkSession that the project's jobs run in; made once at the edge and passed in from there."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from ingest.errors import EngineDied
from ingest.jvm.class_archive import is_writing, java_options
from ingest.jvm.constructors import require_versions
from ingest.jvm.jars import require_java
from ingest.jvm.jit_options import PATIENT_COMPILER
from ingest.jvm.library import is_enabled, session_jars
from ingest.jvm.output import engine_output
from ingest.spark import local_disk
from ingest.spark.hadoop_settings import forget_origins
from ingest.spark.settings import (
    EVERYWHERE,
    from_defaults_file,
    from_submit_arguments,
    local_cores,
    on_one_machine,
    resolved,
)

_SMALL_JVM = "-XX:+UseSerialGC"
SMALL = {
    # For many plans over a handful of rows each, such as cases and tests: tasks, compiled plans and an optimising
    # compiler cost more there than they save. The results are the same.
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # One process at a time writes these: it needs no rename into the log, and no checksum of a table's state.
    "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    # Of tables touched in the last hour, with their plans; otherwise of 10,000: a gigabyte for a thousand small tables.
    "spark.databricks.delta.delta.log.cacheSize": "64",
    # Otherwise a hash table of one row takes a megabyte, which stays until the collector finds it.
    "spark.buffer.pageSize": "64k",
    "spark.driver.extraJavaOptions": f"{_SMALL_JVM} {PATIENT_COMPILER}",
}
SHORT_LIVED = SMALL | {
    # A process that lives for a minute is over before an optimising compiler has paid for itself. The other one alone
    # is given too little room for its code.
    "spark.driver.extraJavaOptions": f"{_SMALL_JVM} -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    # It opens more tables than it commits to: with a checksum Delta needs no query for the columns of each.
    "spark.databricks.delta.writeChecksumFile.enabled": "true",
}
_LOOKED_UP = {
    "functions": "org.apache.spark.sql.functions",
    "PythonUtils": "org.apache.spark.api.python.PythonUtils",
    "PythonSQLUtils": "org.apache.spark.sql.api.python.PythonSQLUtils",
}
_PLAN_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Where PySpark tells of a failure by its whole plan, with the values in it, beside raising it."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CLASS_PATH = "spark.driver.extraClassPath"
_JARS = "spark.jars"
_LOG4J = Path(__file__).with_name("log4j2.properties")


def spark_session(name: str, properties: Mapping[str, str] | None = None, master: str | None = None) -> SparkSession:
    """Returns a session with Delta and Kafka. `properties`: of the pipeline's file (`session_settings` says who wins).

    Under `spark-submit` the master and the jars are what the submitter set. Raises ConfigError for a setting on which
    results depend."""
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    defaults = from_defaults_file()
    if is_submitted:
        # Before there is a JVM a `SparkConf` is empty.
        SparkContext._ensure_initialized()
        # What `--conf` and the file of defaults say stands in the JVM by now; that both say alike tells nothing.
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
        cluster = local_cores(master) is None
        settings |= {"spark.master": master, **_java_settings({**defaults, **settings, **submitted}, cluster)}
    builder: SparkSession.Builder = SparkSession.builder
    if submitted.get("spark.app.name") in (None, Path(sys.argv[0]).name):
        # Without `--name` Spark takes the name of the script.
        builder = builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    # The writer of the archive waits until the JVM closes the output that it inherits from this process.
    with nullcontext() if is_writing() else engine_output():
        session = builder.getOrCreate()
        if not is_submitted:
            forget_origins(session)
    _remember(session.sparkContext._jvm)
    # Where Spark's process dies py4j logs a trace beside raising it.
    logging.getLogger().addFilter(_is_not_of_py4j)
    for logger in _PLAN_LOGGERS:
        PySparkLogger.getLogger(logger).disabled = True
    # What is there by now stays: Python's collector, which is called for at each slice, needn't look at it again.
    gc.collect()
    gc.freeze()
    return session


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _own_process(has_library: bool) -> dict[str, str]:
    """Returns the settings of a JVM that this process starts."""
    return {
        "spark.driver.memory": "2g",
        # A collector that works beside the program takes cores that the program needs.
        _JAVA_OPTIONS: f"-XX:+UseParallelGC {PATIENT_COMPILER}",
        **local_disk.properties(has_library),
        # Spark makes this folder though nothing is kept there: not where the command is run.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "ingest-warehouse"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def _java_settings(settings: Mapping[str, str], cluster: bool) -> dict[str, str]:
    """Returns the JVM's options and class path: the project's first, then those of `settings`.

    `cluster`: executors are other processes, to which Spark sends the jars."""
    log4j = f"-Dlog4j2.configurationFile=file:{_LOG4J}"
    # On the class path rather than in spark.jars: of these alone the JVM takes archived classes.
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
    """A session for as long as one command needs it. Raises EngineDied where Spark's process ends before."""
    session = spark_session(name, properties)
    process: subprocess.Popen[bytes] | None = getattr(session.sparkContext._gateway, "proc", None)
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
        # There is nothing to stop, and nobody to say so to, where it has ended.
        if process is None or process.poll() is None:
            session.stop()


def is_running(session: SparkSession) -> bool:
    """Whether Spark still takes work: its process may have been killed, or its cluster may have ended it."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return False


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    """The code with which a process has ended. Its connections break a moment before."""
    try:
        return process.wait(0.5)
    except subprocess.TimeoutExpired:
        return None


def _remember(jvm: Any) -> None:
    """What PySpark looks up by name each time it writes down an expression, and the JVM in all jars: asked once."""
    for short, name in _LOOKED_UP.items():
        vars(jvm)[short] = vars(jvm)[name] = getattr(jvm, name)
    for member in dir(jvm.functions):
        vars(jvm.functions)[member] = getattr(jvm.functions, member)
