"""Writes canaries in every format, encoding and kind of place, and checks that the scanner finds each.

A scan that misses one proves nothing about what it did not find."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ingest.proof.canaries.canary import Canary
from ingest.proof.canaries.canary_bucket import CanaryBucket
from ingest.proof.canaries.canary_encodings import canaries, number_canary
from ingest.proof.canaries.column_canaries import check_columns
from ingest.proof.canaries.formats import CanaryFile, canary_files
from ingest.proof.scan import Bucket, Place, scan_places
from ingest.proof.scan.places import Folder
from ingest.proof.scan.report import CanaryCheck, Finding, PlaceScan
from ingest.proof.scan.search_terms import SearchTerm

_MAX_NAME = 200


def check_canaries(places: Sequence[Place], terms: Sequence[SearchTerm] = ()) -> tuple[CanaryCheck, ...]:
    """Scans canary files in a temporary folder and canary objects in each bucket of `places`, and canaries in the
    columns of `terms`. Returns a check per place and format. Raises IngestError if a bucket can't be written."""
    markers, number = canaries(), number_canary()
    checks = [*_in_folder(markers, number), *check_columns(terms)]
    for place in places:
        if isinstance(place, Bucket):
            checks += _in_bucket(place, markers, number)
    return tuple(checks)


def _in_folder(markers: Sequence[Canary], number: Canary) -> Iterator[CanaryCheck]:
    with tempfile.TemporaryDirectory(prefix="canaries-") as folder:
        files = list(canary_files(markers, number))
        for canary_file in files:
            path = Path(folder, canary_file.file)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(canary_file.body)
        in_names = tuple(c for c in markers if _can_be_name(c.body))
        for canary in in_names:
            Path(folder, canary.body.decode("utf-8", "surrogateescape")).touch()
        (scan,) = scan_places([Folder(Path(folder))], [c.term for c in (*markers, number)])
        yield from _checks_per_format("files", scan, files, (*markers, number))
        yield CanaryCheck("files", "names", len(in_names), _missed(scan.findings.values(), in_names, "its name"))


def _in_bucket(bucket: Bucket, markers: Sequence[Canary], number: Canary) -> Iterator[CanaryCheck]:
    files = list(canary_files(markers, number))
    all_markers = (*markers, number)
    with CanaryBucket(bucket) as canary_bucket:
        for canary_file in files:
            canary_bucket.put(canary_file.file, canary_file.body)
        # Some stores read a backslash as a slash.
        in_names = [c for c in markers if c.body.isascii() and _can_be_name(c.body) and b"\\" not in c.body]
        in_names = [c for c in in_names if c.body.decode().isprintable()]
        for canary in in_names:
            canary_bucket.put(canary.body.decode(), b"")
        canary_bucket.put("described", b"", {"canary": markers[0].term.value.encode().hex()})
        has_versions = canary_bucket.put_two_versions("replaced", b"\n".join(c.body for c in all_markers))
        (scan,) = scan_places([canary_bucket.bucket], [c.term for c in all_markers])
    yield from _checks_per_format(bucket.name, scan, files, all_markers)
    findings = scan.findings.values()
    yield CanaryCheck(bucket.name, "names", len(in_names), _missed(findings, in_names, "its name"))
    # Metadata of an object are ASCII, so the first canary is written there in hexadecimal.
    described = any(f.part == "the store's metadata" and f.needle == markers[0].term.label for f in findings)
    yield CanaryCheck(bucket.name, "metadata", 1, () if described else (markers[0].term.label,))
    if has_versions:
        older = [f for f in findings if f.file.startswith("replaced (version")]
        yield CanaryCheck(bucket.name, "older versions", len(all_markers), _missed(older, all_markers, "its bytes"))


def _checks_per_format(
    place: str, scan: PlaceScan, files: Iterable[CanaryFile], all_markers: Sequence[Canary]
) -> Iterator[CanaryCheck]:
    for canary_file in files:
        expected = canary_file.holds or all_markers
        findings = [f for f in scan.findings.values() if f.file.split(" (version")[0] == canary_file.file]
        missed = tuple(f"{name}: {part}" for part in canary_file.parts for name in _missed(findings, expected, part))
        yield CanaryCheck(place, canary_file.format, len(expected) * len(canary_file.parts), missed)


def _missed(findings: Iterable[Finding], expected: Iterable[Canary], part: str) -> tuple[str, ...]:
    found = {(f.needle, f.form) for f in findings if f.part.startswith(part)}
    return tuple(c.term.label for c in expected if (c.term.label, c.encoding) not in found)


def _can_be_name(body: bytes) -> bool:
    return b"/" not in body and b"\0" not in body and len(body) < _MAX_NAME
