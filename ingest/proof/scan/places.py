"""Places to scan: each lists all of its files, and what could not be listed or opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol


class Unreadable(Exception):
    """A file, or a part of it, could not be read. The message gives the reason and no content."""


@dataclass(frozen=True)
class OpenedFile:
    """`file` is seekable. `metadata`: what the store keeps of the object in addition to its content, such as metadata
    and tags."""

    file: BinaryIO
    metadata: bytes = b""


@dataclass(frozen=True)
class PlaceEntry:
    """A file or object version. `open` raises Unreadable; it is None for entries that have only a name: a folder, a
    link, a delete marker. `note`: why the content is not scanned."""

    name: str
    open: Callable[[], OpenedFile] | None = None
    note: str | None = None


class Place(Protocol):
    @property
    def name(self) -> str:
        """Returns the name of the place in reports."""

    def entries(self) -> Iterator[PlaceEntry]:
        """Yields all entries in no particular order. Raises Unreadable if the place can't be listed."""


@dataclass(frozen=True)
class Folder:
    """A folder with all of its subfolders. Links are not followed."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def entries(self) -> Iterator[PlaceEntry]:
        if not self.path.is_dir():
            raise Unreadable("there is no such folder, or it may not be looked into")
        waiting = [self.path]
        while waiting:
            folder = waiting.pop()
            try:
                with os.scandir(folder) as inside:
                    for found in inside:
                        path = Path(found.path)
                        if found.is_dir(follow_symlinks=False):
                            waiting.append(path)
                        yield self._entry(found, path)
            except OSError as failure:
                yield PlaceEntry(self._relative(folder), note=f"the folder can't be listed ({_reason(failure)})")

    def _entry(self, found: os.DirEntry[str], path: Path) -> PlaceEntry:
        name = self._relative(path)
        if found.is_symlink():
            return PlaceEntry(f"{name} -> {path.readlink()}", note="a link: what it points to is a place of its own")
        if found.is_dir(follow_symlinks=False):
            return PlaceEntry(f"{name}/")
        if not found.is_file(follow_symlinks=False):
            return PlaceEntry(name, note="neither a file nor a folder")
        return PlaceEntry(name, lambda: OpenedFile(_open_file(path)))

    def _relative(self, path: Path) -> str:
        return str(path.relative_to(self.path))


def _open_file(path: Path) -> BinaryIO:
    try:
        file = path.open("rb")
    except OSError as failure:
        raise Unreadable(f"it can't be opened ({_reason(failure)})") from failure
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise Unreadable("it is no longer a file")
    return file


def _reason(failure: OSError) -> str:
    """Returns the reason without the path, which may hold a personal value."""
    return os.strerror(failure.errno) if failure.errno else type(failure).__name__
