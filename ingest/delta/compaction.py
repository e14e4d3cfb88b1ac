"""Compaction of a table's small files.

Batches write small files. Compaction makes a few large ones of them, sorted by key. It takes the files of about one
size together, with all that are smaller: so a row is rewritten once per size class, however many batches there are, and
a reader meets few files. A file most of whose rows are deleted is rewritten too. Compaction changes no row, and yields
to every other writer: on a conflict it gives up until the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from math import log

from pyspark.sql import DataFrame

from ingest.delta.conflict_retry import CONFLICTS
from ingest.delta.data_file import DataFile
from ingest.delta.delta_table import Table

FILES_PER_SIZE = 8
"""Files of one size class that are due together."""
_SMALLEST = 64 << 10
LARGE = 32 << 20
"""Bytes from which a file is not compacted any more, unless most of its rows are deleted."""
_MOSTLY_DELETED = 0.5

Layout = Callable[[Sequence[DataFile]], DataFrame]
"""Reads the rows of some files and lays them out for their new files."""


def files_due(files: Iterable[DataFile], large: int = LARGE, files_per_size: int = FILES_PER_SIZE) -> list[DataFile]:
    """Returns the files to compact now; mostly none. `large`: bytes from which a file stays as it is. `files_per_size`:
    how many files of one size class make it due."""
    size_class = partial(_size_class, files_per_size)
    by_size = sorted(files, key=size_class)
    small = [f for f in by_size if f.live_bytes < large]
    full = [size for size, group in groupby(small, key=size_class) if len(list(group)) >= files_per_size]
    due = [f for f in small if full and size_class(f) <= full[-1]]
    thinned = [f for f in by_size if f.rows and f.deleted_rows > _MOSTLY_DELETED * f.rows and f not in due]
    # One large file at a time: the next batch waits for it.
    return due + thinned[-1:]


def file_count(files: Iterable[DataFile]) -> int:
    """Returns how many files to make of `files`: one, or several that stay large however well their rows compress.
    Small ones would be due again at every batch."""
    return max(1, sum(f.live_bytes for f in files) // (2 * LARGE))


def _size_class(files_per_size: int, file: DataFile) -> int:
    return max(0, int(log(max(file.live_bytes, 1) / _SMALLEST, files_per_size)) + (file.live_bytes >= _SMALLEST))


def compact(table: Table, files: Sequence[DataFile], layout: Layout) -> bool:
    """Compacts `files`. Returns True if there are any, even if another writer was faster."""
    with suppress(*CONFLICTS):
        if files:
            table.rewrite(files, layout(files))
    return bool(files)
