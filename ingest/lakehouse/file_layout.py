"""How the rows of a commit are distributed over its new files: sorted by key, so that a later batch finds its keys
without reading the other files."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from ingest.changelog.change import quoted
from ingest.tuning import Tuning


def new_file_count(rows: int, cores: int, tuning: Tuning) -> int:
    """Returns how many files to make of `rows` rows: enough for all cores to write at once, if that is worth it."""
    tasks, files = -(-rows // tuning.rows_per_writing_task), rows // tuning.rows_per_written_file
    return max(1, min(tasks, max(cores, files)))


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
