"""The schedule of compaction converges for rows and batches of any size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from ingest.delta.compaction import FILES_PER_SIZE, LARGE, file_count, files_due
from ingest.delta.data_file import DataFile
from ingest.tuning import DEFAULT_TUNING


@dataclass(frozen=True)
class File:
    """The properties of a `DataFile` that decide about compaction."""

    live_bytes: int
    rows: int = 1
    deleted_rows: int = 0


_SIZES = st.integers(1, 3 * LARGE) | st.integers(LARGE // 2, LARGE - 1)
"""Many are nearly large, like the files of a first load with narrow rows."""


@given(
    st.lists(_SIZES, min_size=FILES_PER_SIZE, max_size=60),
    st.lists(st.floats(0.6, 1.5), min_size=1, max_size=20),
    st.sampled_from([FILES_PER_SIZE, DEFAULT_TUNING.append_only_files_per_size]),
)
def test_compaction_schedule_converges(sizes: list[int], presses: list[float], together: int) -> None:
    """Each rewrite may change the size of the rows."""
    files = [File(size) for size in sizes]
    turns = 0
    while found := files_due(cast(list[DataFile], files), files_per_size=together):
        count = file_count(found)
        size = sum(f.live_bytes for f in found) / count
        press = presses[turns % len(presses)]
        files = [f for f in files if cast(DataFile, f) not in found] + [File(max(1, int(size * press)))] * count
        turns += 1
        assert turns <= len(sizes), "every round leaves fewer small files"
    small = [f for f in files if f.live_bytes < LARGE]
    assert len(small) < together * 6, "at most this number of size classes"
