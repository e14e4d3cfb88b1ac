"""Whether a certificate is what was signed. Needs the file, and to know who signed it the public key; nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
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
    """`holds` and `broken`: sentences. `open`: what could not be decided, such as whose key it is. `said`: what the
    certificate says, where it is one of JSON and may be believed."""

    holds: tuple[str, ...]
    broken: tuple[str, ...]
    open: tuple[str, ...]
    said: dict[str, Any] | None = None

    @property
    def genuine(self) -> bool:
        return not self.broken


def verified(file: Path, key: Ed25519PublicKey | None = None) -> Verdict:
    """Of the JSON file or the page of a certificate. Raises ConfigError where there is no such file."""
    try:
        body = file.read_bytes()
    except OSError as failure:
        raise ConfigError(
            f"{file} can't be read ({type(failure).__name__})", "give the certificate's file"
        ) from failure
    return _page(body, key) if body.lstrip()[:1] == b"<" else _document(body, key)


def _document(body: bytes, key: Ed25519PublicKey | None) -> Verdict:
    try:
        whole = json.loads(body)
        said = {k: v for k, v in whole.items() if k != "signature"}
        stated = canonical(said)
        told = dict(whole["signature"])
        algorithm = told.pop("algorithm")
        signature = Signature(**told)
        same_bytes = document(said, signature) == body
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Verdict((), ("it is no certificate: it can't be read as one",), ())
    if said.get("format") != FORMAT or algorithm != ALGORITHM:
        return Verdict((), ("it is of a format that this version does not know",), ())
    checks = (
        (same_bytes, "the file is byte for byte as it was written", "the file was changed after it was written"),
        (
            signature.holds(STATEMENT, stated),
            "the signature is of exactly these statements",
            "the signature is not of these statements: they, or it, were altered",
        ),
    )
    verdict = _judged(checks, signature, key)
    return Verdict(verdict.holds, verdict.broken, verdict.open, said) if verdict.genuine else verdict


def _page(body: bytes, key: Ed25519PublicKey | None) -> Verdict:
    ending = _PAGE_ENDS.search(body)
    if ending is None:
        return Verdict((), ("the page has no signature at its end: it is none, or was cut or altered",), ())
    signature = Signature(ending[1].decode(), ending[2].decode())
    good = signature.holds(PAGE, body[: ending.start()])
    told = "the signature is of exactly this page", "the signature is not of this page: it was altered"
    return _judged(((good, *told),), signature, key)


def _judged(checks: tuple[tuple[bool, str, str], ...], signature: Signature, key: Ed25519PublicKey | None) -> Verdict:
    holds = [good for passed, good, _ in checks if passed]
    broken = [bad for passed, _, bad in checks if not passed]
    if key is None:
        return Verdict(
            tuple(holds),
            tuple(broken),
            (f"whose key {signature.public_key} is: anybody can make one; compare with the issuer's (--public-key)",),
        )
    if in_base64(key) == signature.public_key:
        holds.append("it was signed with the key that you gave")
    else:
        broken.append("it was signed with another key than the one that you gave")
    return Verdict(tuple(holds), tuple(broken), ())
