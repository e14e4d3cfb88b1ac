"""The environment of each contender: a Python with its PySpark, jars and session properties.

The table formats support only older versions of Spark, so each has the newest PySpark that it works with, in an
environment that is created at the first use (`.venv-peers/<version>`). All sessions have the same cores, memory,
garbage collector and shuffle settings; other properties are those that a format needs.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from ingest.jvm.jit_options import PATIENT_COMPILER
from tests.bench import RESULTS
from tests.bench.contenders import Contender

_FOLDER = RESULTS.parent / ".venv-peers"
_CATALOG = "spark.sql.catalog.peer"
_FILES_WITH_A_SCHEME = {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem"}
"""These formats need a file system with a scheme, which the raw local one doesn't have."""
_JAVA_OPTIONS = f"-XX:+UseParallelGC {PATIENT_COMPILER}"
"""Those of `ingest.spark.session`, which can't be imported with an older PySpark."""


@dataclass(frozen=True)
class Environment:
    """`made`: module and class of the contender. `pyspark`: its version; None: the project's. `jars`: coordinates."""

    made: str
    pyspark: str | None = None
    jars: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    def contender(self, spark: SparkSession, folder: Path) -> Contender:
        """Returns a new contender with an empty table."""
        module, _, name = self.made.partition(":")
        made: Contender = getattr(importlib.import_module(f"tests.bench.{module}"), name)(spark, folder)
        return made

    def python(self) -> str:
        """Returns the interpreter. Creates the environment if it doesn't exist."""
        if self.pyspark is None:
            return sys.executable
        folder = _FOLDER / self.pyspark
        python = folder / "bin" / "python"
        if not (folder / ".complete").exists():
            venv.create(folder, clear=True, with_pip=True)
            wanted = [f"pyspark=={self.pyspark}", "psutil"]
            subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
            (folder / ".complete").touch()
        return str(python)

    @contextmanager
    def session(self, name: str, more: Mapping[str, str]) -> Iterator[SparkSession]:
        """Yields a session, and stops it at the end."""
        if self.pyspark is None:
            from ingest.spark.session import running

            with running(name, more) as spark:
                yield spark
            return
        builder = SparkSession.builder.appName(name).master(f"local[{os.cpu_count()}]")
        for key, value in {**_like_ours(), **self._jars(), **self.properties, **more}.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()

    def _jars(self) -> dict[str, str]:
        if not self.jars:
            return {}
        mirror = os.environ.get("INGEST_IVY_SETTINGS")
        return {"spark.jars.packages": ",".join(self.jars)} | ({"spark.jars.ivySettings": mirror} if mirror else {})


def _like_ours() -> dict[str, str]:
    """Returns the properties of `ingest.spark.session` that don't concern Delta."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(os.cpu_count()),
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.buffer.pageSize": "1m",
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


CONTENDERS = {
    "ingest": Environment("on_delta:Ingest"),
    "naive": Environment("on_delta:NaiveDelta"),
    "naive-tables": Environment("on_delta:NaiveTables"),
    "iceberg": Environment(
        "peers:Iceberg",
        "4.1.4",
        ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",),
        {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            _CATALOG: "org.apache.iceberg.spark.SparkCatalog",
            f"{_CATALOG}.type": "hadoop",
            **_FILES_WITH_A_SCHEME,
        },
    ),
    "paimon": Environment(
        "peers:Paimon",
        "3.5.9",
        ("org.apache.paimon:paimon-spark-3.5:0.9.0",),
        {
            "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
            _CATALOG: "org.apache.paimon.spark.SparkCatalog",
        },
    ),
    "hudi": Environment(
        "peers:Hudi",
        "3.5.9",
        ("org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",),
        {
            "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
            **_FILES_WITH_A_SCHEME,
        },
    ),
    "delta-rs": Environment("peers:DeltaRs"),
}
