"""`ingest replay`: merges changelog files into silver tables, without services and without configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ingest.changelog.accounting import COUNTS
from ingest.cli.printing import plain_console
from ingest.errors import ConfigError
from ingest.spark.session import SMALL, running

_SMALL_BYTES = 20_000_000


def replay(
    events: Annotated[
        list[Path] | None, typer.Argument(help="Changelog files, one record a line.", exists=True)
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the tables.")] = ...,  # type: ignore[assignment]
    tables: Annotated[
        Path | None,
        typer.Option(help="JSON file with tables, keys and types that the events don't carry.", exists=True),
    ] = None,
    each: Annotated[bool, typer.Option("--each", help="Each given folder is a case, or holds cases.")] = False,
    form: Annotated[str, typer.Option("--format", help="delta, or jsonl for additional text files.")] = "delta",
    batch_size: Annotated[int, typer.Option(min=0, help="Records per batch; 0: all in one.")] = 0,
    shuffle: Annotated[int | None, typer.Option(help="Seed that shuffles records between partitions.")] = None,
    any_order: Annotated[
        bool, typer.Option("--any-order", help="With --shuffle: also shuffle within partitions.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the accounts as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Merge changelog files into silver tables, through the same code as a stream.

    Example: ingest replay events.jsonl --out build/replayed --format jsonl
    """
    del debug
    from ingest.backfill import replay as folding

    if form not in ("delta", "jsonl"):
        raise ConfigError(f"--format {form} is unknown", "use delta or jsonl")
    if any_order and shuffle is None:
        raise ConfigError("--any-order needs a seed", "add --shuffle SEED")
    paths = list(events or ())
    cases = _each(paths, out) if each else [_one(paths, tables, out)]
    size = sum(path.stat().st_size for case in cases for path in case.events)
    console = plain_console()
    with running("ingest replay", SMALL if size < _SMALL_BYTES else {}) as spark:
        delivery = folding.Delivery(batch_size, shuffle, any_order)
        for case, summary in folding.replay(spark, cases, delivery, form):  # type: ignore[arg-type]
            if as_json:
                console.out(json.dumps({"case": case.name, **summary}, ensure_ascii=False))
                continue
            counts = ", ".join(f"{name} {summary[name]}" for name in COUNTS)
            console.out(f"{case.name}: {counts}")
            for table, where in summary["tables"].items():
                console.out(f"  {table}: {where['rows']} rows in {case.out / where['file']}")
            for why in summary["set_aside"].values():
                console.out(f"  set aside: {why['reason']}")


def _one(events: list[Path], tables: Path | None, out: Path) -> folding.Case:  # type: ignore[name-defined]  # noqa: F821
    from ingest.backfill.replay import Case

    if not events:
        raise ConfigError("no changelog file was given", "ingest replay EVENTS.jsonl --out DIR")
    if folders := [path for path in events if path.is_dir()]:
        raise ConfigError(f"{folders[0]} is a folder", "add --each, or give the files in it")
    folder = events[0].resolve().parent
    default_tables = folder / "tables.json"
    found = tables or (default_tables if default_tables.is_file() else None)
    return Case(folder.name, tuple(events), found, out / folder.name)


def _each(folders: list[Path], out: Path) -> list[folding.Case]:  # type: ignore[name-defined]  # noqa: F821
    from ingest.backfill.replay import Case

    cases = []
    for folder in folders:
        holders = [folder] if any(folder.glob("*.jsonl")) else sorted(p for p in folder.iterdir() if p.is_dir())
        for case in holders:
            files = tuple(sorted(case.glob("events*.jsonl")) or sorted(case.glob("*.jsonl")))
            if files:
                tables = case / "tables.json"
                cases.append(Case(case.name, files, tables if tables.is_file() else None, out / case.name))
    if not cases:
        raise ConfigError("no case was found", "give folders that hold events.jsonl, or folders of such folders")
    return cases
