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
from functools import cache, lru_cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import CODE, DELETED, POSITION_COLUMN, REASON, quoted
from ingest.changelog.position import POSITION, comes_again
from ingest.changelog.values.render import IN_FULL
from ingest.merge.key_join import joined_by_key

SURROGATE = "_key"
OLDER_THAN_HORIZON = "older-than-horizon"
_FORGOTTEN = "tombstones this old have been forgotten: whether the key was deleted since can't be known"
ACTION = "_action"
TIED = "_tied"
INSERT, UPDATE, DELETE, BURY, REFUSE = "insert", "update", "delete", "bury", "refuse"
"""`bury`: a delete of a key that has no row: only its tombstone is written. `refuse`: it can't be applied."""


def surrogate(key: Sequence[str]) -> Column:
    """What a tombstone remembers of a key: a hash, nothing of the row."""
    return _surrogate(tuple(key))


@lru_cache(maxsize=512)
def _surrogate(key: tuple[str, ...]) -> Column:
    return surrogate_of([quoted(c) for c in key])


def surrogate_of(values: Sequence[Column]) -> Column:
    """The same of values that are named as the key's columns are."""
    return F.unhex(F.sha2(F.to_json(F.struct(*values), IN_FULL), 256))


def unjudgeable(states: DataFrame, position: Column, nothing_known: Column, horizon: Column) -> DataFrame:
    """Images of keys of which nothing is known, from before the gc horizon, with the `_code` that says so."""
    old = F.col(CODE).isNull() & ~F.col(DELETED) & nothing_known & (position < horizon)
    told = {CODE: OLDER_THAN_HORIZON, REASON: _FORGOTTEN}
    return states.withColumns({name: F.when(old, F.lit(text)).otherwise(F.col(name)) for name, text in told.items()})


def effective(
    states: DataFrame,
    rows: DataFrame | None,
    tombstones: DataFrame | None,
    key: Sequence[str],
    horizon: Column | None = None,
) -> DataFrame:
    """The states with their `_action`: null for what was late or doubled. `_tied`: an image that stands where its row
    does, and is the same event once more if they are equal.

    `states`: compacted changes. `rows` and `tombstones`: key columns, or the `_key` of these, and `_position`, one row
    per key at most, at least those of the same keys; what else they have is handed on. None where there are none at
    all. `horizon`: tombstones below it have been forgotten.
    """
    judged = states
    for name, remembered in (("_row", rows), ("_tombstone", tombstones)):
        if remembered is None:
            judged = judged.withColumn(name, F.lit(None).cast(POSITION))
        else:
            by = [SURROGATE] if SURROGATE in remembered.columns else list(key)
            more = (quoted(c) for c in remembered.columns if c not in by and c != POSITION_COLUMN)
            known = remembered.select(*map(quoted, by), F.col(POSITION_COLUMN).alias(name), *more)
            judged = joined_by_key(judged, known, by, "left")
    if horizon is not None:
        nothing_known = F.col("_row").isNull() & F.col("_tombstone").isNull()
        judged = unjudgeable(judged, F.col(POSITION_COLUMN), nothing_known, horizon)
    return judged.withColumns(_verdict()).drop("_row", "_tombstone")


@cache
def _verdict() -> dict[str, Column]:
    """`_action` and `_tied` of a state, out of its position and those of the row and tombstone of its key. Without
    branches, as far as two positions are compared: of what is in one branch of several Spark doesn't see that it is
    named twice, and generates it twice. Kept: writing them down takes longer than to judge a small batch."""
    position, row, grave, deleted = (F.col(c) for c in (POSITION_COLUMN, "_row", "_tombstone", DELETED))
    over_row, over_grave = (F.coalesce(position > known, F.lit(True)) for known in (row, grave))
    there = row.isNotNull()
    # Tombstones are written before rows are removed: a row at or below its tombstone is what a crash in between
    # left, and the replayed delete must still take it away.
    left_behind = F.coalesce(row <= grave, F.lit(False))
    repeated = deleted & ~there & comes_again(position, grave)
    newest = over_row & over_grave & ~repeated
    won = F.col(CODE).isNull() & (newest | (deleted & there & (over_row | left_behind)))
    gone, come = F.when(there, DELETE).otherwise(BURY), F.when(there, UPDATE).otherwise(INSERT)
    action = F.when(won, F.when(deleted, gone).otherwise(come)).when(F.col(CODE).isNotNull(), REFUSE)
    return {ACTION: action, TIED: won & ~deleted & comes_again(position, row)}
