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
_SMALL_ORDER = frozenset(
    map(
        bytes.fromhex,
        (
            "00" * 32,
            "01" + "00" * 31,
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
            "ec" + "ff" * 30 + "7f",
            "ed" + "ff" * 30 + "7f",
            "ee" + "ff" * 30 + "7f",
        ),
    )
)
"""The y coordinates of all points whose order divides 8, in every encoding, with the sign of x cleared."""


@dataclass(frozen=True)
class Signature:
    """`public_key` and `value` in base64."""

    public_key: str
    value: str

    def holds(self, purpose: bytes, body: bytes) -> bool:
        """Returns True if the owner of `public_key` has signed these bytes for this purpose."""
        try:
            public_key = _decoded(self.public_key)
            if is_small_order(public_key):
                return False
            key = Ed25519PublicKey.from_public_bytes(public_key)
            key.verify(_decoded(self.value), purpose + body)
        except (InvalidSignature, ValueError, binascii.Error):
            return False
        return True


def is_small_order(public_key: bytes) -> bool:
    """Returns True for the 14 encodings of public keys for which anybody can make signatures that OpenSSL accepts."""
    return public_key[:-1] + bytes([public_key[-1] & 0x7F]) in _SMALL_ORDER if public_key else False


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
