"""Verifies a certificate by its file, and its issuer by a public key."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ingest.errors import ConfigError
from ingest.proof.certificate.issuing import document
from ingest.proof.certificate.signature import ALGORITHM, PAGE, STATEMENT, Signature, in_base64
from ingest.proof.certificate.statement import FORMAT, canonical

_PAGE_ENDS = re.compile(rb"<!-- Ed25519 ([A-Za-z0-9+/=]{44}) ([A-Za-z0-9+/=]{88}) -->\n\Z")


@dataclass(frozen=True)
class Verdict:
    """Sentences. `broken`: why it is altered or not the issuer's. `open`: what could not be decided, such as the owner
    of the key. `holds`: the rest; empty if something is broken. `content`: of a JSON certificate that isn't broken."""

    holds: tuple[str, ...]
    broken: tuple[str, ...]
    open: tuple[str, ...]
    content: dict[str, Any] | None = None

    @property
    def genuine(self) -> bool:
        """Returns True if the certificate is unaltered and signed by the issuer whose public key was given."""
        return not self.broken and not self.open


def verify_certificate(file: Path, key: Ed25519PublicKey | None = None) -> Verdict:
    """Verifies the JSON file or the page of a certificate. Without the issuer's public `key` the verdict is open, as
    anybody can sign anything with a key of their own. Raises ConfigError if the file can't be read."""
    try:
        body = file.read_bytes()
    except OSError as failure:
        raise ConfigError(
            f"{file} can't be read ({type(failure).__name__})", "give the certificate's file"
        ) from failure
    return _page(body, key) if body.lstrip()[:1] == b"<" else _document(body, key)


def _document(body: bytes, key: Ed25519PublicKey | None) -> Verdict:
    try:
        signed_content = json.loads(body)
        content = {k: v for k, v in signed_content.items() if k != "signature"}
        signed_bytes = canonical(content)
        fields = dict(signed_content["signature"])
        algorithm = fields.pop("algorithm")
        signature = Signature(**fields)
        same_bytes = document(content, signature) == body
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Verdict((), ("it is no certificate, or was altered: it can't be read as one",), ())
    if content.get("format") != FORMAT or algorithm != ALGORITHM:
        return Verdict((), ("it is of a format that this version does not know",), ())
    checks = (
        (same_bytes, "the file is byte for byte as it was written", "the file was altered after it was written"),
        (
            signature.holds(STATEMENT, signed_bytes),
            "the signature is of exactly these statements",
            "the signature is not of these statements: they, or it, were altered",
        ),
    )
    verdict = _verdict(checks, signature, key)
    return verdict if verdict.broken else replace(verdict, content=content)


def _page(body: bytes, key: Ed25519PublicKey | None) -> Verdict:
    ending = _PAGE_ENDS.search(body)
    if ending is None:
        return Verdict((), ("the page has no signature at its end: it is none, or was cut or altered",), ())
    signature = Signature(ending[1].decode(), ending[2].decode())
    is_valid = signature.holds(PAGE, body[: ending.start()])
    messages = "the signature is of exactly this page", "the signature is not of this page: it was altered"
    return _verdict(((is_valid, *messages),), signature, key)


def _verdict(checks: tuple[tuple[bool, str, str], ...], signature: Signature, key: Ed25519PublicKey | None) -> Verdict:
    if broken := tuple(failure for passed, _, failure in checks if not passed):
        return Verdict((), broken, ())
    holds = tuple(success for _, success, _ in checks)
    if key is None:
        return Verdict(holds, (), (f"who signed it: anybody can make a key such as {signature.public_key}",))
    if in_base64(key) != signature.public_key:
        return Verdict((), ("it was signed with another key than the one that you gave",), ())
    return Verdict((*holds, "it was signed with the key that you gave"), (), ())
