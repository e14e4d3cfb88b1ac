"""`ingest status`: shows the position, the lag and the tables of a pipeline."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ingest.cli.printing import plain_console
from ingest.cli.start import count_text
from ingest.config import load
from ingest.failures.conversion import converting_errors
from ingest.spark.session import running

if TYPE_CHECKING:
    from ingest.lakehouse.accounts import SetAside
    from ingest.pipeline.lag import SourceLag
    from ingest.pipeline.ledger_guard import LedgerReport
    from ingest.pipeline.status import Status

_CHANGES_SHOWN = 20


def status(
    pipeline: Annotated[str, typer.Argument(help="A pipeline's name or file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Show how far a pipeline has read and merged, its lag, its last batch, schema changes and tables that are set
    aside; and for each table the number of rows, pending rows, tombstones and quarantined events.

    Example: ingest status claims
    """
    del debug
    from ingest.pipeline import status as standing
    from ingest.pipeline.ledger_guard import require_no_fault, require_not_held

    loaded = load(pipeline)
    with running("ingest status", loaded.session) as spark, converting_errors(loaded):
        found = standing.status(spark, loaded.name, loaded.layout, loaded)
    console = plain_console(soft_wrap=True)
    if as_json:
        console.out(json.dumps(figures(found), ensure_ascii=False, default=lambda moment: moment.isoformat()))
    else:
        _show(console, found)
    if found.ledger is not None:
        require_no_fault(loaded, found.ledger.faults)
        require_not_held(found.ledger.held)


def figures(found: Status) -> dict[str, Any]:
    """Returns what `--json` prints."""
    return asdict(found) | {"waiting": found.waiting}


def _show(console: Console, found: Status) -> None:
    for label, text in _lines(found):
        console.print(f"{label}: {text}")
    if not found.tables:
        console.print("no table yet")
        return
    table = Table("table", "primary key", "rows", "pending", "tombstones", "quarantined")
    for t in found.tables:
        counts = (f"{n:,}" for n in (t.rows, t.pending, t.tombstones, t.quarantined))
        table.add_row(t.table, ", ".join(t.primary_key) or "(none)", *counts)
    console.print(table)


def _lines(found: Status) -> list[tuple[str, str]]:
    waiting = f"{count_text(found.waiting, 'batch')} of them not merged yet" if found.waiting else "all merged"
    lines = [
        ("lag", _lag_text(found.lag, found.waiting)),
        ("last batch", _last_batch_text(found)),
        ("bronze", f"{count_text(found.records, 'record')} in {count_text(found.captured, 'batch')}, {waiting}"),
    ]
    set_aside = [_set_aside_text(one) for one in found.set_aside.values()]
    for number, tables in found.set_aside_by_backfills.items():
        set_aside += [f"by backfill {number}: {_set_aside_text(one)}" for one in tables.values()]
    lines += [("set aside", text) for text in set_aside or ["no table"]]
    for one in found.tables:
        if one.refold:
            command = f"ingest backfill {found.pipeline} --rebuild --table {one.table}"
            remedy = f"ingest run folds it from them, as does {command}"
            lines.append(("fold anew", f"{one.table}: {one.refold}, which its events tell → {remedy}"))
        for column, rows in one.unknown.items():
            text = f"{one.table}: {count_text(rows, 'row')} from before column {column} may have a value at the source"
            lines.append(("unknown", f"{text} → ingest resync {found.pipeline} {one.table}"))
        for column, rows in one.assumed.items():
            text = f"{one.table}: {count_text(rows, 'row')} from before column {column} was added or got its type"
            remedy = f"ingest resync {found.pipeline} {one.table}"
            lines.append(("assumed", f"{text} may have another value at the source → {remedy}"))
        for setting, column in one.gone:
            text = f"{one.table}: no row gets a value in column {column} any more, which {setting} names"
            lines.append(("column gone", f"{text} → if it has another name now, name that too"))
    if found.ledger is not None and (found.ledger.entries or found.ledger.faults):
        lines.append(("erasures", _ledger_text(found.ledger)))
        held = (f"the source still holds subject {s.key_hash} of {s.table}" for s in found.ledger.held)
        lines += [("still held", text) for text in held]
        lines.append(("erased events", f"{count_text(found.emptied, 'event')} in bronze without content"))
    shown = found.schema_changes[:_CHANGES_SHOWN]
    lines += [("schema change", f"{c.at:%Y-%m-%d %H:%M:%S} UTC, {c.table}: {c.change}") for c in shown]
    if len(found.schema_changes) > len(shown):
        lines.append(("schema changes", f"{len(found.schema_changes) - len(shown):,} older ones; --json has them"))
    elif not shown:
        lines.append(("schema changes", "none"))
    return lines + [("quarantine", f"{count:,} × {code}") for code, count in found.quarantined.items()]


def _ledger_text(ledger: LedgerReport) -> str:
    requests = count_text(ledger.requests, "request")
    if ledger.faults:
        return f"{requests}; the ledger is incomplete: entry {ledger.faults[0].number} {ledger.faults[0].problem}"
    if ledger.unknown:
        return f"{requests}; the ledger could not be compared with its copy: {ledger.unknown}"
    return f"{requests} in the ledger, which is copied up to entry {ledger.copied:,} of {ledger.entries:,}"


def _set_aside_text(one: SetAside) -> str:
    since = f"{one.since:%Y-%m-%d %H:%M:%S} UTC"
    return f"{one.reason}; since {since} {count_text(one.events, 'event')} wait from batch {one.after + 1:,} on"


def _lag_text(lag: SourceLag | None, waiting: int) -> str:
    if lag is None or lag.records is None:
        return f"unknown: {lag.unknown if lag else 'the source was not queried'}"
    if lag.seconds == 0 and not lag.records and not waiting:
        return "none: silver holds everything in Kafka"
    behind = f"at most {lag.seconds:,.1f} s" if lag.seconds is not None else f"unknown in seconds, {lag.unknown}"
    return f"{behind}; {count_text(lag.records, 'record')} to capture, {count_text(waiting, 'batch')} to merge"


def _last_batch_text(found: Status) -> str:
    last = found.last_batch
    if last is None:
        return "none yet"
    return f"{last.at:%Y-%m-%d %H:%M:%S} UTC, {count_text(last.events, 'event')} (up to capture batch {last.upto:,})"
