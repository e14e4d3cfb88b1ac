"""Thresholds by which a few rows take the way of many."""

from __future__ import annotations

from dataclasses import replace

from ingest.tuning import DEFAULT_TUNING

LARGE_FILES = replace(DEFAULT_TUNING, rewritable_bytes=0)
"""Rows are deleted by deletion vectors, and no file is rewritten."""
LARGE_TABLES = replace(LARGE_FILES, full_scan_bytes=0)
"""Keys are looked up by page, too."""
LARGE_BATCHES = replace(
    LARGE_TABLES, small_slice_events=-1, small_batch_events=-1, one_task_scan_bytes=0, full_scan_rows_per_event=1
)
"""No batch runs in one task, or is cached when it is captured. The first ones are joined with whole tables, later ones
with the rows of their keys."""
MANY_KEYS = replace(LARGE_TABLES, page_lookup_keys=80)
"""About every other batch of a hundred rows has too many keys to look them up by page."""
