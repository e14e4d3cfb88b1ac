"""`ingest erase`: records requests to erase subjects, and removes their data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from pyspark.sql import SparkSession
from rich.table import Table

from ingest.cli.erasure.subject_names import named_subjects
from ingest.cli.guarded import guarded
from ingest.cli.printing import plain_console
from ingest.cli.waiting import retry_while_away
from ingest.config import Pipeline, load
from ingest.erasure.places import SILVER
from ingest.erasure.removal import Removal, RemovalOutcome, left_undone
from ingest.erasure.request import ErasurePlan, current_cutoff, plan_erasure, plan_requests, request_erasure
from ingest.erasure.request_topic import requests_in_topic
from ingest.erasure.source_deletes import requests_by_deletes
from ingest.erasure.uncovered_locations import UncoveredLocation, uncovered_locations
from ingest.errors import ConfigError, IngestError
from ingest.pipeline.ledger_guard import held_subjects, require_not_held
from ingest.spark.session import running

_SUPPRESSED = "events that were written before now can't reach a table any more"


class CutoffAt(StrEnum):
    """Where the erased part of a subject's changes ends: at the topics' current end, or at the end of bronze."""

    TOPICS = "topics"
    BRONZE = "bronze"


def erase(
    pipeline: Annotated[str, typer.Argument(help="A pipeline's name or file.")],
    subject: Annotated[
        str | None,
        typer.Option("--subject", help='Its kind and key, such as member:42; "-" reads it from stdin.'),
    ] = None,
    subject_file: Annotated[
        str | None,
        typer.Option("--all", "--subject-file", help='A file of subjects, a line or a JSON object each; "-": stdin.'),
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="The reason, which is stored: nothing personal.")
    ] = None,
    cutoff_at: Annotated[
        CutoffAt,
        typer.Option("--upto", help="Erase what was written until the current end of the topics, or of bronze."),
    ] = CutoffAt.TOPICS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be removed.")] = False,
    ask_only: Annotated[bool, typer.Option("--ask-only", help="Only record the request; a later run removes.")] = False,
    keep_hours: Annotated[
        int | None,
        typer.Option("--keep-old-files", min=0, help="Overrides privacy: {keep_old_files_hours: …}."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Erase subjects: remove their rows and all rows that lead to them over foreign keys.

    A request takes effect at once: every event of the subject that was
    written before it is suppressed, whether it comes from the topics, an
    archive or a backfill. Rows that begin later are merged as usual. Then the
    stored data is removed.

    Without a subject: read requests from the topic (privacy: {request_topic:
    …}), continue earlier requests, and delete the old files that are due.

    Example: ingest erase claims --subject member:42 --reason "asked by letter"
    """
    del debug
    loaded = load(pipeline)
    subjects = named_subjects(subject, subject_file)
    if not subjects and (dry_run or ask_only):
        raise ConfigError("--dry-run and --ask-only need a subject", "give --subject or --all")
    report: dict[str, Any] = {"dry_run": dry_run}
    left: list[IngestError] = []
    with running(f"ingest erase {loaded.name}", loaded.session) as spark, guarded(spark, loaded, as_json):
        if subjects:
            cutoff = current_cutoff(spark, loaded, cutoff_at is CutoffAt.TOPICS and not dry_run)
            plan = plan_erasure(spark, loaded, subjects, reason, cutoff)
            report |= _request(spark, loaded, plan, dry_run, as_json)
            left += [left_undone(loaded, plan.faulty)] if plan.faulty else []
        if not dry_run and not ask_only:
            done, undone = retry_while_away(
                spark, loaded, as_json, lambda _: _execute_requests(spark, loaded, keep_hours, as_json, not subjects)
            )
            report |= done
            left += undone
        held = held_subjects(spark, loaded)
    _end(loaded, report | {"still_held": [*map(asdict, held)]}, left, as_json)
    require_not_held(held)


def _end(pipeline: Pipeline, report: dict[str, Any], left: list[IngestError], as_json: bool) -> None:
    """Prints the report if `as_json`. Raises the last error of `left`, which tells what the command has left, or
    ConfigError as `_require_readable` does."""
    if as_json:
        typer.echo(json.dumps(report | {"left": [*map(str, left)]}, ensure_ascii=False))
    if left:
        raise left[-1]
    _require_readable(pipeline, report.get("unreadable_requests", []))


def _request(
    spark: SparkSession, pipeline: Pipeline, plan: ErasurePlan, dry_run: bool, as_json: bool
) -> dict[str, Any]:
    """Requests the planned erasure unless `dry_run`, and shows the plan unless `as_json`. Returns its report."""
    if not dry_run:
        request_erasure(spark, pipeline, plan)
    keys = plan.keys.count()
    if not as_json:
        _show(pipeline, plan, keys, dry_run)
    return _request_json(pipeline, plan, keys, dry_run)


