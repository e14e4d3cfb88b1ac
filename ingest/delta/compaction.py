"""Which files of a table to write together.

Rows come in small files, one a batch, and in the end lie in few large ones, sorted by key. Written together are some
files of about one size, with all that are smaller: so a row is written again once for each size, however many batches
there are, and a reader meets few files. What comes of it is one file, or large ones. A file of whose rows most are
gone is written anew as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import groupby
from math import log

from ingest.delta.data_file import DataFile

FILES_PER_SIZE = 8
FILES_PER_SIZE_UNREAD = 32
"""So many of a table in which no batch looks for anything: its few readers meet more files, and batches wait less."""
_SMALLEST = 64 << 10
LARGE = 32 << 20
"""Bytes; so large a file is not written again before most of its rows are gone."""
_MOSTLY_GONE = 0.5


def files_due(files: Iterable[DataFile], large: int = LARGE, files_per_size: int = FILES_PER_SIZE) -> list[DataFile]:
    """The files that are to be written together now; mostly none. `large`: of how many bytes a file stays as it is.
    `together`: of so many of about one size."""
    size_class = partial(_size_class, files_per_size)
    sizes = sorted(files, key=size_class)
    small = [f for f in sizes if f.live_bytes < large]
    full = [size for size, some in groupby(small, key=size_class) if len(list(some)) >= files_per_size]
    found = [f for f in small if full and size_class(f) <= full[-1]]
    gone = [f for f in sizes if f.rows and f.rows_gone > _MOSTLY_GONE * f.rows and f not in found]
    # One large file at a time: the next batch waits for it.
    return found + gone[-1:]


def file_count(files: Iterable[DataFile]) -> int:
    """Into how many files to write these together: one, or several that are large for sure, however differently their
    rows can be pressed. Were they small again, all would be due again at the next batch, and at each."""
    return max(1, sum(f.live_bytes for f in files) // (2 * LARGE))


def _size_class(files_per_size: int, file: DataFile) -> int:
    return max(0, int(log(max(file.live_bytes, 1) / _SMALLEST, files_per_size)) + (file.live_bytes >= _SMALLEST))
