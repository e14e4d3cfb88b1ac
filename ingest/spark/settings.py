"""The settings of a session. Explicit settings take precedence over the project's.

From weak to strong: the project's, `spark-defaults.conf`, the pipeline's file, the submitter's (`spark-submit --conf`,
`PYSPARK_SUBMIT_ARGS`). Some of the project's can't be changed, because results depend on them.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pyspark

from ingest.errors import ConfigError

_log = logging.getLogger(__name__)

REQUIRED = {
    # Times are in UTC, and names are case-sensitive, on every machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    # By default Spark writes INT96, which other readers convert to nanoseconds in 64 bits: those reach from 1677 to
    # 2262, so that the year 9999 becomes another one. INT96 takes longer to write, too.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Settings that can't be changed."""

_DELTA = "io.delta.sql.DeltaSparkSessionExtension"
_EXTENSIONS = "spark.sql.extensions"
EVERYWHERE = REQUIRED | {
    _EXTENSIONS: _DELTA,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # By default the checksum of each commit lists all files of a small table: two thirds of a stream's log.
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    # Readers of a few keys skip pages: with the default of 20,000 rows nearly each page holds one.
    "spark.hadoop.parquet.page.row.count.limit": "1000",
    # A task reads whole row groups: with small ones several tasks share a batch that one task wrote.
    "spark.hadoop.parquet.block.size": str(32 << 20),
    # The JVM never compiles a method of more bytes: beyond it Spark generates several.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # Rows in one partition are there on purpose; Spark would shuffle them by an estimate of their size.
    "spark.sql.maxSinglePartitionBytes": "1t",
    # A batch of a few tables generates more classes than the default of 100: each would be compiled anew.
    "spark.sql.codegen.cache.maxEntries": "4000",
    # The texts of plans contain values of rows.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.debug.maxToStringFields": "0",
    # Spark validates the plan after each rule of its optimiser, a tenth of the time of a small plan.
    "spark.sql.lightweightPlanChangeValidation": "false",
    # Spark infers constraints of a projection's columns in time that grows faster than their number: with 1,200
    # columns most of a minute per plan. Plans here state the constraints that they need.
    "spark.sql.constraintPropagation.enabled": "false",
    # By default every expression in Python captures two stack traces.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""The project's settings on one machine and on a cluster."""


def on_one_machine(cores: int) -> dict[str, str]:
    """Returns the project's further settings for a master `local[…]`. A cluster has Spark's defaults, or the user's."""
    return {
        # Delta's default of 50 tasks per snapshot costs seconds on a small machine.
        "spark.databricks.delta.snapshotPartitions": str(cores),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.ui.enabled": "false",
        # Past jobs and plans that Spark keeps for its UI.
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "10",
        # With a few large tasks all cores but one wait for the last. Files of a few kilobytes share a task.
        "spark.sql.files.maxPartitionBytes": str(16 << 20),
        "spark.sql.files.openCostInBytes": str(1 << 20),
        # Planning anew between stages gains nothing on one machine, and costs a small batch.
        "spark.sql.adaptive.enabled": "false",
        # A hash table takes at least a page; by default 16 MB to be cleared and collected.
        "spark.buffer.pageSize": "1m",
        # Checksums that compare the attempts of a task: on one machine no task is repeated alone.
        "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
        "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    }


def resolved(
    project: Mapping[str, str],
    file: Mapping[str, str],
    submitted: Mapping[str, str],
    defaults: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Returns the settings to make besides those of `submitted` and `defaults` (`spark-defaults.conf`).

    `file`: the pipeline's. Raises ConfigError for a setting that would change results."""
    for origin, settings in (("the submitter sets", submitted), ("the pipeline's file sets", file)):
        for name, needed in REQUIRED.items():
            if settings.get(name, needed).lower() != needed.lower():
                raise ConfigError(
                    f"{origin} {name} to another value than {needed}, on which the tables' content depends",
                    f"leave {name} out",
                )
    for name in sorted(file.keys() & submitted.keys()):
        if file[name] != submitted[name]:
            _log.warning("%s: the submitter's value stands, the pipeline's file says another", name)
    weak = {k: v for k, v in project.items() if k in REQUIRED or k not in (defaults or {})}
    found = {k: v for k, v in (weak | dict(file)).items() if k not in submitted}
    return found | _with_delta({**(defaults or {}), **file, **submitted})


def _with_delta(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the extensions: those that are set, and Delta's."""
    others = [e.strip() for e in settings.get(_EXTENSIONS, "").split(",") if e.strip()]
    return {_EXTENSIONS: ",".join(dict.fromkeys((*others, _DELTA)))}


def from_submit_arguments(arguments: str) -> dict[str, str]:
    """Returns the settings of `--conf` in `PYSPARK_SUBMIT_ARGS`."""
    words = shlex.split(arguments)
    pairs = (b.partition("=") for a, b in pairwise(words) if a in ("--conf", "-c"))
    return {name: value for name, _, value in pairs}


def from_defaults_file(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the settings of `spark-defaults.conf`, if there is one."""
    home = Path(environment.get("SPARK_HOME") or pyspark.__path__[0])
    file = Path(environment.get("SPARK_CONF_DIR") or home / "conf") / "spark-defaults.conf"
    if not file.is_file():
        return {}
    lines = (re.match(r"\s*([^#!\s=:][^\s=:]*)[\s=:]+(.*?)\s*$", line) for line in file.read_text("utf-8").splitlines())
    return {line[1]: line[2] for line in lines if line}


def local_cores(master: str) -> int | None:
    """Returns the number of concurrent tasks of a master `local[…]`; None for any other master."""
    found = re.fullmatch(r"local(?:\[\s*(\*|\d+)\s*(?:,\s*\d+\s*)?\])?", master)
    if found is None:
        return None
    if found[1] is None:
        return 1
    return (os.cpu_count() or 2) if found[1] == "*" else int(found[1])
