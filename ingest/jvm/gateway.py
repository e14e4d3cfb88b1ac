"""PySpark's connection to the JVM of its driver."""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

_LOOKED_UP = {
    "functions": "org.apache.spark.sql.functions",
    "PythonUtils": "org.apache.spark.api.python.PythonUtils",
    "PythonSQLUtils": "org.apache.spark.sql.api.python.PythonSQLUtils",
}


def connect_to_jvm() -> None:
    """Connects to the JVM of `spark-submit`, or starts one: before that, a `SparkConf` is empty."""
    SparkContext._ensure_initialized()


def cache_classes(session: SparkSession) -> None:
    """Caches the classes that PySpark looks up by name for each expression, for which py4j searches all jars."""
    jvm: Any = session.sparkContext._jvm
    for short, name in _LOOKED_UP.items():
        vars(jvm)[short] = vars(jvm)[name] = getattr(jvm, name)
    for member in dir(jvm.functions):
        vars(jvm.functions)[member] = getattr(jvm.functions, member)


def silence_lost_connections() -> None:
    """Silences the tracebacks that py4j logs when Spark's process dies, although it raises."""
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def jvm_process(session: SparkSession) -> subprocess.Popen[bytes] | None:
    """Returns the process that PySpark has started for the driver; None if it was started by the submitter."""
    process: subprocess.Popen[bytes] | None = getattr(session.sparkContext._gateway, "proc", None)
    return process


def is_stopped(session: SparkSession) -> bool:
    """Returns True if the session's context was stopped. Raises `causes.JVM_ENDED` without a JVM."""
    return bool(session.sparkContext._jsc.sc().isStopped())
