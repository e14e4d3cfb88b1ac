"""Compares ingest with a lower bound: a job that reads, parses and writes the same records once. Both run alternately,
each in its own process."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

from tests.bench import RESULTS
from tests.bench.timing import Timing

WAYS = ("ingest", "lower-bound")
Figures = dict[str, float]


def print_result(clock: Timing, expected: DataFrame, found: DataFrame | None) -> None:
    """Prints a run's times and its number of wrong rows as JSON, for `compare`. `found`: the rows of the run, or None
    if it has no comparable table."""
    wrong = 0 if found is None else expected.exceptAll(found).count() + found.exceptAll(expected).count()
    sys.stdout.write(json.dumps({"wall": clock.wall, "cpu": clock.cpu, "wrong": wrong}) + "\n")


def compare(
    part: str,
    arguments: Sequence[str],
    folder: str,
    runs: int,
    count: int,
    console: Console,
    ways: Sequence[str] = WAYS,
) -> None:
    """Runs `python -m tests.bench.<part> WAY FOLDER *arguments` `runs` times per way, each with `count` records. Prints
    medians and their ratios to those of the last way, and stores the times of every run."""
    runs_by_way: dict[str, list[Figures]] = {way: [] for way in ways}
    for run in range(runs):
        for way in ways:
            console.print(f"[dim]running: {way}, {run + 1} of {runs}")
            command = [sys.executable, "-m", f"tests.bench.{part}", way, f"{folder}/{way}-{run}", *arguments]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            runs_by_way[way].append(json.loads(done.stdout.splitlines()[-1]))
    _show(runs_by_way, count, console)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{part}-{count}-{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    file.write_text(json.dumps({"records": count, "runs": runs_by_way}, indent=1) + "\n", encoding="utf-8")
    console.print(f"[dim]{file}")


def _show(runs_by_way: dict[str, list[Figures]], count: int, console: Console) -> None:
    medians = {way: {k: statistics.median(r[k] for r in runs) for k in runs[0]} for way, runs in runs_by_way.items()}
    base = medians[list(medians)[-1]]
    table = Table("way", "CPU s", "wall s", "records/s", "CPU ratio", "wall ratio", "wrong rows")
    for way, median in medians.items():
        ratios = (f"{median[k] / base[k]:.2f}" for k in ("cpu", "wall"))
        figures = (f"{median['cpu']:.1f}", f"{median['wall']:.1f}", f"{count / median['wall']:,.0f}")
        table.add_row(way, *figures, *ratios, f"{median['wrong']:.0f}")
    console.print(table)
