"""Old files of Delta tables: versions from before the removal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ingest.delta.vacuum import existing_tables, remove_old_files
from ingest.erasure.places import OLD_FILES
from ingest.erasure.places.place import Record, Removed
from ingest.erasure.removal_run import RemovalRun
from ingest.suppression.ledger import STATE, last_state_number


def remove(run: RemovalRun) -> Removed:
    """Deletes old files if the retention has passed since the last removal, so that no reader or writer can be using
    them. Until then `remain_until` says when it will have passed."""
    states = [e for e in run.context.ledger.entries() if e.kind == STATE]
    last_removal = last_state_number(states, OLD_FILES)
    removals = [e.at for e in states if e.number > last_removal and e.place in run.delta_places]
    if not removals:
        return Removed(None, Record.NEVER)
    due = max(removals) + timedelta(hours=run.keep_hours)
    if datetime.now(UTC) < due:
        return Removed(None, Record.NEVER, remain_until=due)
    spark = run.context.spark
    remove_old_files(spark, existing_tables(spark, run.delta_folders()), run.keep_hours)
    return Removed(None, Record.ALWAYS)
