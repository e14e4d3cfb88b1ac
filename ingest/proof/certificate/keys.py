"""Ed25519 key pairs in files. The private key is readable by its owner alone and must not lie among the data."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ingest.errors import ConfigError
from ingest.proof.certificate.signature import is_small_order

_OTHER_USERS = stat.S_IRWXG | stat.S_IRWXO
_MAKE_KEY = "make a key pair with `ingest certificate key FILE`"


def make_key_pair(file: Path) -> Path:
    """Writes a private key to `file`, readable by its owner alone, and the public key to `file`.pub, whose path it
    returns. Raises ConfigError if either exists: what an older key has signed could not be signed again."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    public_file = file.with_name(f"{file.name}.pub")
    for path in (file, public_file):
        if path.exists():
            raise ConfigError(f"there is a file {path} already", "give the name of a file that is not there")
    try:
        _write(file, private, 0o600)
        _write(public_file, public, 0o644)
    except OSError as failure:
        raise ConfigError(
            f"the key can't be written to {file} ({type(failure).__name__})", "give a file in a folder of yours"
        ) from failure
    return public_file


def signing_key(file: Path, excluded_folders: Iterable[Path] = ()) -> Ed25519PrivateKey:
    """Reads a private key. Raises ConfigError if the file holds none, is accessible to other users, or lies below one
    of `excluded_folders`, the folders that the certificate covers."""
    path = file.expanduser().resolve()
    for folder in excluded_folders:
        if path.is_relative_to(folder.resolve()):
            raise ConfigError(
                f"the key {file} is in {folder}, whose erasures it certifies", "keep it outside of the data's folders"
            )
    try:
        with path.open("rb") as opened:
            status = os.fstat(opened.fileno())
            pem = opened.read()
    except OSError as failure:
        raise ConfigError(f"the key {file} can't be read ({type(failure).__name__})", _MAKE_KEY) from failure
    if status.st_mode & _OTHER_USERS:
        raise ConfigError(
            f"others may read the key {file}", f"chmod 600 {file}; anyone who has read it can sign in your name"
        )
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as failure:
        raise ConfigError(f"{file} holds no private key in PEM without a password", _MAKE_KEY) from failure
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{file} holds a key that is not of Ed25519", _MAKE_KEY)
    return key


def public_key(file: Path) -> Ed25519PublicKey:
    """Reads a public key. Raises ConfigError if the file holds none, or one for which anybody can sign."""
    try:
        key = serialization.load_pem_public_key(file.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as failure:
        raise ConfigError(
            f"{file} holds no public key in PEM ({type(failure).__name__})", "give the file that ends with .pub"
        ) from failure
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(f"{file} holds a key that is not of Ed25519", "give the file that ends with .pub")
    if is_small_order(key.public_bytes_raw()):
        raise ConfigError(
            f"{file} holds a key of small order, for which anybody can sign", "ask the issuer for the public key"
        )
    return key


def _write(path: Path, body: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
