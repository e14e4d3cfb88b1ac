"""`make soak MINUTES=…`: changes a real Postgres at a steady rate, streams the changes through Debezium and Kafka into
silver, and prints per window what may drift: the lag from a commit in the source to the commit in silver, read from the
tables, and the number of files, the size of logs and the memory at the window's end.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import psutil
import psycopg
import typer
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from ingest.backfill.backfill import Backfill, BackfillRequest
from ingest.changelog.point import Point
from ingest.config import OldVersions, Pipeline
from ingest.demo.lakehouse import LakehouseView
from ingest.lakehouse.accounts import Accounts
from ingest.pipeline.composition import Run, bronze_of
from ingest.quality import compare_with_postgres
from ingest.quality.accounting import audit
from ingest.spark.session import running
from ingest.stack import Stack
from ingest.upkeep.upkeep import upkeep
from tests.bench import RESULTS

NAME = "soak"
TABLE = "shop.orders"
_TICK_SECONDS = 0.1
_SENDS_SECONDS = 10
"""The time that the connector may take for the last commits."""
_DDL = """
CREATE SCHEMA shop;
CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer bigint, amount double precision, status text, quantity int,
                          note text, paid boolean, email text, city text, changed timestamptz DEFAULT now());
"""
_INSERT = """
INSERT INTO shop.orders (id, customer, amount, status, quantity, note, paid, email, city)
SELECT i, mod(i, 1000), i / 7.0, 'open', mod(i, 10), md5(i::text), mod(i, 2) = 0, md5(i::text) || '@example.org',
       'city ' || mod(i, 99) FROM generate_series(%s::bigint, %s) i
"""
_UPDATE = "UPDATE shop.orders SET amount = amount + 1, changed = now() WHERE id = ANY(%s)"
_DELETE = "DELETE FROM shop.orders WHERE id BETWEEN %s AND %s"


@dataclass(frozen=True)
class Window:
    """`heap` and `memory`: megabytes in use by the JVM's heap and by its whole process; `log`: by Delta's logs."""

    minutes: float
    changes: int
    batches: int
    p50: float | None
    p95: float | None
    files: int
    log: float
    heap: float
    memory: float


class Writer(threading.Thread):
    """Writes ten transactions a second: 70 % updates, 15 % inserts, 15 % deletes of the oldest rows."""

    def __init__(self, dsn: str, rows: int, rate: float, stop: threading.Event) -> None:
        super().__init__(name="writer", daemon=True)
        self._dsn, self._rows, self._rate, self._stop_asked = dsn, rows, rate, stop
        self.changes = 0

    def run(self) -> None:
        chance, oldest, newest = random.Random(1), 1, self._rows
        few = max(1, round(self._rate * _TICK_SECONDS * 0.15))
        updates = max(1, round(self._rate * _TICK_SECONDS) - 2 * few)
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            due = time.monotonic()
            while not self._stop_asked.wait(max(0.0, due - time.monotonic())):
                due += _TICK_SECONDS
                with connection.transaction():
                    connection.execute(_DELETE, [oldest, oldest + few - 1])
                    connection.execute(_INSERT, [newest + 1, newest + few])
                    oldest, newest = oldest + few, newest + few
                    chosen = chance.sample(range(oldest, newest + 1), updates)
                    connection.execute(_UPDATE, [chosen])
                self.changes += updates + 2 * few


class Backfiller(threading.Thread):
    """Merges random windows of a few batches of bronze again, one after the other."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, stop: threading.Event) -> None:
        super().__init__(name="backfiller", daemon=True)
        self._spark, self._pipeline, self._stop_asked = spark, pipeline, stop
        self.done = 0
        self.events = 0
        self.failure: Exception | None = None

    def run(self) -> None:
        chance = random.Random(2)
        try:
            while not self._stop_asked.is_set():
                begin = datetime.now(UTC) - timedelta(seconds=chance.uniform(5, 120))
                window = (Point(time=begin), Point(time=begin + timedelta(seconds=chance.uniform(1, 60))))
                backfill = Backfill(self._spark, self._pipeline, BackfillRequest("bronze", *window))
                while not backfill.done:
                    self.events += sum(a.read for a in backfill.step().accounts)
                self.done += 1
        except Exception as failure:  # noqa: BLE001 A thread's failure is the soak's.
            self.failure = failure
            self._stop_asked.set()


