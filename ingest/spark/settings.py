"""The settings of a session: whoever sets one explicitly wins, and the project's fill what is not set.

From weak to strong: the project's own, `spark-defaults.conf`, the pipeline's file, what the submitter sets
(`spark-submit --conf`, `PYSPARK_SUBMIT_ARGS`). Some of the project's can't be changed: results depend on them.
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
    # Times are UTC and names are what they are, on every machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    # Times as every reader knows them. By default Spark writes nanoseconds, which others read into 64 bits: those
    # reach from 1677 to 2262, and a "for ever" in 9999 becomes another year. They take longer to write, too.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Nobody may set these otherwise."""

_DELTA = "io.delta.sql.DeltaSparkSessionExtension"
_EXTENSIONS = "spark.sql.extensions"
EVERYWHERE = REQUIRED | {
    _EXTENSIONS: _DELTA,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Otherwise each commit writes down all files of a small table beside itself: two thirds of a stream's log.
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    # Pages are what a reader of a few keys skips: of the default of 20,000 rows nearly each holds one.
    "spark.hadoop.parquet.page.row.count.limit": "1000",
    # A row group is what a task reads, whole: a batch that one task wrote is read by several.
    "spark.hadoop.parquet.block.size": str(32 << 20),
    # A method of more bytes is never compiled by the JVM: Spark shall make several of it.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # What lies in one partition was put there; how large it is Spark only guesses, and would share it out again.
    "spark.sql.maxSinglePartitionBytes": "1t",
    # A batch of a few tables has more generated classes than the default of 100: each would be compiled anew.
    "spark.sql.codegen.cache.maxEntries": "4000",
    # Texts of plans hold values of rows.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.debug.maxToStringFields": "0",
    # Spark checks its own optimiser after each of its rules, which is a tenth of the work on a small plan.
    "spark.sql.lightweightPlanChangeValidation": "false",
    # Spark derives from a projection what holds of each of its columns, in time that grows faster than their number: of
    # 1,200 most of a minute for each plan. What the plans here need of that they say themselves.
    "spark.sql.constraintPropagation.enabled": "false",
    # Otherwise every expression that is written down in Python captures two stack traces.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""On one machine and on a cluster."""


def on_one_machine(cores: int) -> dict[str, str]:
    """What fits a master `local[…]`. On a cluster Spark's own values hold, or the user's."""
    return {
        # Delta's default of 50 tasks per snapshot costs seconds on a small machine.
        "spark.databricks.delta.snapshotPartitions": str(cores),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.ui.enabled": "false",
        # What the page would show of past jobs and plans.
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "10",
        # Of a few large tasks the last one is waited for by all cores but one. Files of a few kilobytes are no reason
        # for a task.
        "spark.sql.files.maxPartitionBytes": str(16 << 20),
        "spark.sql.files.openCostInBytes": str(1 << 20),
        # One machine gains nothing by planning anew between stages, and a small batch pays for it.
        "spark.sql.adaptive.enabled": "false",
        # A hash table takes a page, were it for one row; by default that is 16 MB to be cleared and collected.
        "spark.buffer.pageSize": "1m",
        # Of what attempts of a task wrote, should they differ: here none is made again alone.
        "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
        "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    }


def resolved(
    project: Mapping[str, str],
    file: Mapping[str, str],
    submitted: Mapping[str, str],
    defaults: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """What is to be set on top of what `submitted` and `defaults` (of `spark-defaults.conf`) have set already.

    `file`: the pipeline's. Raises ConfigError where results would depend on a setting."""
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
    """Delta's extension beside others that are set."""
    others = [e.strip() for e in settings.get(_EXTENSIONS, "").split(",") if e.strip()]
    return {_EXTENSIONS: ",".join(dict.fromkeys((*others, _DELTA)))}


def from_submit_arguments(arguments: str) -> dict[str, str]:
    """What `PYSPARK_SUBMIT_ARGS` sets by `--conf`."""
    words = shlex.split(arguments)
    pairs = (b.partition("=") for a, b in pairwise(words) if a in ("--conf", "-c"))
    return {name: value for name, _, value in pairs}


def from_defaults_file(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What `spark-defaults.conf` sets, where there is one."""
    home = Path(environment.get("SPARK_HOME") or pyspark.__path__[0])
    file = Path(environment.get("SPARK_CONF_DIR") or home / "conf") / "spark-defaults.conf"
    if not file.is_file():
        return {}
    lines = (re.match(r"\s*([^#!\s=:][^\s=:]*)[\s=:]+(.*?)\s*$", line) for line in file.read_text("utf-8").splitlines())
    return {line[1]: line[2] for line in lines if line}


def local_cores(master: str) -> int | None:
    """How many tasks run at a time under a master `local[…]`; None where it is another."""
    found = re.fullmatch(r"local(?:\[\s*(\*|\d+)\s*(?:,\s*\d+\s*)?\])?", master)
    if found is None:
        return None
    if found[1] is None:
        return 1
    return (os.cpu_count() or 2) if found[1] == "*" else int(found[1])
