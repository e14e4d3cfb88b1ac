"""How the rows of a commit are distributed over its new files: sorted by key, so that a later batch finds its keys
without reading the other files."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from ingest.changelog.change import quoted

_ROWS_A_FILE = 500_000
_ROWS_A_TASK = 50_000


def new_file_count(rows: int, cores: int) -> int:
    """Returns how many files to make of `rows` rows: enough for all cores to write at once, if that is worth it."""
    return max(1, min(-(-rows // _ROWS_A_TASK), max(cores, rows // _ROWS_A_FILE)))


def laid_out(images: DataFrame, key: Sequence[str], files: int, parts: int | None = None) -> DataFrame:
    """Returns `images` in at most `files` partitions, each sorted by `key`; unsorted if there is no key. `parts`:
    number of partitions in which `images` is sorted by key already, if it is. Those are not split into ranges of the
    key: a lookup then opens every file, but reads a page or two of each."""
    columns = [quoted(k) for k in key]
    if parts is not None and parts <= files:
        spread = images
    elif parts is None and files > 1 and columns:
        spread = images.repartitionByRange(files, *columns)
    else:
        spread = images.coalesce(files)
    # Spark drops the sort where the rows are sorted already.
    return spread.sortWithinPartitions(*columns) if columns else spread
