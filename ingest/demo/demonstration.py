"""Runs the demo from the first service to the last comparison, with an ordinary pipeline and its `Run`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from ingest.config import Pipeline
from ingest.demo.claims import ACCIDENT_CLAIMS, CLAIM_COUNT, MEMBERS, SCHEMA, Change, ClaimsBook
from ingest.demo.display import Display
from ingest.demo.generator import Generator
from ingest.demo.history import archive_in, show_history
from ingest.demo.lakehouse import LakehouseView
from ingest.demo.observer import Observer
from ingest.demo.source import CONNECTOR, ClaimsDatabase, connector_config
from ingest.demo.story import Story
from ingest.demo.summary import Summary
from ingest.errors import SourceRefused, StackFailed
from ingest.failures.conversion import converting_errors
from ingest.jvm.causes import JVM_ENDED
from ingest.pipeline.composition import Run
from ingest.quality import Comparison, compare_with_postgres
from ingest.sources.kafka_admin import KafkaAdmin
from ingest.spark.session import SHORT_LIVED, spark_session
from ingest.stack import CHANGELOG_PARTS, PARTS, Stack

TABLES = (MEMBERS, ACCIDENT_CLAIMS)
DRAIN_SECONDS = 120.0
_TOPICS_SECONDS = 60.0
Stopping = Callable[[], AbstractContextManager[threading.Event]]
"""A context manager that yields an event which a signal sets, and restores the signal handlers."""


@dataclass(frozen=True)
class Options:
    """The demo's options.

    Attributes:
        folder: of all data and logs.
        seconds: the least run time of the generator; None to run until a signal.
        history: also delete the lakehouse and restore it from an archive.
    """

    folder: Path
    seed: int = 1
    seconds: float | None = 20.0
    history: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        return PARTS if self.history else CHANGELOG_PARTS

    @property
    def lakehouse(self) -> Path:
        return self.folder / "lakehouse"

    @property
    def services(self) -> Path:
        return self.folder / "services"


def demonstrate(options: Options, display: Display, stopping: Stopping) -> Summary | None:
    """Runs the demo. Returns None if a signal stopped it before the comparison.

    Raises the IngestErrors of the services and of the pipeline. No service is left running in any case.
    """
    started_at = time.monotonic()
    with _spark_beside() as spark, ExitStack() as services:
        with display.step("Postgres, Kafka, and Kafka Connect with Debezium"):
            stack = services.enter_context(Stack(options.services, options.parts, keep=True))
        with display.step("Spark, begun beside them"):
            session = spark.result()
        database = services.enter_context(closing(ClaimsDatabase(stack.postgres.dsn)))
        return _Demonstration(options, display, stack, session, database).run(stopping, started_at)


@contextmanager
def _spark_beside() -> Iterator[Future[SparkSession]]:
    """Starts a session on a background thread and yields its future; stops the session at the end."""
    with ThreadPoolExecutor(1, thread_name_prefix="spark") as pool:
        future = pool.submit(spark_session, "ingest demo", SHORT_LIVED)
        try:
            yield future
        finally:
            if not future.cancel() and future.exception() is None:
                # A SIGTERM to the whole process group (as `timeout` sends it) has ended Spark's JVM already.
                with suppress(*JVM_ENDED):
                    future.result().stop()


def _pipeline(stack: Stack, options: Options) -> Pipeline:
    """Returns the demo's pipeline, as its file would define it."""
    return Pipeline.model_validate(
        {
            "name": CONNECTOR,
            "source": {
                "kafka": {"bootstrap.servers": stack.kafka.bootstrap_servers},
                "topic_pattern": rf"{CONNECTOR}\.{SCHEMA}\..*",
            },
            "lakehouse": str(options.lakehouse),
            "archive": archive_in(stack.s3) if options.history else None,
        }
    )


