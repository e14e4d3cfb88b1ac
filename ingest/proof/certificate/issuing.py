"""A certificate in two files: JSON, which counts, and a page to be read. Each is signed by itself."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ingest.proof.certificate.page import page
from ingest.proof.certificate.signature import ALGORITHM, PAGE, STATEMENT, Signature, signed
from ingest.proof.certificate.statement import Erasure, canonical, statement
from ingest.proof.scan.report import Report

PAGE_SIGNATURE = "<!-- {} {} {} -->\n"


@dataclass(frozen=True)
class Certificate:
    """`said`: what it says. `document` and `page`: the files, byte for byte."""

    said: dict[str, Any]
    document: bytes
    page: bytes

    def written(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Writes NAME.json and NAME.html."""
        files = folder / f"{name}.json", folder / f"{name}.html"
        for file, body in zip(files, (self.document, self.page), strict=True):
            file.write_bytes(body)
        return files


def issued(erasure: Erasure, report: Report, key: Ed25519PrivateKey, at: datetime) -> Certificate:
    """Raises ProofFailed where the scan found something, or missed a canary: there is no certificate of that."""
    said = statement(erasure, report, at)
    signature = signed(key, STATEMENT, canonical(said))
    shown = page(said, signature.public_key).encode()
    on_page = signed(key, PAGE, shown)
    ending = PAGE_SIGNATURE.format(ALGORITHM, on_page.public_key, on_page.value).encode()
    return Certificate(said, document(said, signature), shown + ending)


def document(said: dict[str, Any], signature: Signature) -> bytes:
    """The only bytes that this certificate may have: whatever is changed in the file, a blank included, shows."""
    whole = {**said, "signature": {"algorithm": ALGORITHM, **asdict(signature)}}
    return json.dumps(whole, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"
