"""`ingest archive`: writes, verifies and restores from the archive of a changelog in an object store."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from ingest.archive import Damage, Manifest, StoredObject
from ingest.backfill import restoring
from ingest.cli.guarded import guarded
from ingest.cli.pipeline.run import stop_on_signal
from ingest.cli.printing import plain_console
from ingest.cli.progress import progress_display
from ingest.cli.progress_bars import progress_bar
from ingest.cli.waiting import retry_while_away, wait_reporter
from ingest.config import load
from ingest.errors import EXIT_TRANSIENT
from ingest.failures.conversion import converting_errors
from ingest.pipeline.archiving import archiving_of
from ingest.pipeline.composition import Progress, archive_of, layout_of
from ingest.pipeline.retrying import OnProgress, Retries
from ingest.spark.session import running

EXIT_DAMAGED = 1

app = typer.Typer(help="The archive of the raw changelog in S3-compatible storage.", no_args_is_help=True)
Named = Annotated[str, typer.Argument(help="A pipeline's name or file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")]


@app.command()
def run(pipeline: Named, as_json: AsJson = False, debug: Debug = False) -> None:
    """Archive the records that were captured since the last run. Safe to repeat: an interrupted run leaves nothing
    half done, and a run without new records adds nothing.

    Example: ingest archive run claims
    """
    del debug
    loaded = load(pipeline)
    archive_of(loaded)  # Raises ConfigError before Spark starts.
    written: list[Manifest] = []
    with running("ingest archive", loaded.session) as spark, guarded(spark, loaded, as_json), stop_on_signal() as stop:

        def archive(progressed: OnProgress) -> None:
            archiving = archiving_of(spark, loaded)
            with progress_bar("records", as_json, archiving.waiting) as advance:
                while not stop.is_set() and (manifest := archiving.step()) is not None:
                    progressed()
                    written.append(manifest)
                    advance(manifest.records)
                    if not as_json:
                        typer.echo(f"archived {manifest.records:,} records in {len(manifest.objects):,} objects")

        Retries(spark, loaded, stop, wait_reporter(as_json))(archive)
        if stop.is_set():
            raise typer.Exit(EXIT_TRANSIENT)
    if as_json:
        typer.echo(json.dumps({**_manifests(written), **_sums([o for m in written for o in m.objects])}))
    elif not written:
        typer.echo("there are no new records since the last run")


@app.command()
def restore(pipeline: Named, as_json: AsJson = False, debug: Debug = False) -> None:
    """Restore a lost lakehouse, or start a new one, from the archive: bronze, and silver from it.

    Afterwards `ingest run` continues with the records in the topics after the
    archive's end. An interrupted restore continues when it is repeated.

    Example: ingest archive restore claims
    """
    del debug
    loaded = load(pipeline)
    with (
        running("ingest archive", loaded.session) as spark,
        guarded(spark, loaded, as_json),
        stop_on_signal() as stop,
        progress_display(loaded.name, as_json) as report,
    ):
        retries = Retries(spark, loaded, stop, wait_reporter(as_json))
        retries(lambda progressed: restoring.restore(spark, loaded, stop, _report_both(progressed, report)))
        if stop.is_set():
            raise typer.Exit(EXIT_TRANSIENT)


@app.command()
def verify(pipeline: Named, as_json: AsJson = False, debug: Debug = False) -> None:
    """Read every object of the archive and check that none is missing, truncated or altered.

    Exits with 1 if one is, and names the affected events. An archive that a
    connector writes allows fewer checks; the output lists those that are not
    possible.

    Example: ingest archive verify claims
    """
    del debug
    loaded = load(pipeline)
    with running("ingest archive", loaded.session) as spark, converting_errors(loaded):
        layout = layout_of(spark, loaded)

        def check(progressed: OnProgress) -> tuple[Sequence[StoredObject], Sequence[Damage]]:
            objects = layout.objects()
            progressed()
            with progress_bar("objects", as_json, lambda: len(objects)) as advance:
                return objects, layout.damages(spark, objects, lambda some: advance(len(some)))

        objects, found = retry_while_away(spark, loaded, as_json, check)
    if as_json:
        checked = {"damaged": [asdict(d) for d in found], "unchecked": layout.unchecked}
        typer.echo(json.dumps({**_sums(objects), **checked}))
    else:
        _show(objects, found, layout.unchecked)
    if found:
        raise typer.Exit(EXIT_DAMAGED)


def _report_both(progressed: OnProgress, report: Callable[[Progress], None]) -> Callable[[Progress], None]:
    def reported(progress: Progress) -> None:
        progressed()
        report(progress)

    return reported


def _show(objects: Sequence[StoredObject], found: Sequence[Damage], unchecked: Sequence[str]) -> None:
    sums = _sums(objects)
    typer.echo(f"{sums['records']:,} records in {sums['objects']:,} objects, {sums['bytes']:,} bytes, were read")
    table = Table("object", "what", "events", title="damaged")
    for damage in found:
        table.add_row(damage.key, damage.what, damage.events)
    if found:
        plain_console().print(table)
    else:
        typer.echo(
            "all are unaltered" if not unchecked else "each holds the offsets that its name and the next one tell"
        )
    for what in unchecked:
        typer.echo(f"not checked: {what}")


def _manifests(written: Sequence[Manifest]) -> dict[str, int]:
    return {"manifests": len(written), "upto_batch": max((m.upto_batch for m in written), default=0)}


def _sums(objects: Sequence[StoredObject]) -> dict[str, int]:
    return {
        "objects": len(objects),
        "records": sum(o.records for o in objects),
        "bytes": sum(o.size for o in objects),
    }
