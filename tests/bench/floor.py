"""How far from the floor: ingest's way beside the least that anybody has to do with the same records, in turns, each in
a process of its own."""

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
from tests.bench.clock import Taken

WAYS = ("ingest", "floor")
Figures = dict[str, float]


def say(clock: Taken, expected: DataFrame, found: DataFrame | None) -> None:
    """What one turn took, and how many rows it got wrong of those that it says to have `found`, for `race` to hear."""
    wrong = 0 if found is None else expected.exceptAll(found).count() + found.exceptAll(expected).count()
    sys.stdout.write(json.dumps({"wall": clock.wall, "cpu": clock.cpu, "wrong": wrong}) + "\n")


def race(part: str, words: Sequence[str], folder: str, runs: int, count: int, console: Console) -> None:
    """`runs` turns of `python -m tests.bench.<part> WAY FOLDER *words`, each with `count` records. Prints medians, and
    keeps every turn."""
    found: dict[str, list[Figures]] = {way: [] for way in WAYS}
    for run in range(runs):
        for way in WAYS:
            console.print(f"[dim]running: {way}, {run + 1} of {runs}")
            command = [sys.executable, "-m", f"tests.bench.{part}", way, f"{folder}/{way}-{run}", *words]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found[way].append(json.loads(done.stdout.splitlines()[-1]))
    _show(found, count, console)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{part}-{count}-{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    file.write_text(json.dumps({"records": count, "runs": found}, indent=1) + "\n", encoding="utf-8")
    console.print(f"[dim]{file}")


def _show(found: dict[str, list[Figures]], count: int, console: Console) -> None:
    medians = {way: {k: statistics.median(r[k] for r in runs) for k in runs[0]} for way, runs in found.items()}
    table = Table("way", "CPU s", "wall s", "records/s", "CPU, of the floor", "wall, of the floor", "wrong rows")
    for way, mine in medians.items():
        ratios = (f"{mine[k] / medians['floor'][k]:.2f}" for k in ("cpu", "wall"))
        figures = (f"{mine['cpu']:.1f}", f"{mine['wall']:.1f}", f"{count / mine['wall']:,.0f}")
        table.add_row(way, *figures, *ratios, f"{mine['wrong']:.0f}")
    console.print(table)
