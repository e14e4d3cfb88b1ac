"""`make bench PART=shredding`: times the capture of events with two of ten columns sealed, with new and with existing
data keys, and the reading of decrypted rows. Prints medians of runs in one process."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

from ingest.changelog.envelope import events
from ingest.config import Pipeline
from ingest.lakehouse.bronze import Bronze, CaptureState
from ingest.lakehouse.silver import Silver
from ingest.pipeline.composition import Run, bronze_of, rules_of
from ingest.pipeline.shredding import decrypted_rows, sealing_of
from ingest.spark.session import running
from tests.bench import RESULTS, erasure
from tests.bench.timing import Timing, measure
from tests.bench.workload import TABLE, Workload

SEALED = ("email", "note")
Seal = Callable[[DataFrame], DataFrame]


def pipeline(folder: Path) -> Pipeline:
    """Returns the pipeline of `erasure`, with two shredded columns."""
    made = erasure.pipeline(folder)
    master = folder / "master.key"
    master.write_text("1 " + "a5" * 32, encoding="ascii")
    master.chmod(0o600)
    document = made.model_dump(by_alias=True, exclude_unset=True)
    document["privacy"]["shredding"] = {"key_store": f"sqlite:///{folder}/keys.db", "master_key_file": str(master)}
    document["tables"][TABLE]["shred"] = SEALED
    return Pipeline.model_validate(document)


def run_benchmark(rows: int, turns: int, console: Console) -> None:
    """Captures and reads `rows` events, of at most `erasure.CUSTOMER_COUNT` customers, `turns` times."""
    found: dict[str, list[Timing]] = {}

    def timed(name: str, what: Callable[[], object]) -> None:
        with measure() as clock:
            what()
        found.setdefault(name, []).append(Timing(clock.wall, clock.cpu))

    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        made = pipeline(Path(folder))
        with running("bench shredding", {"spark.driver.memory": "4g"}) as spark:
            raw = f"{folder}/raw"
            Workload(rows, 1, 1).snapshot(spark).write.parquet(raw)
            read = events(spark.read.parquet(raw), rules_of(made).naming)

            def captured(name: str, seal: Seal) -> None:
                # The lookup of keys is a separate Spark job, which runs when sealing is planned.
                Bronze(spark, f"{folder}/{name}").append(seal(read), CaptureState(1, {}))

            def all_read(rows: Callable[[], DataFrame]) -> None:
                rows().write.format("noop").mode("overwrite").save()

            for turn in range(turns + 1):
                Path(folder, "keys.db").unlink(missing_ok=True)
                seal = sealing_of(made)
                ways: dict[str, Seal] = {
                    "not sealed": lambda part: part,
                    "sealed, new keys": seal,
                    "sealed, known keys": seal,
                }
                for name, way in ways.items():
                    timed(name, partial(captured, f"{name} {turn}", way))
            bronze_of(spark, made).append(seal(read), CaptureState(1, {}))
            run = Run(spark, made, ("merge",))
            while not run.step().idle:
                pass
            silver = Silver(spark, made.layout.silver(made.name, TABLE))
            for _ in range(turns + 1):
                timed("read sealed", partial(all_read, silver.rows))
                timed("read decrypted", partial(all_read, partial(decrypted_rows, spark, made, TABLE)))
            wrong = decrypted_rows(spark, made, TABLE).where("email is null or email like 'sealed:%'").count()
    _show(found, rows, wrong, console)


def _show(found: dict[str, list[Timing]], rows: int, wrong: int, console: Console) -> None:
    """Prints the medians without the first run, which warms up."""
    table = Table("what", "CPU s", "wall s", "rows/s", title=f"{rows:,} rows, {wrong} wrong")
    medians = {
        name: {k: statistics.median(getattr(one, k) for one in turns[1:]) for k in ("cpu", "wall")}
        for name, turns in found.items()
    }
    for name, one in medians.items():
        table.add_row(name, f"{one['cpu']:.1f}", f"{one['wall']:.1f}", f"{rows / one['wall']:,.0f}")
    console.print(table)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"shredding-{rows}-{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    file.write_text(json.dumps({"rows": rows, "wrong": wrong, "medians": medians}, indent=1) + "\n", encoding="utf-8")
    console.print(f"[dim]{file}")
