"""`ingest schema`: the JSON Schema of a pipeline file, or the changes of a table's definition."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC
from typing import Annotated, Any

import typer
from rich.table import Table

from ingest.cli.printing import plain_console
from ingest.config import Pipeline, json_schema_text, load
from ingest.errors import ConfigError
from ingest.evolution.definition import Origin
from ingest.failures.conversion import converting_errors
from ingest.pipeline.definition_changes import DefinitionChange, table_changes
from ingest.pipeline.pending_changes import unfollowed_tables
from ingest.spark.session import running


def schema(
    table: Annotated[
        str | None, typer.Argument(help="A table, by its name in the source; without it, the pipeline file's schema.")
    ] = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", "-p", help="The table's pipeline.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Print the JSON Schema of a pipeline file, for editors; or the changes of a table's definition.

    Example: ingest schema > conf/pipeline.schema.json

    The changes are those that the source's triggers have sent (`ingest connector ddl-trigger`), and what the schemas of
    events show without them, each with what became of it by the pipeline's `schema:` policy: ingest schema
    public.orders --pipeline shop
    """
    del debug
    if table is None:
        typer.echo(json_schema_text(), nl=False)
        return
    if pipeline is None:
        raise ConfigError(f"the pipeline of table {table} is not given", "name it with --pipeline")
    loaded = load(pipeline)
    changes = _changes(table, loaded)
    note = note_on(table, changes, loaded)
    if as_json:
        typer.echo(json.dumps({"table": table, "changes": [*map(_plain, changes)], "note": note}, ensure_ascii=False))
    else:
        _show(table, changes)
        if note is not None:
            typer.echo(note)


def _changes(table: str, loaded: Pipeline) -> list[DefinitionChange]:
    with running(f"ingest schema {loaded.name}", loaded.session) as spark, converting_errors(loaded):
        return table_changes(spark, loaded.name, loaded.layout, table)


def note_on(table: str, changes: Sequence[DefinitionChange], pipeline: Pipeline) -> str | None:
    """Returns a sentence if messages tell of a table that goes by declared renames; else None."""
    is_told = any(change.origin == Origin.TOLD for change in changes)
    return unfollowed_tables(pipeline).get(table) if is_told else None


def _plain(change: DefinitionChange) -> dict[str, Any]:
    at = None if change.at is None else change.at.astimezone(UTC).isoformat()
    return asdict(change) | {"at": at, "position": list(change.position)}


def _show(table: str, changes: Sequence[DefinitionChange]) -> None:
    shown = Table("changed at", "position", "change", "known by", "outcome", "what to do", title=table)
    for change in changes:
        at = "" if change.at is None else change.at.astimezone(UTC).isoformat()
        outcome = str(change.outcome) + ("" if change.events is None else f": {change.events:,} events")
        position = ":".join(map(str, change.position[:4]))
        shown.add_row(at, position, change.text, change.origin, outcome, change.remedy or "")
    plain_console().print(shown)
