"""Where files lie: a place tells all of them, and what of it can't be told or opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol


class Unreadable(Exception):
    """A file, or a part of one, could not be read; the text says why and holds nothing out of it."""


@dataclass(frozen=True)
class Opened:
    """`file` may be sought in. `beside`: what the store keeps of it besides its content, such as metadata and tags."""

    file: BinaryIO
    beside: bytes = b""


@dataclass(frozen=True)
class Entry:
    """One file or object version. `open` is None where there is no more than a name: a folder, a link, a delete
    marker; it raises Unreadable. `note` says why what stands behind a name is not scanned."""

    name: str
    open: Callable[[], Opened] | None = None
    note: str | None = None


class Place(Protocol):
    @property
    def name(self) -> str:
        """How the report calls it."""

    def entries(self) -> Iterator[Entry]:
        """Everything there, in no order. Raises Unreadable where the place as a whole can't be listed."""


@dataclass(frozen=True)
class Folder:
    """A folder and all below it, on a file system. Links are not followed."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def entries(self) -> Iterator[Entry]:
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
                yield Entry(self._below(folder), note=f"the folder can't be listed ({_reason(failure)})")

    def _entry(self, found: os.DirEntry[str], path: Path) -> Entry:
        name = self._below(path)
        if found.is_symlink():
            return Entry(f"{name} -> {path.readlink()}", note="a link: what it points to is a place of its own")
        if found.is_dir(follow_symlinks=False):
            return Entry(f"{name}/")
        if not found.is_file(follow_symlinks=False):
            return Entry(name, note="neither a file nor a folder")
        return Entry(name, lambda: Opened(_opened(path)))

    def _below(self, path: Path) -> str:
        return str(path.relative_to(self.path))


def _opened(path: Path) -> BinaryIO:
    try:
        file = path.open("rb")
    except OSError as failure:
        raise Unreadable(f"it can't be opened ({_reason(failure)})") from failure
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise Unreadable("it is no longer a file")
    return file


def _reason(failure: OSError) -> str:
    """Without the path, which may hold a value."""
    return os.strerror(failure.errno) if failure.errno else type(failure).__name__
