"""The messages of a run before its first batch: that it starts, what it waits for, and its position.

They go to stderr, as stdout is for results; a live table on a terminal prints them above itself. This module imports
nothing that takes time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ingest.sources.contract import OffsetRange, Offsets
    from ingest.sources.kafka import KafkaSource

_RUN = "run"
_FILES = (".yaml", ".yml")
_MAX_NAMED = 5


def say(text: str) -> None:
    """Prints a line to stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def announce(arguments: Sequence[str]) -> None:
    """Prints that a pipeline starts, if the command line's arguments are those of `ingest run`."""
    pipeline = next((a for a in arguments[1:] if not a.startswith("-")), None)
    if arguments[:1] == [_RUN] and pipeline is not None and not {"-h", "--help"} & set(arguments):
        file = PurePath(pipeline)
        say(f"ingest {installed('ingest')}: starting pipeline {file.stem if file.suffix in _FILES else pipeline}")


def installed(package: str) -> str:
    """Returns the version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "(version unknown)"


def listed(names: Sequence[str]) -> str:
    """Returns the first names and the number of further ones."""
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")


class AnnouncedSource:
    """A Kafka source that prints that it waits for the brokers, and then the topics it reads and the number of records
    to capture."""

    def __init__(self, source: KafkaSource, servers: str, before: AnnouncedSource | None = None) -> None:
        """`before`: the source of the attempt before; its messages are not repeated."""
        self._source = source
        self._servers = servers
        self._bounded = False
        self._has_announced_waiting: bool = before is not None and before._has_announced_waiting
        self._has_announced_topics: bool = before is not None and before._has_announced_topics

    def pin_end(self) -> None:
        self._say_waiting()
        self._bounded = True
        self._source.pin_end()

    def pending(self, captured: Offsets, limit: int) -> OffsetRange | None:
        self._say_waiting()
        span = self._source.pending(captured, limit)
        if not self._has_announced_topics:
            self._has_announced_topics = True
            waiting = 0 if span is None else span.size + span.behind
            topics = sorted(self._source.ends)
            say(f"reading {count_text(len(topics), 'topic')}: {listed(topics)}")
            where = "since the last run" if captured else "from the start"
            say(
                f"{count_text(waiting, 'record')} to capture {where}"
                + ("" if waiting or self._bounded else ", waiting")
            )
        return span

    def read(self, spark: SparkSession, span: OffsetRange) -> DataFrame:
        return self._source.read(spark, span)

    def _say_waiting(self) -> None:
        if not self._has_announced_waiting:
            self._has_announced_waiting = True
            say(f"waiting for Kafka at {self._servers}")


def count_text(count: int, noun: str) -> str:
    """Returns `1 topic`, `1,000 topics`, `2 batches`."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"
