"""Files that hold the values of an erased subject, encrypted, each under a random key of its own.

    <folder>/<pipeline>/<request>.sealed
    <folder>/<pipeline>/<request>.key

Without its key a file can't be read: it is destroyed key first."""

from __future__ import annotations

import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ingest.errors import ConfigError, StorageRefused
from ingest.names import path_segment

_MAGIC = b"ingest needles 1\n"
_NONCE_BYTES = 12
_KEY_BYTES = 32
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,127}")
_SEALED, _KEY = ".sealed", ".key"
_OTHER_USERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class SealedFile:
    """The file of one request. `folder`: of all pipelines; outside of the lakehouse."""

    folder: str
    pipeline: str
    request: str

    @property
    def path(self) -> Path:
        """Returns where the encrypted values are."""
        return self._named(_SEALED)

    def write(self, body: bytes) -> None:
        """Replaces the content. A crash leaves the former one. Raises StorageRefused."""
        try:
            Path(self.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            key, nonce = self._key() or self._new_key(), secrets.token_bytes(_NONCE_BYTES)
            box = AESGCM(key).encrypt(nonce, body, self._context)
            handle, part = tempfile.mkstemp(dir=self.path.parent, prefix=".", suffix=".part")
            with os.fdopen(handle, "wb") as written:
                written.write(_MAGIC + nonce + box)
                written.flush()
                os.fsync(written.fileno())
            Path(part).replace(self.path)
        except OSError as error:
            raise StorageRefused(
                f"the values of the subjects can't be written to {self.folder} ({type(error).__name__})",
                "let this user write there, name another folder (privacy: {needle_folder: …}), or collect no values "
                "(privacy: {needle_days: 0}): then certificates go by the officer's values only",
            ) from None

    def read(self) -> bytes | None:
        """Returns the content; None if there is no file. Raises ConfigError if it can't be decrypted, or if others may
        read it."""
        try:
            sealed = self._bytes(self.path)
            if sealed is None:
                return None
            key = self._key()
        except OSError as error:
            raise self._unreadable(f"can't be read ({type(error).__name__})") from None
        if key is None or not sealed.startswith(_MAGIC):
            raise self._unreadable("has lost its key" if key is None else "is none that this version has written")
        box = sealed[len(_MAGIC) :]
        try:
            return AESGCM(key).decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], self._context)
        except (InvalidTag, ValueError):
            raise self._unreadable("was altered, or is another request's") from None

    def destroy(self) -> bool:
        """Overwrites and deletes the key, then the file. Returns False if there was neither. Raises StorageRefused."""
        found = False
        for path in (self._named(_KEY), self.path):
            try:
                with path.open("r+b") as file:
                    file.write(bytes(path.stat().st_size))
                    file.flush()
                    os.fsync(file.fileno())
                path.unlink()
                found = True
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageRefused(
                    f"{path} can't be deleted ({type(error).__name__})",
                    "delete it yourself: it holds values of the erased subject, or the key to them",
                ) from None
        return found

    @property
    def _context(self) -> bytes:
        return f"{self.pipeline}\0{self.request}".encode("utf-8", "surrogatepass")

    def _named(self, suffix: str) -> Path:
        name = self.request if _PLAIN.fullmatch(self.request) else path_segment(self.request)
        return Path(self.folder, path_segment(self.pipeline), name + suffix)

    def _key(self) -> bytes | None:
        key = self._bytes(self._named(_KEY))
        return key if key is None or len(key) == _KEY_BYTES else None

    def _new_key(self) -> bytes:
        """Writes and returns a key. One of another length was cut off by a crash before anything was sealed by it."""
        path, key = self._named(_KEY), secrets.token_bytes(_KEY_BYTES)
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        return key

    def _bytes(self, path: Path) -> bytes | None:
        """Returns a file's bytes; None if there is none."""
        try:
            with path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                if mode & _OTHER_USERS:
                    raise ConfigError(f"others may read {path} (its mode is {mode:04o})", f"chmod 600 {path}")
                return file.read()
        except FileNotFoundError:
            return None

    def _unreadable(self, why: str) -> ConfigError:
        return ConfigError(
            f"the file with the collected values of request {self.request}, {self.path}, {why}",
            f"bring it and its {_KEY} file back; if one is lost for good, delete what is left of the two: then "
            "the certificate goes by the officer's values only",
        )


def destroy_older(folder: str, pipeline: str, than: datetime) -> int:
    """Destroys the files of a pipeline's requests whose first values were collected before `than`. Returns their
    number. Raises StorageRefused."""
    destroyed = 0
    for request in {*_requests(Path(folder, path_segment(pipeline)), than)}:
        destroyed += SealedFile(folder, pipeline, request).destroy()
    return destroyed


def _requests(folder: Path, than: datetime) -> Iterator[str]:
    """Yields the names of the files whose key, or what is left without one, is older."""
    with suppress(FileNotFoundError):
        for file in [*folder.iterdir()]:
            key = file if file.suffix == _KEY else file.with_suffix(_KEY)
            if file.suffix in (_KEY, _SEALED):
                with suppress(FileNotFoundError):
                    written = key.stat() if key.exists() else file.stat()
                    if datetime.fromtimestamp(written.st_mtime, UTC) < than:
                        yield file.stem
