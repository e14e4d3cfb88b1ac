"""Issues a certificate as two files: the JSON document, which is authoritative, and a page for reading. Each has its
own signature."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ingest.proof.certificate.page import render_page
from ingest.proof.certificate.signature import ALGORITHM, PAGE, STATEMENT, Signature, sign
from ingest.proof.certificate.statement import Erasure, canonical, statement
from ingest.proof.scan.report import Report

PAGE_SIGNATURE = "<!-- {} {} {} -->\n"


@dataclass(frozen=True)
class Certificate:
    """`content`: the statements. `document` and `page`: the bytes of the two files."""

    content: dict[str, Any]
    document: bytes
    page: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Writes NAME.json and NAME.html to `folder` and returns their paths."""
        files = folder / f"{name}.json", folder / f"{name}.html"
        for file, body in zip(files, (self.document, self.page), strict=True):
            file.write_bytes(body)
        return files


def issue_certificate(erasure: Erasure, report: Report, key: Ed25519PrivateKey, at: datetime) -> Certificate:
    """Returns the signed certificate. Raises ProofFailed if the scan found something or missed a canary."""
    content = statement(erasure, report, at)
    signature = sign(key, STATEMENT, canonical(content))
    html = render_page(content, signature.public_key).encode()
    page_signature = sign(key, PAGE, html)
    ending = PAGE_SIGNATURE.format(ALGORITHM, page_signature.public_key, page_signature.value).encode()
    return Certificate(content, document(content, signature), html + ending)


def document(content: dict[str, Any], signature: Signature) -> bytes:
    """Returns the only valid bytes of this certificate's file: any change, even of whitespace, fails verification."""
    signed_content = {**content, "signature": {"algorithm": ALGORITHM, **asdict(signature)}}
    return json.dumps(signed_content, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"
