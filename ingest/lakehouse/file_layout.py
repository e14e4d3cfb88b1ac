"""How rows that come to a table are shared out over its new files: sorted by key, so that a later batch finds its keys
without reading the others."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from ingest.changelog.change import quoted

_ROWS_A_FILE = 500_000
_ROWS_A_TASK = 50_000


def files_of(rows: int, cores: int) -> int:
    """How many files so many rows make: enough for all cores to write at once, if that is worth it."""
    return max(1, min(-(-rows // _ROWS_A_TASK), max(cores, rows // _ROWS_A_FILE)))


def laid_out(images: DataFrame, key: Sequence[str], files: int, parts: int | None = None) -> DataFrame:
    """`images` for so many files, or fewer, each sorted by `key`; without one, as they come. `parts`: they lie by key
    in so many sorted parts, if they do. What lies so is not shared out anew, by ranges: who looks for keys opens all
    files, and reads a page or two of each."""
    columns = [quoted(k) for k in key]
    if parts is not None and parts <= files:
        spread = images
    elif parts is None and files > 1 and columns:
        spread = images.repartitionByRange(files, *columns)
    else:
        spread = images.coalesce(files)
    # Nothing to be done where they stay as they lie.
    return spread.sortWithinPartitions(*columns) if columns else spread
