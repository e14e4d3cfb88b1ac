"""The content of a certificate as plain values: only what was scanned, and nothing of the subject."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ingest.errors import ProofFailed
from ingest.proof.forms.base64_blocks import CONTAINER_FORMS
from ingest.proof.forms.encodings import ENCODINGS, IN_COLUMN
from ingest.proof.forms.typed_forms import TYPED_FORMS
from ingest.proof.scan.report import Report

FORMAT = "ingest erasure certificate 1"
SAYS = (
    "Every file that is counted under `read` was read, bytes and names, and decoded where its kind is one that is "
    "decoded. None of the searched values was found there in any of the forms.",
    "The scan found every canary: markers of its own, in each format and form.",
)
OFFICERS_VALUES = "by the officer's values only"
DOES_NOT_SAY = (
    "anything of what is listed under `not_scanned`, nor of places that are not listed under `places`",
    "anything of bytes that a file system or a store has freed and not overwritten, of backups or of copies elsewhere",
    "anything of values of the subject that were not given to the scan, nor of forms that are not listed: hashes with "
    "a salt or a key or of several values together, values that were encrypted before they were stored, or compressed "
    "in a way that is not listed",
    "anything of the forms of a searched value that are listed under `not_decided`",
    "that letters of a searched value were not replaced by ligatures or by other letters that fold to several",
    "that a searched value which counts only in named columns (see `needles`) is not written elsewhere",
    "anything of what was written after the scan had read it",
)


@dataclass(frozen=True)
class Erasure:
    """What the scan can't know. `subject`: keyed hash of the subject's key. `cutoffs`: source → last erased position,
    as text. `ledger_head`: hash of the ledger's last entry."""

    request: str
    subject: str
    cutoffs: Mapping[str, str]
    ledger_head: str


def statement(erasure: Erasure, report: Report, at: datetime) -> dict[str, Any]:
    """Returns the content. Raises ProofFailed if the scan found something, missed a canary, or could list no place."""
    places = _proven_places(erasure, report)
    return {
        "format": FORMAT,
        "request": erasure.request,
        "subject": erasure.subject,
        "cut_offs": dict(erasure.cutoffs),
        "ledger_head": erasure.ledger_head,
        "issued_at": at.astimezone(UTC).isoformat(timespec="seconds"),
        "issued_by": {"project": "ingest", "version": _version()},
        "needles": [{"label": n.label, "columns": list(n.columns), "type": str(n.type)} for n in report.needles],
        "searched": _searched(report),
        "collected": [asdict(c) for c in report.collected],
        "forms": [*ENCODINGS, *CONTAINER_FORMS, *TYPED_FORMS, IN_COLUMN],
        "not_decided": [asdict(n) for n in report.not_decided],
        "places": places,
        "read": [asdict(k) for k in report.read],
        "not_scanned": [asdict(n) for n in report.not_scanned],
        "canaries": [{"place": s.place, "format": s.format, "found": s.canaries} for s in report.canaries],
        "residues": [],
        "says": list(SAYS),
        "does_not_say": list(DOES_NOT_SAY),
    }


def _searched(report: Report) -> str:
    """Returns by whose values the certificate goes."""
    if not report.collected:
        return OFFICERS_VALUES
    values = sum(column.values for column in report.collected)
    by = f"by {values:,} values that were collected from the subject's events when the erasure was requested"
    return f"{by}, and by {report.officers:,} of the officer's" if report.officers else by


def _proven_places(erasure: Erasure, report: Report) -> list[str]:
    """Returns the places that the scan could list."""
    if not report.valid:
        missed = sum(len(s.missed) for s in report.canaries)
        raise ProofFailed(
            f"request {erasure.request}: the scan missed {missed:,} canaries, or had none",
            "residues may remain that it can't find: see its report, and scan again",
        )
    if not report.clean:
        raise ProofFailed(
            f"request {erasure.request}: {len(report.findings):,} residues were found",
            "no certificate is issued: see where they are with `ingest scan`, and erase again",
        )
    unlistable = {n.place for n in report.not_scanned if not n.file}
    places = [place for place in report.places if place not in unlistable]
    if not places:
        raise ProofFailed(
            f"request {erasure.request}: none of {len(report.places):,} places could be scanned",
            "see with `ingest scan` why, and scan again",
        )
    return places


def canonical(content: Mapping[str, Any]) -> bytes:
    """Returns the canonical JSON of these values: sorted keys, no whitespace, UTF-8. Raises TypeError for values other
    than text, integers, booleans and null."""
    _require_plain(content)
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _require_plain(value: Any) -> None:
    if isinstance(value, dict):
        for inner in value.values():
            _require_plain(inner)
    elif isinstance(value, list):
        for inner in value:
            _require_plain(inner)
    elif not isinstance(value, str | int | bool | None):
        raise TypeError("a certificate holds text and whole numbers only")


def _version() -> str:
    try:
        return version("ingest")
    except PackageNotFoundError:
        return "not installed"
