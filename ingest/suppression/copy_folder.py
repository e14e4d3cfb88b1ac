"""A folder of objects, with the interface of an object store: each is written once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ingest.errors import StorageRefused

_REMEDY = "see that this user may read and write it, or name another folder or a bucket: privacy: {ledger_copy: s3://…}"


class CopyStore(Protocol):
    """Where a copy of the ledger is: an `ObjectStore` or a `CopyFolder`."""

    @property
    def uri(self) -> str: ...
    def keys(self, below: str) -> Iterator[str]: ...
    def get(self, key: str) -> bytes: ...
    def put_once(self, key: str, body: bytes) -> bool: ...


@dataclass(frozen=True)
class CopyFolder:
    """The objects in the folder `uri`, which need not exist. Every method raises StorageRefused where the operating
    system refuses."""

    uri: str

    def keys(self, below: str) -> Iterator[str]:
        """Yields the keys that begin with `below`, in lexical order."""
        root = Path(self.uri)
        try:
            found = sorted(file.relative_to(root).as_posix() for file in root.rglob("*.json"))
        except OSError as error:
            raise StorageRefused(f"the folder {self.uri} can't be listed", _REMEDY) from error
        yield from (key for key in found if key.startswith(below))

    def get(self, key: str) -> bytes:
        """Returns an object's bytes."""
        try:
            return (Path(self.uri) / key).read_bytes()
        except OSError as error:
            raise StorageRefused(f"{self.uri}/{key} can't be read", _REMEDY) from error

    def put_once(self, key: str, body: bytes) -> bool:
        """Writes an object; returns False, and writes nothing, where the key exists. A crash leaves no part of it."""
        root = Path(self.uri)
        file = root / key
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".", suffix=".part") as part:
                part.write(body)
                part.flush()
                os.fsync(part.fileno())
                return _linked(part.name, file)
        except OSError as error:
            raise StorageRefused(f"{file} can't be written", _REMEDY) from error


def _linked(part: str, file: Path) -> bool:
    """Gives a file its name; returns False where another has it."""
    try:
        os.link(part, file)
    except FileExistsError:
        return False
    return True
