"""Thresholds that decide how work is done: in one task or several, by page or whole, now or later.

No value changes a result. They are no settings of a pipeline's file: the defaults were measured on two cores and hold
for larger machines. Tests pass other values, so that a few rows take the way of many.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """The thresholds. Passed in with a pipeline's rules, and to each table that is opened."""

    fresh_snapshot_seconds: float = 1.0
    """Seconds for which a table's newest snapshot is used without looking for newer commits. Two writers that both use
    an old one conflict, and the second begins anew: rare within a second, and a look costs a request to the store."""
    cached_scan_files: int = 32
    """Most live files of a table that is read as the cached log lists them. With more, Delta selects the files that a
    query needs by their statistics."""
    orphan_search_files: int = 500
    """Most files below a table among which orphan files are searched without VACUUM."""
    orphan_search_commits: int = 20
    """Most commits that are read to find orphan files without VACUUM: each is a request."""
    append_only_files_per_size: int = 32
    """Files of one size class that make a compaction due, in a table that batches only append to. Of other tables 8
    do: these have few readers, and with rare compactions batches wait less."""

    bronze_file_rows: int = 250_000
    """Rows up to which compaction fills a file of bronze. An erasure rewrites each file that it touches, so its cost
    must not grow with the history around the events."""
    bronze_file_bytes: int = 16 << 20
    """Bytes up to which compaction fills a file of bronze, if it has fewer than `bronze_file_rows` rows."""
    events_per_stored_summary: int = 500_000
    """Events after which the summary of bronze is stored. A start reads at most as many, in a hundredth of the time it
    took to merge them."""

    rewritable_bytes: int = 1 << 20
    """Bytes of silver files that a commit rewrites, so that a small table stays one file. In larger files rows are
    deleted by deletion vectors."""
    rows_per_written_file: int = 500_000
    """Rows of a new silver file, if that makes more files than the cores write at once."""
    rows_per_writing_task: int = 50_000
    """Rows of a new silver file below which another task costs more than it saves."""
    full_scan_bytes: int = 16 << 20
    """Bytes of files up to which a lookup reads all rows: that is faster than collecting the keys."""
    one_task_scan_bytes: int = 4 << 20
    """Bytes of files up to which a lookup is as fast in one task as in several."""
    page_lookup_keys: int = 5000
    """Most keys that are looked up by page. With more hardly a page can be skipped, and comparing with each costs more
    than it saves."""

    small_slice_events: int = 5000
    """Events up to which a captured batch is written by one task per core, a slice is checkpointed if several tables
    share it, and its positions are compared event by event while they are counted."""
    small_batch_events: int = 25_000
    """Events up to which a table's batch runs in one task with prepared plans: planning takes longer than the work.
    Larger ones finish sooner in several tasks."""
    full_scan_rows_per_event: int = 4
    """Stored rows and tombstones per event of a larger batch, up to which the whole table is scanned. Of a larger table
    it is less work to send the batch's keys to where their rows are."""
    remembered_images: int = 10_000
    """Digests of images whose column kinds are kept between batches: a few hundred bytes each."""

    subject_index_span_events: int = 100_000
    """Approximate number of events in a span of the subject index, in whole batches. Longer spans make an erasure read
    more events than its subject's; shorter ones make the index larger."""

    first_retry_seconds: float = 1.0
    """Seconds of the pause before the first retry. Each pause is twice the one before."""
    longest_retry_seconds: float = 60.0
    """Seconds of the longest pause between retries, so that a run goes on soon after its service is back."""


DEFAULT_TUNING = Tuning()
