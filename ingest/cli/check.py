"""`ingest check`: is the pipeline file right, what will it do, and do its Kafka and connector fit? Needs no Spark."""

from __future__ import annotations

import json
import logging
from typing import Annotated, Any

import typer

from ingest.cli.live import connector_lines, live_table, observed, risk_table
from ingest.cli.plan import plan, plan_table
from ingest.cli.printing import verbatim
from ingest.config import json_schema_text, load
from ingest.errors import ConfigError
from ingest.sources.declarations import contradictions

EXIT_DIFFERS = 1


def check(
    pipeline: Annotated[str | None, typer.Argument(help="A pipeline's name, or the path of its file.")] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Ask Kafka for topics, offsets, lag and newest events, and Connect for settings."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document in place of tables.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema for editors.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Log what the Kafka client does.")] = False,
) -> None:
    """Check a pipeline file and show what it will read and write, without running it.

    Exits with 2 where the file can't be right, and with --live with 1 where a setting of the connector loses data.
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
            _show_live(composed["live"])
    if as_json:
        typer.echo(json.dumps(composed, indent=2, ensure_ascii=False))
    if live:
        _require_none(pipeline, composed["live"]["problems"])
        if _loses(composed["live"]):
            raise typer.Exit(EXIT_DIFFERS)


def _require_none(pipeline: str, problems: list[str]) -> None:
    """Raises ConfigError where there are problems."""
    if problems:
        raise ConfigError(f"{pipeline}: {'; '.join(problems)}", "correct it and run `ingest check` on the file again")


def _loses(live: dict[str, Any]) -> bool:
    """Whether data are lost: a setting that isn't accepted does, or the connector has failed."""
    failed = live["connector"] is not None and "FAILED" in (live["connector"]["state"], *live["connector"]["tasks"])
    return failed or any(risk["loses"] and not risk["accepted"] for risk in live["risks"])


def _show_live(live: dict[str, Any]) -> None:
    console = verbatim()
    console.print(live_table(live))
    for line in connector_lines(live):
        typer.echo(line)
    if live["risks"]:
        console.print(risk_table(live))
