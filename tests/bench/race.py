"""One contender's run in a process of its own: the table is loaded, batches are taken in, the result is held against
what it must be. Prints one JSON object."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from ingest.session import running
from tests.bench.clock import Taken, taken
from tests.bench.contenders import Contender, Ingest, NaiveDelta
from tests.bench.workload import Workload

_PART = 1_000_000
"""So many rows of the table before are loaded at once."""
CONTENDERS = {"ingest": Ingest, "naive": NaiveDelta}


def run(
    spark: SparkSession, contender: Contender, workload: Workload, folder: Path, warm: int, at_once: int
) -> dict[str, object]:
    """The figures of one run, by batch of the workload. The first `warm` batches are not in the medians. `at_once`: so
    many batches are handed over as one."""
    with taken() as loading:
        for after in range(0, workload.rows, _PART):
            contender.load(workload.snapshot(spark, after, min(after + _PART, workload.rows)))
    raw = str(folder / "raw")
    workload.changes(spark).repartition("batch").sortWithinPartitions("offset").write.partitionBy("batch").parquet(raw)
    groups = [range(n, min(n + at_once, workload.batches)) for n in range(0, workload.batches, at_once)]
    for group in groups:
        contender.hand_over(spark.read.parquet(*(f"{raw}/batch={number}" for number in group)))
    figures = []
    for group in groups:
        with taken() as several:
            contender.apply()
        figures += [Taken(several.wall / len(group), several.cpu / len(group))] * len(group)
    expected, found = workload.result(spark), contender.rows()
    missing, extra = expected.exceptAll(found).count(), found.exceptAll(expected).count()
    timed = figures[warm:]
    return {
        "load": {"wall": loading.wall, "cpu": loading.cpu},
        "wall": [f.wall for f in figures],
        "cpu": [f.cpu for f in figures],
        "median": {k: statistics.median(getattr(f, k) for f in timed) for k in ("wall", "cpu")},
        "missing": missing,
        "extra": extra,
    }


def main() -> None:
    """`name rows batch batches keys warm at_once memory`, as `make bench` calls it."""
    name, rows, batch, batches, keys, warm, at_once, memory = sys.argv[1:9]
    workload = Workload(int(rows), int(batch), int(batches), keys)  # type: ignore[arg-type]
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
    try:
        with running(f"bench {name}", {"spark.driver.memory": memory}) as spark:
            found = run(spark, CONTENDERS[name](spark, folder), workload, folder, int(warm), int(at_once))
        sys.stdout.write(json.dumps(found) + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
