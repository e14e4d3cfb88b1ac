"""What merging means.

The state of a key is decided by one number, the highest position of all that happened to it:

    row exists  ⇔  position of its newest image  >  D
    D           =   highest position of a delete of the key, or of a truncate of its table

A batch arrives compacted: one state per key, an image or a delete at a position. It takes effect when it is newer
than everything remembered of its key: the row in silver, the tombstone beside it, the last truncate. Otherwise
it was late or doubled, and changes nothing. So no batching, order or repetition can change the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.compaction import DELETED, POSITION_COLUMN, quoted
from ingest.changelog.position import POSITION

SURROGATE = "_key"
ACTION = "_action"
INSERT, UPDATE, DELETE, BURY = "insert", "update", "delete", "bury"
ACTIONS = (INSERT, UPDATE, DELETE, BURY)
"""`bury`: a delete of a key that has no row: only its tombstone is written."""


def surrogate(key: Sequence[str]) -> Column:
    """What a tombstone remembers of a key: a hash, nothing of the row."""
    return F.unhex(F.sha2(F.to_json(F.struct(*(quoted(c) for c in key)), {"ignoreNullFields": "false"}), 256))


def effective(states: DataFrame, rows: DataFrame | None, tombstones: DataFrame | None, key: Sequence[str]) -> DataFrame:
    """The states that take effect, each with its `_action`.

    `states`: key columns, `_key`, `_deleted`, `_position`, columns. `rows`: key columns and `_position` of the
    live rows, at least those of the same keys. `tombstones`: `_key` and `_position`, at most one row per `_key`.
    None where there are none at all.
    """
    judged = states
    for name, remembered, by in (("_row", rows, list(key)), ("_tombstone", tombstones, [SURROGATE])):
        if remembered is None:
            judged = judged.withColumn(name, F.lit(None).cast(POSITION))
        else:
            known = remembered.select(*(quoted(c) for c in by), F.col(POSITION_COLUMN).alias(name))
            judged = judged.join(known, by, "left")
    at, row, grave, deleted = (F.col(c) for c in (POSITION_COLUMN, "_row", "_tombstone", DELETED))
    # Tombstones are written before rows are removed: a row at or below its tombstone is what a crash in between
    # left, and the replayed delete must still take it away.
    left_behind = F.coalesce(row <= grave, F.lit(False))
    removes = F.when(row.isNotNull(), (at > row) | left_behind).otherwise(grave.isNull() | (at > grave))
    newest = F.greatest(row, grave)
    won = F.when(deleted, removes).otherwise(newest.isNull() | (at > newest))
    action = (
        F.when(deleted & row.isNotNull(), DELETE).when(deleted, BURY).when(row.isNotNull(), UPDATE).otherwise(INSERT)
    )
    return judged.where(won).withColumn(ACTION, action).drop("_row", "_tombstone")
