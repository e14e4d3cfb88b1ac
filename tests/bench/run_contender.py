"""Runs one contender in its own process: loads the table, merges batches, compares the result with the expected rows.
Prints one JSON object."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.bench.contenders import Contender
from tests.bench.cpu_phases import phases, properties
from tests.bench.environments import CONTENDERS
from tests.bench.prepared import Prepared
from tests.bench.timing import Timing, measure


def run(
    spark: SparkSession, contender: Contender, prepared: Prepared, batches: int, warm: int, at_once: int
) -> dict[str, Any]:
    """Returns the times of one run, per batch of the workload. The first `warm` batches are not in the medians.
    `at_once`: the number of batches that are merged as one."""
    with measure() as loading:
        for part in prepared.before(spark):
            contender.load(part)
    groups = [range(n, min(n + at_once, batches)) for n in range(0, batches, at_once)]
    first = [group for group in groups if group.start < warm]
    figures, windows = [], []
    # Enqueued in two parts: a contender that prefetches must not see timed batches while it warms up.
    for waiting in (first, groups[len(first) :]):
        for group in waiting:
            contender.enqueue(prepared.changes(spark, group))
        for group in waiting:
            begun = time.time()
            with measure() as several:
                contender.apply()
            windows += [(begun, time.time())] * len(group)
            figures += [Timing(several.wall / len(group), several.cpu / len(group))] * len(group)
    expected, found = prepared.result(spark), contender.rows()
    missing, extra = expected.exceptAll(found).count(), found.exceptAll(expected).count()
    # If many batches are merged at once, the first such group warms up.
    warm = sum(map(len, first))
    timed = figures[warm:] or figures
    return {
        "load": {"wall": loading.wall, "cpu": loading.cpu},
        "wall": [f.wall for f in figures],
        "cpu": [f.cpu for f in figures],
        "median": {k: statistics.median(getattr(f, k) for f in timed) for k in ("wall", "cpu")},
        "mean": {k: statistics.mean(getattr(f, k) for f in timed) for k in ("wall", "cpu")},
        "missing": missing,
        "extra": extra,
        "windows": windows[warm:],
        "warm": warm,
    }


def main() -> None:
    """Arguments: name prepared batches warm at_once memory [where]."""
    name, prepared, batches, warm, at_once, memory, *where = sys.argv[1:]
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
    try:
        logged = properties(folder / "events") if where else {}
        wanted = CONTENDERS[name]
        with wanted.session(f"bench {name}", {"spark.driver.memory": memory, **logged}) as spark:
            contender = wanted.contender(spark, folder)
            found = run(spark, contender, Prepared(Path(prepared)), int(batches), int(warm), int(at_once))
            found["spark"] = spark.version
        windows = found.pop("windows")
        if where:
            timed = slice(found["warm"], None)
            found["where"] = phases(folder / "events", windows, sum(found["wall"][timed]), sum(found["cpu"][timed]))
            found["where"] = {name: seconds / len(windows) for name, seconds in found["where"].items()}
        sys.stdout.write(json.dumps(found) + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
