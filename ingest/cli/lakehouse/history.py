"""`ingest history`: prints the changes of one row."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from datetime import UTC
from typing import Annotated, Any

import typer
from rich.table import Table

from ingest.backfill.row_history import RowEvent, row_events
from ingest.cli import personal
from ingest.cli.guarded import guarded
from ingest.cli.printing import plain_console
from ingest.config import load
from ingest.errors import ConfigError
from ingest.jvm.folders import deleted_afterwards
from ingest.spark.session import running


def history(
    table: Annotated[str, typer.Argument(help="A table, by its name in the source.")],
    key: Annotated[
        list[str] | None,
        typer.Argument(help="column=value, once for each column of the key, such as tenant=7 id=42."),
    ] = None,
    *,
    pipeline: Annotated[str, typer.Option("--pipeline", "-p", help="The table's pipeline.")],
    key_file: Annotated[
        str | None,
        typer.Option(
            "--key-file", help='For a personal key: a file with column=value on each line; "-" reads it from stdin.'
        ),
    ] = None,
    values: Annotated[
        bool, typer.Option("--values/--no-values", help="Print the values of columns, which may be personal.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Print the history of a row: each event with its key, when the source committed it, and what it changed.

    Example: ingest history claims.members id=42 --pipeline claims

    If the key has several columns, name each: ingest history shop.lines
    order_id=42 line=3 --pipeline shop
    """
    del debug
    loaded = load(pipeline)
    key_values = _key(key or [], key_file)
    scratch = loaded.layout.scratch(f"history-{uuid.uuid4().hex[:12]}")
    with (
        running(f"ingest history {loaded.name}", loaded.session) as spark,
        guarded(spark, loaded, as_json),
        deleted_afterwards(spark, scratch.root),
    ):
        steps = row_events(spark, loaded, table, key_values, scratch)
    if as_json:
        typer.echo(json.dumps({"table": table, "events": [_plain(s, values) for s in steps]}, ensure_ascii=False))
    else:
        _show(table, steps, values)


def _key(arguments: Sequence[str], file: str | None) -> dict[str, str]:
    """Returns the value of each column of the key, from arguments and from a file."""
    lines = personal.lines(file, "--key-file") if file is not None else []
    pairs = [_pair(text) for text in (*arguments, *filter(str.strip, lines))]
    key_values = dict(pairs)
    if len(key_values) < len(pairs):
        raise ConfigError("a column of the key is given twice", "name each column of the key once")
    return key_values


def _pair(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals:
        raise ConfigError("a key is given as column=value", "write for example id=42")
    return column, value


def _plain(step: RowEvent, values: bool) -> dict[str, Any]:
    changed: Any = {c: list(pair) for c, pair in step.changed.items()} if values else sorted(step.changed)
    return {"what": step.what, "at": _time(step), "position": list(step.position), "changed": changed}


def _time(step: RowEvent) -> str | None:
    return None if step.at is None else step.at.astimezone(UTC).isoformat()


def _show(table: str, steps: Sequence[RowEvent], values: bool) -> None:
    shown = Table("committed at", "position", "partition@offset", "the row", "what changed", title=table)
    for step in steps:
        *place, _, offset, partition = step.position
        changed = (f"{c}: {old} → {new}" if values else c for c, (old, new) in step.changed.items())
        shown.add_row(
            _time(step) or "", ":".join(map(str, place)), f"{partition}@{offset}", step.what, "\n".join(changed)
        )
    console = plain_console()
    console.print(shown) if steps else console.print("no event names this key")
