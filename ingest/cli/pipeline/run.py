"""`ingest run`: runs a pipeline as a stream, or until everything available is merged."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Annotated

import typer
from pyspark.sql import SparkSession

from ingest.backfill.refolding import Refolding
from ingest.cli.guarded import guarded
from ingest.cli.printing import plain_console
from ingest.cli.progress import progress_display
from ingest.cli.start import AnnouncedSource, count_text, installed, say
from ingest.cli.waiting import wait_reporter
from ingest.config import Pipeline, load
from ingest.errors import IngestError
from ingest.lakehouse.accounts import SetAside
from ingest.loop.set_aside import require_all_merged
from ingest.pipeline.composition import BOTH, Part, Progress, Run, source_of
from ingest.pipeline.retrying import Interrupted, OnProgress, Retries, Stop
from ingest.spark.session import running
from ingest.upkeep.upkeep import upkeep

PipelineName = Annotated[str, typer.Argument(help="A pipeline of conf/pipelines, or the path of its file.")]


def run(
    pipeline: PipelineName,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Stop once everything available now is merged.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per batch.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Capture a changelog into bronze and merge it into silver.

    Runs until Ctrl-C or SIGTERM; the current batch is finished first.

    Example: ingest run claims --available-now
    """
    del debug  # `run_command` reads it from the command line.
    drive(pipeline, BOTH, available_now, as_json)


def job(*parts: Part) -> typer.Typer:
    """Returns an application with one command that runs these parts, for spark-submit."""
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def _(
        pipeline: PipelineName,
        available_now: Annotated[bool, typer.Option("--available-now")] = False,
        debug: Annotated[bool, typer.Option("--debug")] = False,
    ) -> None:
        del debug
        drive(pipeline, parts, available_now, as_json=True)

    return app


def drive(name: str, parts: Sequence[Part], available_now: bool, as_json: bool) -> None:
    """Runs parts of a pipeline, as a stream or until everything available is merged. Submitted jobs call it too."""
    loaded, console = load(name), plain_console()
    say("waiting for Java and Spark")
    with (
        running(f"ingest {loaded.name}", loaded.session) as spark,
        guarded(spark, loaded, as_json),
        stop_on_signal() as stop,
        progress_display(loaded.name, as_json, console) as report,
    ):
        say(f"Spark {spark.version} with Delta {installed('delta-spark')} runs")
        attempts = _Attempts(spark, loaded, parts, stop, report)
        retries = Retries(spark, loaded, stop, wait_reporter(as_json, console))
        if available_now:
            retries(attempts.run_available_now)
            attempts.require_all_merged()
            return
        # Only the process that merges runs upkeep: one per pipeline is enough.
        with upkeep(spark, loaded) if "merge" in parts else nullcontext(lambda: None) as between_batches:
            try:
                retries(partial(attempts.run_until_stopped, between_batches))
            except IngestError as error:
                # Stopped while it waited for something: nothing is half done, and the next start tries again.
                if not (stop.is_set() and error.retried):
                    raise
        attempts.require_all_merged()


class _Attempts:
    """The attempts of a run. Each makes all of its objects anew, from the current tables and topics. The first one
    prints the position."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        parts: Sequence[Part],
        stop: Stop,
        report: Callable[[Progress], None],
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._parts = parts
        self._stop = stop
        self._report = report
        self._announced: AnnouncedSource | None = None
        self._is_first = True
        self._refolding = Refolding(spark, pipeline, stop)
        self._set_aside: Mapping[str, SetAside] = {}
        self._fault: BaseException | None = None

    def require_all_merged(self) -> None:
        """Raises ChangelogUnusable if the last attempt left tables that are set aside."""
        require_all_merged(self._pipeline.name, self._set_aside, self._fault)

    def run_available_now(self, progressed: OnProgress) -> None:
        def reported(progress: Progress) -> None:
            progressed()
            self._report(progress)

        with self._run() as engine:
            engine.available_now(self._stop, reported)
            self._refolding.run(engine.merge, progressed)
            self._set_aside, self._fault = engine.set_aside, engine.fault

    def run_until_stopped(self, between_batches: Callable[[], None], progressed: OnProgress) -> None:
        def between() -> None:
            progressed()
            self._refolding.run(engine.merge, progressed)
            between_batches()

        with self._run() as engine:
            engine.continuous(self._stop, self._report, between)
            self._set_aside, self._fault = engine.set_aside, engine.fault

    def _run(self) -> Run:
        engine = Run(self._spark, self._pipeline, self._parts, self._source() if "capture" in self._parts else None)
        if self._is_first:
            position_text = ", ".join(
                f"{count_text(batches, 'batch')} {done}" for done, batches in engine.position.items()
            )
            say(f"lakehouse {self._pipeline.lakehouse}: {position_text}")
            self._is_first = False
        return engine

    def _source(self) -> AnnouncedSource:
        source = source_of(self._pipeline)
        servers = self._pipeline.source.kafka.get("bootstrap.servers", "")
        self._announced = AnnouncedSource(source, servers, self._announced)
        return self._announced


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Yields an event that SIGINT and SIGTERM set. Spark's process keeps running until the batch is finished; a run
    that is waiting ends at once."""
    stop = Stop()

    def end(*_: object) -> None:
        stop.set()
        if stop.interrupts:
            raise Interrupted
        # `print` is not reentrant, and the signal may have interrupted one.
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"stopping: the batch in hand is finished first\n")

    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
