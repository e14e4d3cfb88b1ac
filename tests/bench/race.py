"""One contender's run in a process of its own: the table is loaded, batches are taken in, the result is held against
what it must be. Prints one JSON object."""

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

from tests.bench.clock import Taken, taken
from tests.bench.contenders import Contender
from tests.bench.environments import CONTENDERS
from tests.bench.prepared import Prepared
from tests.bench.where import phases, properties


def run(
    spark: SparkSession, contender: Contender, prepared: Prepared, batches: int, warm: int, at_once: int
) -> dict[str, Any]:
    """The figures of one run, by batch of the workload. The first `warm` batches are not in the medians. `at_once`: so
    many batches are handed over as one."""
    with taken() as loading:
        for part in prepared.before(spark):
            contender.load(part)
    groups = [range(n, min(n + at_once, batches)) for n in range(0, batches, at_once)]
    first = [group for group in groups if group.start < warm]
    figures, windows = [], []
    # Who looks ahead while it warms up sees nothing of what is timed.
    for waiting in (first, groups[len(first) :]):
        for group in waiting:
            contender.hand_over(prepared.changes(spark, group))
        for group in waiting:
            begun = time.time()
            with taken() as several:
                contender.apply()
            windows += [(begun, time.time())] * len(group)
            figures += [Taken(several.wall / len(group), several.cpu / len(group))] * len(group)
    expected, found = prepared.result(spark), contender.rows()
    missing, extra = expected.exceptAll(found).count(), found.exceptAll(expected).count()
    # Who takes many at once is warm after the first of them.
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
    """`name prepared batches warm at_once memory [where]`, as `make bench` calls it."""
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
