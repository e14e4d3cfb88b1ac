"""`ingest archive`: the changelog as it came, in an object store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ingest.archive import Manifest, ObjectStore
from ingest.archive.manifest import manifests
from ingest.archive.reading import damages
from ingest.config import Pipeline, load
from ingest.errors import ConfigError
from ingest.run.archiving import Archiving
from ingest.session import running
from ingest.tables.bronze import Bronze

EXIT_DAMAGED = 1

app = typer.Typer(help="The changelog as it came, in S3-compatible storage.", no_args_is_help=True)
Named = Annotated[str, typer.Argument(help="A pipeline's name or file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")]


@app.command()
def run(pipeline: Named, as_json: AsJson = False, debug: Debug = False) -> None:
    """Archive what was captured since the last time. A run that was stopped is repeated; one too many adds nothing.

    Example: ingest archive run claims
    """
    del debug
    loaded = load(pipeline)
    store = _store(loaded)
    written = []
    with running("ingest archive", loaded.spark) as spark:
        bronze = Bronze(spark, loaded.layout.bronze(loaded.name), loaded.source.epochs)
        archiving = Archiving(spark, bronze, store, loaded.name)
        while (manifest := archiving.step()) is not None:
            written.append(manifest)
            if not as_json:
                typer.echo(f"archived {manifest.records:,} records in {len(manifest.objects):,} objects")
    if as_json:
        typer.echo(json.dumps(_sums(written)))
    elif not written:
        typer.echo("nothing is new since the last time")


@app.command()
def verify(pipeline: Named, as_json: AsJson = False, debug: Debug = False) -> None:
    """Read every object and hold it against its manifest: none is missing, truncated or altered.

    Exits with 1 where one is, and says which events are affected.

    Example: ingest archive verify claims
    """
    del debug
    loaded = load(pipeline)
    store = _store(loaded)
    written = list(manifests(store, loaded.name))
    with running("ingest archive", loaded.spark) as spark:
        found = damages(spark, store, [o for manifest in written for o in manifest.objects])
    if as_json:
        typer.echo(json.dumps({**_sums(written), "damaged": [asdict(d) for d in found]}))
    else:
        sums = _sums(written)
        typer.echo(f"{sums['records']:,} records in {sums['objects']:,} objects, {sums['bytes']:,} bytes, were read")
        table = Table("object", "what", "events", title="damaged")
        for damage in found:
            table.add_row(damage.key, damage.what, damage.events)
        if found:
            Console(highlight=False).print(table)
        else:
            typer.echo("each is what was written")
    if found:
        raise typer.Exit(EXIT_DAMAGED)


def _store(pipeline: Pipeline) -> ObjectStore:
    if pipeline.archive is None:
        raise ConfigError(
            f"pipeline {pipeline.name} has no archive", "name one in its file: archive: {uri: s3://bucket/prefix}"
        )
    return ObjectStore(pipeline.archive.uri, dict(pipeline.archive.s3))


def _sums(written: Sequence[Manifest]) -> dict[str, int]:
    objects = [o for manifest in written for o in manifest.objects]
    return {
        "manifests": len(written),
        "objects": len(objects),
        "records": sum(o.records for o in objects),
        "bytes": sum(o.size for o in objects),
        "upto_batch": max((m.upto_batch for m in written), default=0),
    }
