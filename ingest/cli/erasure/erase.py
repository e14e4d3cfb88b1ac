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

from ingest.cli import personal
from ingest.cli.printing import verbatim
from ingest.cli.waiting import retry_while_away
from ingest.config import Pipeline, load
from ingest.erasure.removal import Outcome, Removal
from ingest.erasure.request import Asked, Named, ask, found, found_of, written_by_now
from ingest.erasure.request_topic import asked_in_topic
from ingest.erasure.source_deletes import asked_by_deletes
from ingest.erasure.subject_search import SILVER
from ingest.erasure.uncovered_locations import Beyond, out_of_reach
from ingest.errors import ConfigError
from ingest.failures.explained import explaining
from ingest.spark.session import running

_REMAINS = "from now on nothing of it that was written by now gets into a table"


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
    every: Annotated[
        str | None,
        typer.Option("--all", "--subject-file", help='A file of subjects, one a line; "-" reads them from stdin.'),
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why. It is kept: write nothing personal.")] = None,
    upto: Annotated[
        CutoffAt,
        typer.Option("--upto", help="The old life: all that the topics hold now or, without asking them, bronze."),
    ] = CutoffAt.TOPICS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")] = False,
    ask_only: Annotated[bool, typer.Option("--ask-only", help="Remove nothing yet: a later run does.")] = False,
    keep_hours: Annotated[
        int | None,
        typer.Option("--keep-old-files", min=0, help="Hours, in place of privacy: {keep_old_files_hours: …}."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Erase subjects: remove their rows and all rows that lead to them over foreign keys.

    A request takes effect at once: every event of the subject that was written before it is suppressed, whether it
    comes from the topics, an archive or a backfill. Rows that begin later are merged as usual. Then the stored data is
    removed.

    Without a subject: read requests from the topic (privacy: {request_topic: …}), continue earlier requests, and delete
    the old files that are due.

    Example: ingest erase claims --subject member:42 --reason "asked by letter"
    """
    del debug
    loaded = load(pipeline)
    subjects = _subjects(subject, every)
    if not subjects and (dry_run or ask_only):
        raise ConfigError("whom to erase is not clear", "give either --subject or --all")
    told: dict[str, Any] = {"dry_run": dry_run}
    with running(f"ingest erase {loaded.name}", loaded.session) as spark, explaining(loaded):
        if subjects:
            cutoff = written_by_now(spark, loaded, upto is CutoffAt.TOPICS and not dry_run)
            asked = found(spark, loaded, subjects, reason, cutoff)
            if not dry_run:
                ask(spark, loaded, asked)
            keys = asked.keys.count()
            told |= _plain(loaded, asked, keys, dry_run)
            if not as_json:
                _show(loaded, asked, keys, dry_run)
        if not dry_run and not ask_only:
            asks_topic = not subjects
            told |= retry_while_away(
                spark, loaded, as_json, lambda _: _worked_off(spark, loaded, keep_hours, as_json, asks_topic)
            )
    if as_json:
        typer.echo(json.dumps(told, ensure_ascii=False))
    _require_readable(loaded, told.get("unreadable_requests", []))


def _require_readable(pipeline: Pipeline, left: list[dict[str, Any]]) -> None:
    """Raises ConfigError if the topic holds records that are no requests; all other requests are complete by then."""
    if left and pipeline.privacy is not None:
        first = left[0]
        raise ConfigError(
            f"{len(left)} records of topic {pipeline.privacy.request_topic} are no requests; the first, partition "
            f"{first['partition']}, offset {first['offset']}: {first['why']}",
            'ask for these anew, {"subject": "member:42"}, and delete the records up to there from the topic '
            "(kafka-delete-records)",
        )


def _worked_off(
    spark: SparkSession, pipeline: Pipeline, keep_hours: int | None, quiet: bool, asks_topic: bool
) -> dict[str, Any]:
    """Executes all open requests: from this command, from the request topic, and from deletes at the source."""
    removal, seen = Removal(spark, pipeline, keep_hours), _nothing if quiet else _tell
    requests, unreadable = asked_in_topic(spark, pipeline) if asks_topic else ([], [])
    if requests:
        ask(spark, pipeline, found_of(spark, pipeline, requests))
    outcome = removal.run(seen)
    deleted = asked_by_deletes(spark, pipeline)
    if deleted.requests:
        ask(spark, pipeline, found_of(spark, pipeline, deleted.requests))
    deleted.remember()
    if deleted.requests:
        outcome = removal.run(seen)
    beyond = out_of_reach(pipeline, datetime.now(UTC)) if outcome.requests else []
    if not quiet:
        typer.echo(_end(pipeline.name, outcome))
        for one in beyond:
            typer.echo(f"out of reach: {one.place}: {one.what}{_by(one)}")
    asked = {"asked_in_topic": len(requests), "deleted_at_source": len(deleted.requests)}
    left = [asdict(one) for one in unreadable]
    return _removed(outcome) | asked | {"out_of_reach": [*map(_said, beyond)], "unreadable_requests": left}


def _nothing(*_: object) -> None:
    """Reports nothing: with `--json` everything is printed at the end."""


def _tell(place: str, taken: Mapping[str, int]) -> None:
    typer.echo(f"{place}: " + ", ".join(f"{count:,} {what}" for what, count in taken.items()))


def _removed(outcome: Outcome) -> dict[str, Any]:
    until = outcome.remain_until.isoformat(timespec="seconds") if outcome.remain_until else None
    return {"removed": {place: dict(taken) for place, taken in outcome.taken.items()}, "old_files_remain_until": until}


def _said(beyond: Beyond) -> dict[str, str | None]:
    until = None if beyond.until is None else beyond.until.isoformat(timespec="minutes")
    return {"place": beyond.place, "what": beyond.what, "until": until}


def _by(beyond: Beyond) -> str:
    return "" if beyond.until is None else f", by {beyond.until.astimezone().isoformat(sep=' ', timespec='minutes')}"


def _end(pipeline: str, outcome: Outcome) -> str:
    if not outcome.requests:
        return "nothing was ever asked to be erased"
    if outcome.remain_until is None:
        return "removed, with the old files of every table that held it"
    at = outcome.remain_until.astimezone().isoformat(sep=" ", timespec="minutes")
    return f"removed; bytes remain in old files, which go with `ingest erase {pipeline}` after {at}"


def _subjects(subject: str | None, file: str | None) -> list[Named]:
    if subject is not None and file is not None:
        raise ConfigError("whom to erase is not clear", "give either --subject or --all")
    file = personal.STDIN if subject == personal.STDIN else file
    if subject is None and file is None:
        return []
    lines = [subject or ""] if file is None else personal.read(file, "--subject or --all").splitlines()
    found = [Named.parsed(line) for line in lines if line.strip()]
    if not found:
        raise ConfigError(f"{file or 'the subject'} names nobody", "write a subject a line, such as member:42")
    if subject is not None and len(found) > 1:
        raise ConfigError("--subject names more than one subject", "give several with --all")
    return list(dict.fromkeys(found))


def _becomes(pipeline: Pipeline, place: str, table: str) -> str:
    return "masked" if place == SILVER and pipeline.tables[table].masks else "removed"


def _plain(pipeline: Pipeline, asked: Asked, keys: int, dry_run: bool) -> dict[str, Any]:
    found = [
        {"place": place, "table": table, "count": count, "becomes": _becomes(pipeline, place, table)}
        for (place, table), count in asked.counts.items()
    ]
    requests = [] if dry_run else [r.entry.request for r in asked.requests]
    return {"subjects": len(asked.requests), "found": found, "keys": keys, "requests": requests}


def _show(pipeline: Pipeline, asked: Asked, keys: int, dry_run: bool) -> None:
    title = "what would go" if dry_run else "what is to go"
    table = Table("place", "table", "rows or events", "", title=title)
    for (place, name), count in asked.counts.items():
        table.add_row(place, name, f"{count:,}", _becomes(pipeline, place, name))
    console = verbatim()
    console.print(table)
    for request in asked.requests if not dry_run else ():
        # The subject's key comes from the command line; it is not stored anywhere.
        console.print(f"asked: {request.entry.request} ({request.entry.subject})")
    typer.echo("nothing was asked for: a dry run" if dry_run else f"{keys:,} keys are fenced: {_REMAINS}")
