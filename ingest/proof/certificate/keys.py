"""Key pairs of Ed25519 in files: the private one for its owner alone, and never where the data lie."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ingest.errors import ConfigError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MAKE = "make a key pair with `ingest certificate key FILE`"


def made(file: Path) -> Path:
    """Writes a private key to `file`, which nobody else may read, and its public key beside it: that one's path. Raises
    ConfigError where either is there already: what an older key has signed could not be repeated."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    beside = file.with_name(f"{file.name}.pub")
    for path in (file, beside):
        if path.exists():
            raise ConfigError(f"there is a file {path} already", "give the name of a file that is not there")
    try:
        _written(file, private, 0o600)
        _written(beside, public, 0o644)
    except OSError as failure:
        raise ConfigError(
            f"the key can't be written to {file} ({type(failure).__name__})", "give a file in a folder of yours"
        ) from failure
    return beside


def signing_key(file: Path, kept_apart_from: Iterable[Path] = ()) -> Ed25519PrivateKey:
    """The private key of a file. Raises ConfigError where it is none, where others may read it, or where it lies below
    one of `kept_apart_from`: the folders about which it is to sign."""
    real = file.expanduser().resolve()
    for folder in kept_apart_from:
        if real.is_relative_to(folder.resolve()):
            raise ConfigError(
                f"the key {file} lies in {folder}, about which it is to sign", "keep it where the data don't lie"
            )
    try:
        with real.open("rb") as opened:
            said = os.fstat(opened.fileno())
            body = opened.read()
    except OSError as failure:
        raise ConfigError(f"the key {file} can't be read ({type(failure).__name__})", _MAKE) from failure
    if said.st_mode & _OTHERS:
        raise ConfigError(f"others may read the key {file}", f"chmod 600 {file}; who has read it can sign in your name")
    try:
        key = serialization.load_pem_private_key(body, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as failure:
        raise ConfigError(f"{file} holds no private key in PEM without a password", _MAKE) from failure
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{file} holds a key that is not of Ed25519", _MAKE)
    return key


def public_key(file: Path) -> Ed25519PublicKey:
    """The public key of a file. Raises ConfigError where it is none."""
    try:
        key = serialization.load_pem_public_key(file.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as failure:
        raise ConfigError(
            f"{file} holds no public key in PEM ({type(failure).__name__})", "give the file that ends with .pub"
        ) from failure
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(f"{file} holds a key that is not of Ed25519", "give the file that ends with .pub")
    return key


def _written(path: Path, body: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
