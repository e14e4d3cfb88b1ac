"""`ingest check`: is the pipeline file right, what will it do, and does its Kafka answer? Needs no Spark."""

from __future__ import annotations

import json
import logging
from typing import Annotated

import typer

from ingest.cli.live import live_table, observed
from ingest.cli.plan import plan, plan_table
from ingest.cli.printing import verbatim
from ingest.config import json_schema_text, load
from ingest.errors import ConfigError
from ingest.sources.declarations import contradictions


def check(
    pipeline: Annotated[str | None, typer.Argument(help="A pipeline's name, or the path of its file.")] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Ask Kafka for topics, offsets and lag."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document in place of tables.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema for editors.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Log what the Kafka client does.")] = False,
) -> None:
    """Check a pipeline file and show what it will read and write, without running it.

    Exits with 2 where the file can't be right.
    """
    if debug:
        logging.basicConfig(level=logging.DEBUG)
    if schema:
        typer.echo(json_schema_text(), nl=False)
        return
    if pipeline is None:
        raise ConfigError("no pipeline is given", "give its name, or the path of its file")
    checked = load(pipeline)
    _require_none(pipeline, contradictions(checked))
    composed = plan(checked)
    if not as_json:
        verbatim().print(plan_table(composed))
    if live:
        composed["live"] = observed(checked)
        if not as_json:
            verbatim().print(live_table(composed["live"]))
    if as_json:
        typer.echo(json.dumps(composed, indent=2, ensure_ascii=False))


def _require_none(pipeline: str, problems: list[str]) -> None:
    """Raises ConfigError where there are problems."""
    if problems:
        raise ConfigError(f"{pipeline}: {'; '.join(problems)}", "correct it and run `ingest check` on the file again")
