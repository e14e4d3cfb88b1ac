"""Canaries set out where nothing else lies, and whether the scanner finds each: every format, form and kind of place.

A scan that misses one proves nothing of what it did not find.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ingest.proof.canaries.canary_bucket import Aviary
from ingest.proof.canaries.canary_encodings import Canary, canaries, number
from ingest.proof.canaries.formats import Planted, planted
from ingest.proof.scan import Bucket, Place, scanned
from ingest.proof.scan.places import Folder
from ingest.proof.scan.report import Collected, Finding, Sighting

_LONGEST_NAME = 200


def sightings(places: Sequence[Place]) -> tuple[Sighting, ...]:
    """Of files in a folder of their own, and of objects beside what lies in each bucket. Raises IngestError where a
    bucket does not let them in."""
    birds, figure = canaries(), number()
    seen = list(_in_folder(birds, figure))
    for place in places:
        if isinstance(place, Bucket):
            seen += _in_bucket(place, birds, figure)
    return tuple(seen)


def _in_folder(birds: Sequence[Canary], figure: Canary) -> Iterator[Sighting]:
    with tempfile.TemporaryDirectory(prefix="canaries-") as folder:
        files = list(planted(birds, figure))
        for one in files:
            path = Path(folder, one.file)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(one.body)
        named = tuple(c for c in birds if _may_be_a_name(c.body))
        for canary in named:
            Path(folder, canary.body.decode("utf-8", "surrogateescape")).touch()
        (found,) = scanned([Folder(Path(folder))], [c.needle for c in (*birds, figure)])
        yield from _seen("files", found, files, (*birds, figure))
        yield Sighting("files", "names", len(named), _missed(found.findings.values(), named, "its name"))


def _in_bucket(bucket: Bucket, birds: Sequence[Canary], figure: Canary) -> Iterator[Sighting]:
    files = list(planted(birds, figure))
    everyone = (*birds, figure)
    with Aviary(bucket) as aviary:
        for one in files:
            aviary.put(one.file, one.body)
        # Some stores take a backslash for a slash.
        named = [c for c in birds if c.body.isascii() and _may_be_a_name(c.body) and b"\\" not in c.body]
        for canary in named:
            aviary.put(canary.body.decode(), b"")
        aviary.put("described", b"", {"canary": birds[0].needle.value.encode().hex()})
        versions = aviary.replaced("replaced", b"\n".join(c.body for c in everyone))
        (found,) = scanned([aviary.bucket], [c.needle for c in everyone])
    yield from _seen(bucket.name, found, files, everyone)
    all_found = found.findings.values()
    yield Sighting(bucket.name, "names", len(named), _missed(all_found, named, "its name"))
    # An object's metadata are ASCII: the first canary is written there in hexadecimal.
    described = any(f.part == "what the store says of it" and f.needle == birds[0].needle.label for f in all_found)
    yield Sighting(bucket.name, "metadata", 1, () if described else (birds[0].needle.label,))
    if versions:
        older = [f for f in all_found if f.file.startswith("replaced (version")]
        yield Sighting(bucket.name, "older versions", len(everyone), _missed(older, everyone, "its bytes"))


def _seen(place: str, found: Collected, files: Iterable[Planted], everyone: Sequence[Canary]) -> Iterator[Sighting]:
    for one in files:
        held = one.holds or everyone
        inside = [f for f in found.findings.values() if f.file.split(" (version")[0] == one.file]
        missed = tuple(f"{name}: {part}" for part in one.parts for name in _missed(inside, held, part))
        yield Sighting(place, one.format, len(held) * len(one.parts), missed)


def _missed(findings: Iterable[Finding], held: Iterable[Canary], part: str) -> tuple[str, ...]:
    there = {(f.needle, f.form) for f in findings if f.part.startswith(part)}
    return tuple(c.needle.label for c in held if (c.needle.label, c.form) not in there)


def _may_be_a_name(body: bytes) -> bool:
    return b"/" not in body and b"\0" not in body and len(body) < _LONGEST_NAME
