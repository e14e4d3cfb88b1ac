"""The values of a fictitious person, and helpers that plant and scan for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ingest.proof.scan import Folder, SearchTerm, scan_places
from ingest.proof.scan.report import PlaceScan

EMAIL = "Jürgen.Groß+claims/7@Beispiel.example"
NUMBER = 4711
NEEDLES = (SearchTerm("email", EMAIL), SearchTerm("member", str(NUMBER), ("id", "member_id")))


def scan(folder: Path, needles: Iterable[SearchTerm] = NEEDLES) -> PlaceScan:
    (collected,) = scan_places([Folder(folder)], tuple(needles))
    return collected


def planted(folder: Path, files: Mapping[str, bytes]) -> PlaceScan:
    for name, body in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return scan(folder)


def seen(collected: PlaceScan) -> set[tuple[str, str, str]]:
    """Returns (part, search term, form) of all findings."""
    return {(f.part, f.needle, f.form) for f in collected.findings.values()}


def unread(collected: PlaceScan) -> list[tuple[str, str]]:
    return [(n.file, n.why) for n in collected.not_scanned]


def in_file(collected: PlaceScan, beginning: str) -> set[tuple[str, str]]:
    """Returns (search term, form) of the findings in files whose names start with `beginning`."""
    return {(f.needle, f.form) for f in collected.findings.values() if f.file.startswith(beginning)}