class _Demonstration:
    def __init__(
        self,
        options: Options,
        display: Display,
        stack: Stack,
        spark: SparkSession,
        database: ClaimsDatabase,
    ) -> None:
        self._options = options
        self._display = display
        self._stack = stack
        self._spark = spark
        self._database = database
        self._pipeline = _pipeline(stack, options)
        self._view = LakehouseView(spark, self._pipeline)
        self._book = ClaimsBook(options.seed)
        self._story = Story(self._book.new_claim())
        self._observer = Observer(self._view, self._display, self._story)

    def run(self, stopping: Stopping, started_at: float) -> Summary | None:
        self._prepare_source()
        engine = Run(self._spark, self._pipeline)
        with converting_errors(self._pipeline):
            with stopping() as stop:
                generator = Generator(self._database, self._book, self._story, self._options.seconds, stop)
                if not self._stream(engine, generator, stop):
                    return None
            with stopping() as stop, self._display.step("drain: the source's last change into silver"):
                if not self._drained(engine, generator.close_books(), stop):
                    return None
            with self._display.step("comparison of silver with the source, row by row"):
                comparisons = [self._compared(table) for table in TABLES]
            summary = self._summary(comparisons, generator)
            history = show_history(self._spark, self._pipeline, self._display) if self._options.history else None
            return replace(summary, history=history, seconds=time.monotonic() - started_at)

    def _prepare_source(self) -> None:
        with self._display.step(f"source: {len(self._book.members)} members, {CLAIM_COUNT} accident claims"):
            self._database.create(self._book)
        with self._display.step("connector: snapshot begun"):
            self._stack.connect.register(CONNECTOR, connector_config(self._stack.postgres))
            waiting = Retrying(
                retry=retry_if_exception_type(SourceRefused),
                stop=stop_after_delay(_TOPICS_SECONDS),
                wait=wait_fixed(0.2),
                reraise=True,
            )
            source = self._pipeline.source
            waiting(KafkaAdmin(source.kafka).topics, None, source.topic_pattern)

    def _stream(self, engine: Run, generator: Generator, stop: threading.Event) -> bool:
        """Runs the pipeline until the generator's time is over or a signal comes. Returns False if it was stopped
        early."""
        self._observer.generator = generator
        generator.start()
        try:
            engine.continuous(stop, self._observer.report)
        finally:
            stop.set()
            generator.join()
        if generator.failure is not None:
            raise generator.failure
        return generator.time_is_over or self._options.seconds is None

    def _drained(self, engine: Run, last: Sequence[Change], stop: threading.Event) -> bool:
        """Runs the pipeline until silver holds the `last` changes of the source. Returns False if a signal came
        first."""
        deadline = time.monotonic() + DRAIN_SECONDS
        while not all(self._holds(change) for change in last):
            if stop.is_set():
                return False
            if time.monotonic() > deadline:
                raise StackFailed(
                    f"the source's last change did not reach silver within {DRAIN_SECONDS:.0f} s",
                    "run it again with --folder, and read the log of Kafka Connect there",
                )
            engine.available_now(stop, self._observer.report)
        return True

    def _holds(self, change: Change) -> bool:
        row = self._view.row(f"{SCHEMA}.{change.table}", change.id)
        return row is not None and row["revision"] == change.values["revision"]

    def _compared(self, table: str) -> Comparison:
        return compare_with_postgres(
            self._spark, self._stack.postgres.dsn, table, self._view.silver(table), self._options.folder
        )

    def _summary(self, comparisons: Sequence[Comparison], generator: Generator) -> Summary:
        accounts = self._view.accounted()
        lag = self._view.lag()
        self._observer.final(accounts, {c.table: c.silver_rows for c in comparisons}, lag)
        return Summary(
            seed=self._options.seed,
            comparisons=comparisons,
            events=self._view.events(),
            snapshot_events=self._view.events(ACCIDENT_CLAIMS, "r"),
            accounts=accounts,
            changes=dict(generator.committed),
            lag=lag,
            story=self._story.seen,
        )
