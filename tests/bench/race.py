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
from tests.bench.where import phases, properties
from tests.bench.workload import Workload

_PART = 1_000_000
"""So many rows of the table before are loaded at once."""


def run(
    spark: SparkSession, contender: Contender, workload: Workload, folder: Path, warm: int, at_once: int
) -> dict[str, Any]:
    """The figures of one run, by batch of the workload. The first `warm` batches are not in the medians. `at_once`: so
    many batches are handed over as one."""
    with taken() as loading:
        for after in range(0, workload.rows, _PART):
            contender.load(workload.snapshot(spark, after, min(after + _PART, workload.rows)))
    raw = str(folder / "raw")
    workload.changes(spark).repartition("batch").sortWithinPartitions("offset").write.partitionBy("batch").parquet(raw)
    groups = [range(n, min(n + at_once, workload.batches)) for n in range(0, workload.batches, at_once)]
    first = [group for group in groups if group.start < warm]
    figures, windows = [], []
    # Who looks ahead while it warms up sees nothing of what is timed.
    for waiting in (first, groups[len(first) :]):
        for group in waiting:
            contender.hand_over(spark.read.parquet(*(f"{raw}/batch={number}" for number in group)))
        for group in waiting:
            begun = time.time()
            with taken() as several:
                contender.apply()
            windows += [(begun, time.time())] * len(group)
            figures += [Taken(several.wall / len(group), several.cpu / len(group))] * len(group)
    expected, found = workload.result(spark), contender.rows()
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
    """`name rows batch batches keys warm at_once memory [where]`, as `make bench` calls it."""
    name, rows, batch, batches, keys, warm, at_once, memory, *where = sys.argv[1:]
    workload = Workload(int(rows), int(batch), int(batches), keys)  # type: ignore[arg-type]
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
    try:
        logged = properties(folder / "events") if where else {}
        wanted = CONTENDERS[name]
        with wanted.session(f"bench {name}", {"spark.driver.memory": memory, **logged}) as spark:
            found = run(spark, wanted.contender(spark, folder), workload, folder, int(warm), int(at_once))
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
