"""The places that hold rows of subjects, one module each, and their register.

Names as in the ledger and in the counts of a search; `register` says what each place can do."""

from __future__ import annotations

DATA_KEYS, TOMBSTONES, QUARANTINE, TABLES, BRONZE = "data keys", "tombstones", "quarantine", "tables", "bronze"
OLD_FILES, TOPICS, ARCHIVE = "old files", "compacted topics", "archive"
SILVER, PENDING, HISTORY = "silver", "pending", "history"
"""Parts of `TABLES`, which a search counts one by one."""
