"""`ingest scan`: looks for a subject's values in a pipeline's places. Needs no Spark, except for those that were
collected."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ingest.cli import personal
from ingest.cli.printing import plain_console
from ingest.config import Pipeline, load
from ingest.errors import ConfigError, ProofFailed
from ingest.proof.needles.terms import CollectedTerms
from ingest.proof.scan import Folder, Report, SearchTerm
from ingest.proof.scan.search_terms import parse_search_terms
from ingest.proof.search import known_columns, places_of, scan_with_canaries
from ingest.spark.spill_folders import left_behind

EXIT_FOUND = 1
_SHOWN = 100


def scan(
    pipeline: Annotated[str, typer.Argument(help="A pipeline's name or file.")],
    needle_file: Annotated[
        str | None, typer.Option("--needle-file", help='JSON: {"email": "…", …}. "-" reads it from stdin.')
    ] = None,
    request: Annotated[
        str | None, typer.Option(help="A request of `ingest erase`: search for the values collected for it.")
    ] = None,
    folder: Annotated[
        list[Path] | None,
        typer.Option(help="One more place, such as a broker's log folder or a checkpoint. May be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole report as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Read every byte and column of a pipeline's places and search them for a subject's values, in every encoding.

    With a request, the values that were collected from its subject's events
    are searched for, but for those that other subjects have too.

    More values come from a file, never from arguments, and are not printed. A
    number or a short text needs the columns in which to search: {"member":
    {"value": 42, "columns": ["id"]}}. A value may have a type (date, time,
    timestamp, decimal, uuid, bytes): {"born": {"value": "1961-02-03", "type":
    "date"}}. What Spark has written outside of tables and a killed process
    has left is read too. Exits with 1 if anything is found.

    Example: ingest scan claims --request 7c1f… --needle-file more.json
    """
    del debug
    loaded = load(pipeline)
    known = known_columns(loaded)
    terms = known.resolved(read_search_terms(needle_file) if needle_file is not None else ())
    collected = None if request is None else _collected(loaded, request)
    places, left_out = places_of(loaded)
    places += [Folder(path.expanduser().absolute()) for path in (*left_behind(loaded.spark), *(folder or ()))]
    report = scan_with_canaries(places, terms, left_out, [*known.columns], collected)
    if as_json:
        typer.echo(json.dumps(asdict(report), ensure_ascii=False))
    else:
        _show(plain_console(), report)
    if not report.valid:
        missed = [f"{s.place}, {s.format}: {name}" for s in report.canaries for name in s.missed]
        raise ProofFailed(
            f"the scan missed {len(missed):,} of its canaries, such as {missed[0]}",
            "values may remain that it can't find: report this with the version and the platform",
        )
    if not report.clean:
        raise typer.Exit(EXIT_FOUND)


def _collected(pipeline: Pipeline, request: str) -> CollectedTerms:
    """Returns the search terms that were collected for a request. Raises ConfigError if there are none."""
    # Imported here: a scan for given values needs no Spark.
    from ingest.cli.guarded import guarded
    from ingest.erasure.certifying import collected_needles
    from ingest.spark.session import running

    with running(f"ingest scan {pipeline.name}", pipeline.session) as spark, guarded(spark, pipeline):
        collected = collected_needles(spark, pipeline, request)
    if collected is None:
        raise ConfigError(
            f"no values are kept of request {request}: none were collected, they were too old, or its certificate was "
            "issued",
            "give the subject's values: --needle-file FILE",
        )
    return collected


def read_search_terms(file: str) -> tuple[SearchTerm, ...]:
    """Returns the search terms in a file, or in stdin if it is "-". Raises ConfigError, which quotes none of them."""
    return parse_search_terms(personal.read(file, "--needle-file"))


def _show(console: Console, report: Report) -> None:
    read = _table("read", "place", "kind", "files", "bytes", "decoded")
    for kind in report.read:
        read.add_row(kind.place, kind.kind, f"{kind.files:,}", f"{kind.bytes:,}", f"{kind.decoded_bytes:,}")
    console.print(read)
    if report.not_scanned:
        absent = _table(f"{len(report.not_scanned):,} not scanned", "place", "file", "why")
        for unread in report.not_scanned[:_SHOWN]:
            absent.add_row(unread.place, unread.file, unread.why)
        console.print(absent)
    if report.findings:
        found = _table("found", "place", "file", "part", "searched value", "form", "times")
        for f in report.findings[:_SHOWN]:
            found.add_row(f.place, f.file, f.part, f.needle, f.form, f"{f.count:,}")
        console.print(found)
    if max(len(report.not_scanned), len(report.findings)) > _SHOWN:
        console.print(f"at most {_SHOWN} rows of each table are shown; --json prints all")
    console.print(f"canaries: {sum(s.canaries for s in report.canaries):,} planted, {_missed(report):,} missed")
    if report.collected:
        collected = _table("values from the subject's events", "column", "searched", "shared with others")
        for column in report.collected:
            collected.add_row(column.column, f"{column.values:,}", f"{column.shared:,}")
        console.print(collected)
    if report.not_decided:
        undecided = _table(f"{len(report.not_decided):,} not decided", "searched value", "form", "why")
        for one in report.not_decided:
            undecided.add_row(one.needle, one.form, one.why)
        console.print(undecided)
    limited = ", ".join(f"{n.label} in {' and '.join(n.columns)}" for n in report.needles if n.columns)
    if limited:
        console.print(f"searched only as a whole value of a column or JSON key: {limited}")
    console.print(f"{len(report.findings):,} residues" if report.findings else "nothing was found in what was scanned")


def _table(title: str, *headings: str) -> Table:
    """Returns a table whose cells are folded, never cut off: paths have to be readable in full."""
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _missed(report: Report) -> int:
    return sum(len(s.missed) for s in report.canaries)
