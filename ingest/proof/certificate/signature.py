"""Ed25519 over bytes, with a word in front so that what was signed as one thing is never taken for another."""

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
    """Both in base64."""

    public_key: str
    value: str

    def holds(self, word: bytes, body: bytes) -> bool:
        """Whether the owner of the key that stands in it has signed this."""
        try:
            key = Ed25519PublicKey.from_public_bytes(_decoded(self.public_key))
            key.verify(_decoded(self.value), word + body)
        except (InvalidSignature, ValueError, binascii.Error):
            return False
        return True


def signed(key: Ed25519PrivateKey, word: bytes, body: bytes) -> Signature:
    return Signature(in_base64(key.public_key()), base64.b64encode(key.sign(word + body)).decode())


def _decoded(text: str) -> bytes:
    body = base64.b64decode(text, validate=True)
    # Bits of the last character that say nothing must say nothing.
    if base64.b64encode(body).decode() != text:
        raise ValueError("not the base64 that is written")
    return body


def in_base64(key: Ed25519PublicKey) -> str:
    return base64.b64encode(key.public_bytes_raw()).decode()
