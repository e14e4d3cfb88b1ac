"""`ingest run`: a pipeline, as a stream or until nothing is new."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Annotated

import typer
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ingest.cli.progress import shown
from ingest.cli.start import AnnouncedSource, counted, installed, say
from ingest.config import Pipeline, load
from ingest.errors import IngestError
from ingest.run.failures import explained
from ingest.run.pipeline import BOTH, Part, Run, source_of
from ingest.run.upkeep import upkeep
from ingest.session import running

PipelineName = Annotated[str, typer.Argument(help="A pipeline of conf/pipelines, or the path of its file.")]


def run(
    pipeline: PipelineName,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Stop once what is there now is merged.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per batch.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Capture a changelog into bronze and merge it into silver.

    Runs until it is told to stop (Ctrl-C, SIGTERM); the batch in hand is finished first.

    Example: ingest run claims --available-now
    """
    del debug  # The whole trace is the business of main().
    drive(pipeline, BOTH, available_now, as_json)


def job(*parts: Part) -> typer.Typer:
    """A command of its own that runs these parts, for a submitter."""
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
    """Runs parts of a pipeline in the given mode. Jobs submitted to a cluster come in here too."""
    loaded = load(name)
    say("waiting for Java and Spark")
    with running(f"ingest {loaded.name}", loaded.session) as spark, stop_on_signal() as stop, explaining(loaded):
        say(f"Spark {spark.version} with Delta {installed('delta-spark')} runs")
        servers = loaded.source.kafka.get("bootstrap.servers", "")
        engine = Run(spark, loaded, parts, AnnouncedSource(source_of(loaded), servers) if "capture" in parts else None)
        held = ", ".join(f"{counted(batches, 'batch')} {done}" for done, batches in engine.position.items())
        say(f"lakehouse {loaded.lakehouse}: {held}")
        with shown(loaded.name, as_json) as report:
            if available_now:
                engine.available_now(stop, report)
                return
            # One of the processes of a pipeline is enough.
            with upkeep(spark, loaded) if "merge" in parts else nullcontext(lambda: None) as between_batches:
                engine.continuous(stop, report, between_batches)


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set. Spark's own process keeps running until the batch is done."""
    stop = threading.Event()

    def end(*_: object) -> None:
        stop.set()
        # Not by `print`, which a signal may have interrupted.
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"stopping: the batch in hand is finished first\n")

    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def explaining(pipeline: Pipeline) -> Iterator[None]:
    """Turns what Spark says of a failure into a sentence."""
    try:
        yield
    except IngestError:
        raise
    except (PySparkException, Py4JError, OSError) as error:
        raise explained(error, pipeline) from error
