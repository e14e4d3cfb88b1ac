"""Registers every command of `ingest`. Each prints a table, or JSON with `--json`."""

from __future__ import annotations

import typer

from ingest.cli import jars, schema, stack
from ingest.cli.demo import demo
from ingest.cli.erasure import certificate, erase, ledger, rewrap, scan
from ingest.cli.lakehouse import accounts, as_of, digest, gc, history, prove, sql, vacuum
from ingest.cli.pipeline import archive, backfill, check, connector, replay, resync, run, status

app = typer.Typer(
    help="Database changelogs into lakehouse tables that people can trust.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(check.check)
app.command()(schema.schema)
app.command()(run.run)
app.command()(backfill.backfill)
app.command()(resync.resync)
app.command()(prove.prove)
app.command("as-of")(as_of.as_of)
app.command()(replay.replay)
app.command()(status.status)
app.command()(sql.sql)
app.command()(accounts.accounts)
app.command()(digest.digest)
app.command()(history.history)
app.command()(gc.gc)
app.command("vacuum")(vacuum.vacuum_tables)
app.command()(erase.erase)
app.command()(rewrap.rewrap)
app.command()(scan.scan)
app.command()(jars.jars)
app.command()(demo)
app.add_typer(archive.app, name="archive")
app.add_typer(certificate.app, name="certificate")
app.add_typer(connector.app, name="connector")
app.add_typer(ledger.app, name="ledger")
app.add_typer(stack.app, name="stack")