def _require_readable(pipeline: Pipeline, left: list[dict[str, Any]]) -> None:
    """Raises ConfigError if the topic holds records that are no requests; all other requests are complete by then."""
    if left and pipeline.privacy is not None:
        first = left[0]
        raise ConfigError(
            f"{len(left)} records of topic {pipeline.privacy.request_topic} are no requests; the first, partition "
            f"{first['partition']}, offset {first['offset']}: {first['why']}",
            'write these requests again, {"subject": "member:42"}, and delete the invalid records from the topic '
            "(kafka-delete-records)",
        )


def _execute_requests(
    spark: SparkSession, pipeline: Pipeline, keep_hours: int | None, quiet: bool, reads_topic: bool
) -> tuple[dict[str, Any], list[IngestError]]:
    """Executes all open requests: from this command, from the request topic, and from deletes at the source. Returns
    its report, and an error that tells which tables were left, if any."""
    removal, report_place = Removal(spark, pipeline, keep_hours), _print_nothing if quiet else _print_place
    requests, unreadable = requests_in_topic(spark, pipeline) if reads_topic else ([], [])
    if requests:
        request_erasure(spark, pipeline, plan_requests(spark, pipeline, requests))
    outcome = removal.run(report_place)
    deleted = requests_by_deletes(spark, pipeline)
    if deleted.requests:
        request_erasure(spark, pipeline, plan_requests(spark, pipeline, deleted.requests))
    deleted.remember()
    if deleted.requests:
        outcome = removal.run(report_place)
    beyond = uncovered_locations(pipeline, datetime.now(UTC)) if outcome.requests else []
    if not quiet:
        typer.echo(_result_text(pipeline.name, outcome))
        for one in beyond:
            typer.echo(f"not covered: {one.place}: {one.what}{_until_text(one)}")
    requested = {"asked_in_topic": len(requests), "deleted_at_source": len(deleted.requests)}
    report = _outcome_json(outcome) | requested
    report |= {
        "out_of_reach": [*map(_location_json, beyond)],
        "unreadable_requests": [asdict(one) for one in unreadable],
    }
    return report, [] if outcome.left is None else [outcome.left]


def _print_nothing(*_: object) -> None:
    """Reports nothing: with `--json` everything is printed at the end."""


def _print_place(place: str, taken: Mapping[str, int]) -> None:
    typer.echo(f"{place}: " + ", ".join(f"{count:,} {what}" for what, count in taken.items()))


def _outcome_json(outcome: RemovalOutcome) -> dict[str, Any]:
    until = outcome.remain_until.isoformat(timespec="seconds") if outcome.remain_until else None
    return {"removed": {place: dict(taken) for place, taken in outcome.taken.items()}, "old_files_remain_until": until}


def _location_json(beyond: UncoveredLocation) -> dict[str, str | None]:
    until = None if beyond.until is None else beyond.until.isoformat(timespec="minutes")
    return {"place": beyond.place, "what": beyond.what, "until": until}


def _until_text(beyond: UncoveredLocation) -> str:
    return "" if beyond.until is None else f", by {beyond.until.astimezone().isoformat(sep=' ', timespec='minutes')}"


def _result_text(pipeline: str, outcome: RemovalOutcome) -> str:
    if not outcome.requests:
        return "there is no request to erase anything"
    if outcome.left is not None:
        return "removed from all other tables"
    if outcome.remain_until is None:
        return "removed, and the old files of all affected tables are deleted"
    at = outcome.remain_until.astimezone().isoformat(sep=" ", timespec="minutes")
    return f"removed; bytes remain in old files: run `ingest erase {pipeline}` after {at} to delete these"


def _treatment(pipeline: Pipeline, place: str, table: str) -> str:
    return "masked" if place == SILVER and pipeline.tables[table].masks else "removed"


def _request_json(pipeline: Pipeline, plan: ErasurePlan, keys: int, dry_run: bool) -> dict[str, Any]:
    found = [
        {"place": place, "table": table, "count": count, "becomes": _treatment(pipeline, place, table)}
        for (place, table), count in plan.counts.items()
    ]
    requests = [] if dry_run else [r.entry.request for r in plan.requests]
    return {"subjects": len(plan.requests), "found": found, "keys": keys, "requests": requests}


def _show(pipeline: Pipeline, plan: ErasurePlan, keys: int, dry_run: bool) -> None:
    title = "would be removed" if dry_run else "to be removed"
    table = Table("place", "table", "rows or events", "", title=title)
    for (place, name), count in plan.counts.items():
        table.add_row(place, name, f"{count:,}", _treatment(pipeline, place, name))
    console = plain_console()
    console.print(table)
    for request in plan.requests if not dry_run else ():
        # The subject's key comes from the command line; it is not stored anywhere.
        console.print(f"requested: {request.entry.request} ({request.entry.subject})")
    typer.echo("dry run: nothing was requested" if dry_run else f"{keys:,} keys are suppressed: {_SUPPRESSED}")
