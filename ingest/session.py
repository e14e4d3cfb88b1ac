"""The SparkSession that the project's jobs run in; made once at the edge and passed in from there."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from ingest import local_disk
from ingest.class_archive import java_options
from ingest.engine_output import engine_output
from ingest.errors import EngineDied
from ingest.hadoop_settings import forget_origins
from ingest.jars import jars, require_java
from ingest.patient_compiler import PATIENT_COMPILER

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
_LOG4J = Path(__file__).with_name("log4j2.properties")


def spark_session(name: str, properties: Mapping[str, str] | None = None, master: str | None = None) -> SparkSession:
    """A session with Delta and Kafka. `properties` are Spark's own and win over the defaults.

    Under `spark-submit` the master and the jars are what the submitter said.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    cores = str(os.cpu_count() or 2)
    defaults = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Times are UTC and names are what they are, on every machine.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.caseSensitive": "true",
        # Delta's default of 50 tasks per snapshot costs seconds on a small machine.
        "spark.databricks.delta.snapshotPartitions": cores,
        "spark.sql.shuffle.partitions": cores,
        # Otherwise each commit writes down all files of a small table beside itself: two thirds of a stream's log.
        "spark.databricks.delta.allFilesInCrc.enabled": "false",
        "spark.ui.enabled": "false",
        # What a page nobody looks at would show of past jobs and plans.
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "10",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        # Pages are what a reader of a few keys skips: of the default of 20,000 rows nearly each holds one.
        "spark.hadoop.parquet.page.row.count.limit": "1000",
        # Times as every reader knows them. By default Spark writes nanoseconds, which others read into 64 bits: those
        # reach from 1677 to 2262, and a "for ever" in 9999 becomes another year. They take longer to write, too.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Of a few large tasks the last one is waited for by all cores but one. Files of a few kilobytes are no reason
        # for a task.
        "spark.sql.files.maxPartitionBytes": str(16 << 20),
        "spark.sql.files.openCostInBytes": str(1 << 20),
        # A row group is what a task reads, whole: a batch that one task wrote is read by several.
        "spark.hadoop.parquet.block.size": str(32 << 20),
        # A method of more bytes is never compiled by the JVM: Spark shall make several of it.
        "spark.sql.codegen.hugeMethodLimit": "8000",
        # What lies in one partition was put there; how large it is Spark only guesses, and would share it out again.
        "spark.sql.maxSinglePartitionBytes": "1t",
        # A batch of a few tables has more generated classes than the default of 100: each would be compiled anew.
        "spark.sql.codegen.cache.maxEntries": "4000",
        # Of each plan that runs Spark writes a text, for a page that nobody looks at: what it has to say, in short.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.debug.maxToStringFields": "0",
        # Spark checks its own optimiser after each of its rules, which is a tenth of the work on a small plan.
        "spark.sql.lightweightPlanChangeValidation": "false",
        # Otherwise every expression that is written down in Python captures two stack traces.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    if not submitted:
        require_java()
        defaults |= {
            # On the class path rather than in spark.jars: of these alone the JVM takes archived classes.
            "spark.driver.extraClassPath": os.pathsep.join(str(path) for path in jars("spark")),
            "spark.driver.memory": "2g",
            # One machine gains nothing by planning anew between stages, and a small batch pays for it; nor from a
            # collector that works beside the program on cores that the program needs.
            "spark.sql.adaptive.enabled": "false",
            _JAVA_OPTIONS: f"-XX:+UseParallelGC {PATIENT_COMPILER}",
            # A hash table takes a page, were it for one row; by default that is 16 MB to be cleared and collected.
            "spark.buffer.pageSize": "1m",
            # Of what attempts of a task wrote, should they differ: here none is made again alone.
            "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
            "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
            # Hadoop's checksums beside local files cost a file each.
            **local_disk.PROPERTIES,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    builder = SparkSession.builder.appName(name)
    if not submitted or master is not None:
        builder = builder.master(master or f"local[{cores}]")
    settings = defaults | dict(properties or {})
    if not submitted:
        logging = f"-Dlog4j2.configurationFile=file:{_LOG4J}"
        settings[_JAVA_OPTIONS] = " ".join(filter(None, (logging, java_options(), settings.get(_JAVA_OPTIONS))))
    for key, value in settings.items():
        builder = builder.config(key, value)
    with engine_output():
        session = builder.getOrCreate()
        if not submitted:
            local_disk.by_direct_calls(session)
            forget_origins(session)
    _remember(session.sparkContext._jvm)
    for logger in _PLAN_LOGGERS:
        PySparkLogger.getLogger(logger).disabled = True
    # What is there by now stays: Python's collector, which is called for at each slice, needn't look at it again.
    gc.collect()
    gc.freeze()
    return session


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
                "see whether the machine ran out of memory; the same command goes on where it stood",
            ) from error
        raise
    finally:
        # There is nothing to stop, and nobody to say so to, where it has ended.
        if process is None or process.poll() is None:
            session.stop()


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
