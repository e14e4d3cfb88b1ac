"""`make bench`: runs each contender on the same workload, one after the other, and prints medians, ratios and wrong
rows."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tests.bench import RESULTS, archive, encodings, erasure, shredding, starts, topic, wide
from tests.bench.environments import CONTENDERS
from tests.bench.workload import Workload

app = typer.Typer(add_completion=False, no_args_is_help=True)
console = Console(highlight=False)
SINGLE_TABLE = tuple(name for name in CONTENDERS if name != "naive-tables")
PARTS = {
    "small": (Workload(1_000_000, 500, 45), 15, (1,), SINGLE_TABLE),
    "tables": (Workload(100_000, 1000, 6, tables=100), 3, (1,), ("ingest", "naive-tables")),
    "catch-up": (Workload(1_000_000, 50_000, 40), 20, (1, 10), SINGLE_TABLE),
    "skewed": (Workload(1_000_000, 50_000, 40, "zipf"), 20, (1, 10), SINGLE_TABLE),
    "append": (Workload(1_000_000, 50_000, 40, "append"), 20, (1, 10), SINGLE_TABLE),
}
"""Part → workload, number of warm-up batches, numbers of batches that are merged at once, and its contenders."""

ALL = ", ".join((*PARTS, "topic", "encodings", "archive", "erasure", "shredding", "starts", "wide"))


@app.command()
def main(
    part: Annotated[str, typer.Argument(help=f"One of {ALL}.")],
    rows: Annotated[int | None, typer.Option(help="Rows of the initial table.")] = None,
    batch: Annotated[int | None, typer.Option(help="Events per batch.")] = None,
    batches: Annotated[
        int | None,
        typer.Option(
            help="Number of batches; of runs (topic, encodings, archive, shredding, starts); of subjects (erasure)."
        ),
    ] = None,
    at_once: Annotated[list[int] | None, typer.Option(help="Batches that are merged at once.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(CONTENDERS)}; default: all of the part.")
    ] = None,
    where: Annotated[bool, typer.Option("--where", help="Show the CPU time per phase of a batch.")] = False,
    memory: Annotated[str, typer.Option(help="Heap of each contender's JVM.")] = "4g",
) -> None:
    """Example: python -m tests.bench small --rows 5000000"""
    if part == "topic":
        topic.run_benchmark(rows or 500_000, batch or 4_500_000, batches or 3, console)
        return
    if part == "encodings":
        encodings.run_benchmark(rows or 100_000, batch or 900_000, batches or 3, console)
        return
    if part == "archive":
        archive.run_benchmark(rows or 500_000, batch or 4_500_000, batches or 3, console)
        return
    if part == "erasure":
        erasure.run_benchmark(rows or 1_000_000, batch or 200_000, batches or 1000, console)
        return
    if part == "shredding":
        shredding.run_benchmark(rows or 500_000, batches or 3, console)
        return
    if part == "starts":
        starts.run_benchmark(rows or 1_000_000, batches or 3, console)
        return
    if part == "wide":
        wide.run_benchmark(batch or 1000, batches or 5, console)
        return
    if part not in PARTS:
        raise typer.BadParameter(f"choose one of {ALL}")
    known, warm, several, contenders = PARTS[part]
    given = {"rows": rows, "batch": batch, "batches": batches}
    workload = Workload(**(asdict(known) | {k: v for k, v in given.items() if v is not None}))
    warm = min(warm, workload.batches - 1)
    found = {}
    with TemporaryDirectory(prefix="bench-") as prepared:
        _prepare(workload, prepared, memory)
        for merged_at_once in at_once or several:
            for name in only or contenders:
                one = _run(name, prepared, workload.batches, warm, merged_at_once, memory, where)
                if one is not None:
                    found[name if merged_at_once == 1 else f"{name}, {merged_at_once} at once"] = one
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    result = {"part": part, "work": asdict(workload), "warm": warm, "at": now.isoformat(), **machine, "found": found}
    file = RESULTS / f"{part}-{workload.rows}-{workload.batch}-{now:%Y%m%dT%H%M%S}.json"
    file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    _show(part, workload, found)
    console.print(f"[dim]{file}")


def _prepare(workload: Workload, folder: str, memory: str) -> None:
    console.print(f"[dim]preparing: {workload.events:,} events")
    made = (workload.rows, workload.batch, workload.batches, workload.keys, workload.tables)
    arguments = [str(v) for v in (*made, folder, memory)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.prepared", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        console.print("[red]the workload can't be made:[/]", done.stderr[-3000:])
        raise typer.Exit(1)


def _run(
    name: str, prepared: str, batches: int, warm: int, at_once: int, memory: str, where: bool
) -> dict[str, Any] | None:
    """Runs a contender in its own process, so that all JVMs start cold. Returns None if a peer failed; the others run
    without it."""
    console.print(f"[dim]running: {name}, {at_once} at once")
    arguments = [name, prepared, *map(str, (batches, warm, at_once)), memory, *(["where"] if where else [])]
    command = [CONTENDERS[name].python(), "-m", "tests.bench.run_contender", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        console.print(f"[red]{name} died and is left out:[/]", done.stderr[-3000:])
        if name == "ingest":
            raise typer.Exit(1)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _show(part: str, workload: Workload, found: dict[str, dict[str, Any]]) -> None:
    title = f"{part}: {workload.batch} events a batch on {workload.rows} rows, median of a batch"
    columns = ("contender", "Spark", "CPU s", "mean", "wall s", "events/s", "mean, ratio to naive", "wrong rows")
    table = Table(*columns, title=title)
    naive = next((one["mean"] for name, one in found.items() if name.startswith("naive")), None)
    for name, one in found.items():
        cpu, wall = one["median"]["cpu"], one["median"]["wall"]
        ratio = f"{one['mean']['cpu'] / naive['cpu']:.2f}" if naive else ""
        wrong = str(one["missing"] + one["extra"])
        # The mean includes compactions, which are in few batches and not in the median.
        mean = f"{one['mean']['cpu']:.2f}"
        table.add_row(
            name, one["spark"], f"{cpu:.2f}", mean, f"{wall:.2f}", f"{workload.batch / wall:.0f}", ratio, wrong
        )
    console.print(table)
    for name, one in found.items():
        if "where" in one:
            parts = (f"{phase} {seconds:.2f}" for phase, seconds in one["where"].items())
            console.print(f"{name}, s a batch: {', '.join(parts)}")


if __name__ == "__main__":
    app()