class Soak:
    """Runs the pipeline in this thread, the writer and the observer in two others."""

    def __init__(
        self, spark: SparkSession, stack: Stack, folder: Path, old_versions: OldVersions, console: Console
    ) -> None:
        self._spark, self._folder, self._console = spark, folder, console
        kafka = {"bootstrap.servers": stack.kafka.bootstrap_servers}
        source = {"kafka": kafka, "topic_pattern": rf"{NAME}\.shop\..*"}
        lakehouse = str(folder / "lakehouse")
        pipeline = Pipeline.model_validate({"name": NAME, "source": source, "lakehouse": lakehouse})
        self._pipeline = pipeline.model_copy(update={"old_versions": old_versions})
        self._view = LakehouseView(spark, self._pipeline)
        self._stop = threading.Event()
        self._batches = 0
        self.windows: list[Window] = []

    def run(self, dsn: str, rows: int, rate: float, minutes: float, every: float, backfills: bool) -> None:
        while self._view.count(TABLE) < rows:
            Run(self._spark, self._pipeline).available_now(self._stop, lambda _: None)
        writer = Writer(dsn, rows, rate, self._stop)
        looks = threading.Thread(target=self._look, args=(writer, minutes, every), name="looks", daemon=True)
        backfiller = Backfiller(self._spark, self._pipeline, self._stop)
        threads = [writer, looks, *([backfiller] if backfills else [])]
        for thread in threads:
            thread.start()
        with upkeep(self._spark, self._pipeline) as between_batches:
            Run(self._spark, self._pipeline).continuous(self._stop, lambda _: self._count(), between_batches)
        for thread in threads:
            thread.join()
        if backfiller.failure is not None:
            raise backfiller.failure
        if backfills:
            self._console.print(f"meanwhile {backfiller.done} backfills merged {backfiller.events:,} events again")
        self._judge(dsn)

    def _judge(self, dsn: str) -> None:
        """Captures and merges the rest, then checks that silver equals its source and that the accounts balance."""
        for _ in range(_SENDS_SECONDS):
            Run(self._spark, self._pipeline).available_now(threading.Event(), lambda _: None)
            time.sleep(1)
        compared = compare_with_postgres(self._spark, dsn, TABLE, self._view.silver(TABLE), self._folder)
        accounts = Accounts(self._spark, self._pipeline.layout.accounts, NAME).rows()
        audited = audit(bronze_of(self._spark, self._pipeline).rows(), accounts)
        right = compared.equal and not audited.problems and not audited.waiting
        self._console.print(
            f"silver with {compared.silver_rows:,} rows {'equals' if compared.equal else 'DIFFERS from'} its source; "
            f"{audited.merged:,} events are accounted for, {audited.waiting} wait; "
            f"{'; '.join(audited.problems) or 'no gap'}"
        )
        if not right:
            raise typer.Exit(1)

    def _count(self) -> None:
        self._batches += 1

    def _look(self, writer: Writer, minutes: float, every: float) -> None:
        begun, seen_batch, seen = time.monotonic(), self._view.last_batch(), (0, 0)
        try:
            while (time.monotonic() - begun) / 60 < minutes:
                time.sleep(every * 60)
                lag, now = self._view.lag(after=seen_batch), (writer.changes, self._batches)
                seen_batch = self._view.last_batch()
                window = Window(
                    round((time.monotonic() - begun) / 60, 1),
                    now[0] - seen[0],
                    now[1] - seen[1],
                    lag.p50 if lag else None,
                    lag.p95 if lag else None,
                    sum(1 for f in self._folder.rglob("*.parquet") if "_delta_log" not in f.parts),
                    sum(map(_size, self._folder.rglob("_delta_log/*"))) / 1e6,
                    *self._memory(),
                )
                seen = now
                self.windows.append(window)
                self._console.print(", ".join(f"{k} {v}" for k, v in asdict(window).items()))
        finally:
            self._stop.set()

    def _memory(self) -> tuple[float, float]:
        jvm: Any = self._spark._jvm
        runtime = jvm.java.lang.Runtime.getRuntime()
        runtime.gc()
        process = psutil.Process(jvm.java.lang.ProcessHandle.current().pid())
        return (runtime.totalMemory() - runtime.freeMemory()) / 1e6, process.memory_info().rss / 1e6


def table(windows: list[Window]) -> Table:
    names = ("minutes", "changes", "batches", "p50 s", "p95 s", "files", "log MB", "heap MB", "memory MB")
    shown = Table(*names)
    for window in windows:
        shown.add_row(
            *("-" if v is None else f"{v:,.1f}" if isinstance(v, float) else f"{v:,}" for v in asdict(window).values())
        )
    return shown


@contextmanager
def source(rows: int) -> Iterator[Stack]:
    """Yields services with `rows` orders in Postgres and a registered connector."""
    with Stack() as stack:
        with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
            connection.execute(_DDL)
            connection.execute(_INSERT, [1, rows])
        wanted = {"schema.include.list": "shop", "poll.interval.ms": "100"}
        stack.connect.register(NAME, {**stack.postgres.connector(NAME), **wanted})
        yield stack


def main(
    minutes: Annotated[float, typer.Option(help="Duration after the snapshot is in silver.")] = 10.0,
    rate: Annotated[float, typer.Option(help="Changes per second.")] = 500.0,
    rows: Annotated[int, typer.Option(help="Rows of the initial table.")] = 100_000,
    every: Annotated[float, typer.Option(help="Minutes per window.")] = 1.0,
    keep: Annotated[float, typer.Option(help="Minutes for which old versions are kept.")] = 5.0,
    backfills: Annotated[bool, typer.Option("--backfills", help="Meanwhile merge windows of history again.")] = False,
) -> None:
    """Example: python -m tests.bench.soak --minutes 60 --every 5"""
    console = Console(highlight=False)
    # The configuration allows only whole hours, which is too long for a soak.
    old = OldVersions.model_construct(keep_hours=keep / 60)
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        source(rows) as stack,
        running(NAME, old.of_new_tables) as spark,
    ):
        soak = Soak(spark, stack, Path(folder), old, console)
        soak.run(stack.postgres.dsn, rows, rate, minutes, every, backfills)
    console.print(table(soak.windows))
    first, last = soak.windows[0], soak.windows[-1]
    console.print(
        f"from the first window to the last: p50 {first.p50} → {last.p50} s, files {first.files} → {last.files}"
    )
    RESULTS.mkdir(exist_ok=True)
    result = {"rate": rate, "rows": rows, "windows": [asdict(w) for w in soak.windows]}
    file = RESULTS / f"soak-{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    console.print(f"[dim]{file}")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:
        # A temporary file of a writer.
        return 0


if __name__ == "__main__":
    typer.run(main)
