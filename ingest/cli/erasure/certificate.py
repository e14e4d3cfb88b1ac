"""`ingest certificate`: makes signing keys, and issues and verifies certificates of erasure."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ingest.cli.erasure.scan import read_search_terms
from ingest.cli.guarded import guarded
from ingest.config import load
from ingest.erasure.certifying import collected_needles, erasure_of
from ingest.erasure.needle_collection import sealed_file
from ingest.proof.certificate import Verdict, issue_certificate, verify_certificate
from ingest.proof.certificate.keys import make_key_pair, public_key, signing_key
from ingest.proof.scan import Folder
from ingest.proof.search import known_columns, places_of, scan_with_canaries
from ingest.spark.session import running
from ingest.spark.spill_folders import left_behind

EXIT_ALTERED = 1
EXIT_SIGNER_UNKNOWN = 3

app = typer.Typer(help="Certificates of erasure.", no_args_is_help=True)
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")]


@app.command()
def key(
    file: Annotated[Path, typer.Argument(help="File for the new private key; the public key is FILE.pub.")],
    debug: Debug = False,
) -> None:
    """Make a key pair that signs certificates. Keep the private key readable by its owner alone and outside of
    lakehouses.

    Example: ingest certificate key ~/.ingest/erasure.pem
    """
    del debug
    public_file = make_key_pair(file.expanduser())
    typer.echo(f"private key: {file}\npublic key: {public_file}")


@app.command()
def issue(
    pipeline: Annotated[str, typer.Argument(help="A pipeline's name or file.")],
    request: Annotated[str, typer.Argument(help="The request's number, as printed by `ingest erase`.")],
    key: Annotated[Path, typer.Option("--key", help="The private key that signs.")],
    needle_file: Annotated[
        str | None,
        typer.Option("--needle-file", help='More of the subject\'s values, as for `ingest scan`. "-" reads stdin.'),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the certificate's two files.", file_okay=False)] = Path(),
    folder: Annotated[list[Path] | None, typer.Option(help="One more place to scan. May be repeated.")] = None,
    debug: Debug = False,
) -> None:
    """Scan a pipeline's places for a subject's values and, if none is found, write a signed certificate of the
    erasure.

    The values are those that were collected when the erasure was requested,
    which are destroyed afterwards, and those of the file.

    Fails if a value is found, the scan misses a canary, or the request isn't
    complete.

    Example: ingest certificate issue claims 7c1f… --key ~/.ingest/erasure.pem
    """
    del debug
    loaded = load(pipeline)
    known = known_columns(loaded)
    terms = known.resolved(read_search_terms(needle_file) if needle_file is not None else ())
    places, left_out = places_of(loaded)
    places += [Folder(path.expanduser().absolute()) for path in folder or ()]
    signer = signing_key(key, [place.path for place in places if isinstance(place, Folder)])
    with running(f"ingest certificate {loaded.name}", loaded.session) as spark, guarded(spark, loaded):
        erasure = erasure_of(spark, loaded, request)
        collected = collected_needles(spark, loaded, request)
    places += [Folder(path) for path in left_behind(loaded.spark)]
    report = scan_with_canaries(places, terms, left_out, [*known.columns], collected)
    certificate = issue_certificate(erasure, report, signer, datetime.now(UTC))
    out.mkdir(parents=True, exist_ok=True)
    for file in certificate.write(out, f"erasure-{request}"):
        typer.echo(str(file))
    if sealed_file(loaded, request).destroy():
        typer.echo("the values that were collected of the subject are destroyed")


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="A certificate: its JSON or its HTML file.")],
    key: Annotated[Path | None, typer.Option("--public-key", help="The issuer's public key.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Check with the issuer's public key that a certificate is the issuer's and unaltered.

    Exits with 1 if anything was altered or another key signed it, and with 3
    if no public key is given: then nobody knows who signed it.

    Example: ingest certificate verify erasure-17.json --public-key erasure.pem.pub
    """
    del debug
    verdict = verify_certificate(file, None if key is None else public_key(key))
    if as_json:
        fields = asdict(verdict)
        fields["said"] = fields.pop("content")
        typer.echo(json.dumps({"genuine": verdict.genuine, **fields}, ensure_ascii=False))
    else:
        _print(verdict)
    if verdict.broken:
        raise typer.Exit(EXIT_ALTERED)
    if not verdict.genuine:
        typer.echo("→ give the issuer's public key, which the issuer publishes: --public-key FILE", err=True)
        raise typer.Exit(EXIT_SIGNER_UNKNOWN)


def _print(verdict: Verdict) -> None:
    if verdict.broken:
        for sentence in verdict.broken:
            typer.echo(f"BROKEN: {sentence}")
        return
    for sentence in verdict.open:
        typer.echo(f"NOT DECIDED: {sentence}")
    # Without a signer, that a signature fits means nothing.
    for sentence in verdict.holds if verdict.genuine else ():
        typer.echo(f"holds: {sentence}")
    if verdict.content is not None:
        content, says = verdict.content, "" if verdict.genuine else "unproven: "
        typer.echo(
            f"{says}request {content['request']}, issued at {content['issued_at']}, {len(content['places'])} places"
        )
        typer.echo(f"{says}{len(content['not_scanned'])} files or places were not scanned; the certificate lists them")
