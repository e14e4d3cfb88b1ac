"""One scan with its canaries, and the places that a pipeline has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ingest.config import Pipeline
from ingest.errors import ConfigError
from ingest.proof.canaries import check_canaries
from ingest.proof.needles.terms import CollectedTerms
from ingest.proof.scan import Bucket, Folder, Place, Report, SearchTerm, scan_places
from ingest.proof.scan.report import PlaceScan, build_report
from ingest.proof.scan.table_columns import TableColumns, table_columns

_S3A = "spark.hadoop.fs.s3a."
_CLIENT_OPTIONS = {
    "endpoint_url": "endpoint",
    "region_name": "endpoint.region",
    "aws_access_key_id": "access.key",
    "aws_secret_access_key": "secret.key",
    "aws_session_token": "session.token",
}


def scan_with_canaries(
    places: Sequence[Place],
    terms: Sequence[SearchTerm],
    left_out: Iterable[PlaceScan] = (),
    tables: Sequence[str] = (),
    collected: CollectedTerms | None = None,
) -> Report:
    """Scans the places for the given terms and the `collected` ones, and checks the canaries. `left_out`: known places
    that are not scanned, with the reason. `tables`: all that are known. Raises ConfigError if there is nothing to
    search for, and IngestError if canaries can't be written to a bucket."""
    collected = collected or CollectedTerms()
    searched = [*terms, *collected.terms]
    if not searched:
        raise ConfigError(
            "there is no value to search for: none was collected that is the subject's alone",
            "give the subject's values: --needle-file FILE",
        )
    checks = check_canaries(places, searched)
    report = build_report(searched, [*scan_places(places, searched, tables=tables), *left_out], checks)
    open_ = (*report.not_decided, *collected.not_decided)
    return replace(report, not_decided=open_, collected=collected.columns, officers=len(terms))


def known_columns(pipeline: Pipeline) -> TableColumns:
    """Returns the tables and columns that search terms may name."""
    configured = {}
    for table, settings in pipeline.tables.items():
        subject = settings.subject
        through = (*(subject.through or ()), *([subject.key] if subject.key else ())) if subject is not None else ()
        names = (*settings.personal, *settings.columns, *settings.rename, *settings.rename.values())
        renames = (*settings.renames, *settings.renames.values())
        configured[table] = [*names, *renames, *(settings.primary_key or ()), *through]
    return table_columns(configured, _place(pipeline.lakehouse, pipeline))


def places_of(pipeline: Pipeline) -> tuple[list[Place], list[PlaceScan]]:
    """Returns the places that a pipeline's file names, and those that can't be scanned from here."""
    places: list[Place] = []
    left_out: list[PlaceScan] = []
    roots = [pipeline.lakehouse]
    if pipeline.spark.get("spark.eventLog.enabled", "false") == "true":
        roots.append(pipeline.spark.get("spark.eventLog.dir", "file:///tmp/spark-events"))
    for root in roots:
        place = _place(root, pipeline)
        if place is None:
            left_out.append(_unscanned(root, "no file system of this kind can be read here"))
        else:
            places.append(place)
    if pipeline.archive is not None:
        places.append(Bucket(pipeline.archive.uri, dict(pipeline.archive.s3)))
    brokers = pipeline.source.kafka["bootstrap.servers"]
    reason = "topics lie on the brokers' disks: scan the brokers' log folders where they are, as folders"
    left_out.append(_unscanned(f"Kafka at {brokers}", reason))
    return places, left_out


def _place(root: str, pipeline: Pipeline) -> Place | None:
    parts = urlsplit(root)
    if parts.scheme in {"s3", "s3a"}:
        settings = {name: pipeline.spark.get(_S3A + hadoop) for name, hadoop in _CLIENT_OPTIONS.items()}
        return Bucket(f"s3://{parts.netloc}{parts.path}", {k: v for k, v in settings.items() if v is not None})
    if parts.scheme == "file":
        return Folder(Path(unquote(parts.path)))
    return Folder(Path(root).expanduser().absolute()) if "://" not in root else None


def _unscanned(place: str, reason: str) -> PlaceScan:
    scan = PlaceScan(place)
    scan.add_unread("", reason)
    return scan
