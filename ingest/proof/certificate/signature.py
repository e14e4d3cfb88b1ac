"""Ed25519 signatures over a purpose and bytes, so that a signature of one kind of document is never valid for
another."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ALGORITHM = "Ed25519"
STATEMENT = b"ingest certificate statement\n"
PAGE = b"ingest certificate page\n"


@dataclass(frozen=True)
class Signature:
    """`public_key` and `value` in base64."""

    public_key: str
    value: str

    def holds(self, purpose: bytes, body: bytes) -> bool:
        """Returns True if the owner of `public_key` has signed these bytes for this purpose."""
        try:
            key = Ed25519PublicKey.from_public_bytes(_decoded(self.public_key))
            key.verify(_decoded(self.value), purpose + body)
        except (InvalidSignature, ValueError, binascii.Error):
            return False
        return True


def sign(key: Ed25519PrivateKey, purpose: bytes, body: bytes) -> Signature:
    return Signature(in_base64(key.public_key()), base64.b64encode(key.sign(purpose + body)).decode())


def _decoded(text: str) -> bytes:
    body = base64.b64decode(text, validate=True)
    # Unused bits of the last character have to be zero, so that every byte of a signature counts.
    if base64.b64encode(body).decode() != text:
        raise ValueError("not the base64 that is written")
    return body


def in_base64(key: Ed25519PublicKey) -> str:
    return base64.b64encode(key.public_bytes_raw()).decode()
