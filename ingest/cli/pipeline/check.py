"""`ingest check`: checks a pipeline file, its topics and its connector, and shows the plan. Needs no Spark."""

from __future__ import annotations

import json
import logging
from typing import Annotated, Any

import typer

from ingest.cli.pipeline.live import change_lines, connector_lines, live_state, live_table, risk_table
from ingest.cli.pipeline.plan import plan, plan_table
from ingest.cli.printing import plain_console
from ingest.config import json_schema_text, load
from ingest.errors import EXIT_DIFFERS, ConfigError, SourceRefused
from ingest.evolution.schema_policy import Outcome
from ingest.sources.declarations import contradictions


def check(
    pipeline: Annotated[str | None, typer.Argument(help="A pipeline's name, or the path of its file.")] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Ask Kafka for topics, offsets, lag and newest events, and Connect for settings."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema for editors.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Log what the Kafka client does.")] = False,
) -> None:
    """Check a pipeline file and show what it will read and write, without running it.

    Exits with 2 if the file is invalid. With --live also if the connector has
    failed, and with 1 if one of its settings loses data, or if the schema
    policy will refuse a change of a table that the newest events show.

    Example: ingest check claims --live
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
        plain_console().print(plan_table(composed))
    if live:
        composed["live"] = live_state(checked)
        if not as_json:
            _show_live(composed["live"])
    if as_json:
        typer.echo(json.dumps(composed, indent=2, ensure_ascii=False))
    if live:
        _require_none(pipeline, composed["live"]["problems"])
        _require_running(composed["live"]["connector"])
        loses = any(risk["loses"] and not risk["accepted"] for risk in composed["live"]["risks"])
        if loses or any(change["outcome"] == Outcome.REFUSED for change in composed["live"]["changes"] or ()):
            raise typer.Exit(EXIT_DIFFERS)


def _require_none(pipeline: str, problems: list[str]) -> None:
    """Raises ConfigError if there are problems."""
    if problems:
        raise ConfigError(f"{pipeline}: {'; '.join(problems)}", "correct it and run `ingest check` on the file again")


def _require_running(connector: dict[str, Any] | None) -> None:
    """Raises SourceRefused if the pipeline's connector or one of its tasks has failed."""
    if connector is None or "FAILED" not in (connector["state"], *connector["tasks"]):
        return
    raise SourceRefused(
        f"connector {connector['name']!r} has failed ({', '.join(connector['failures'])}) and sends nothing",
        "read the log of its Kafka Connect worker, fix the cause, then restart the connector and its tasks; where a "
        "numeric could not be converted (NaN, Infinity): `ingest connector recipe postgres --numbers-as-text`",
    )


def _show_live(live: dict[str, Any]) -> None:
    """Prints the state of Kafka and of the connector, the risks, and declarations that may be outdated."""
    console = plain_console()
    console.print(live_table(live))
    for line in connector_lines(live):
        typer.echo(line)
    if live["risks"]:
        console.print(risk_table(live))
    for line in change_lines(live):
        typer.echo(line)
    for note in live["notes"]:
        typer.echo(f"{note} (or it was dropped)")
