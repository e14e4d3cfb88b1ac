"""The history of a silver table, where a pipeline's file asks for it: all versions of its rows (an SCD of type 2), and
what these follow from: every change that came, by key."""

from __future__ import annotations

from typing import ClassVar

from pyspark.sql import types as T

from ingest.changelog.change import COLUMN_POSITIONS, COLUMN_POSITIONS_TYPE, DELETED, POSITION_COLUMN, SOURCE_TS
from ingest.changelog.position import POSITION
from ingest.lakehouse.silver import Silver
from ingest.merge.row_versions import UNTIL, VALID_FROM, VALID_TO

OTHER_KEY = "_other_key"
"""As JSON: the key that a deleted row went on under; of a row that came from another key, that one."""
ARRIVED = "_arrived"
"""Whether the row only says that one came from another key."""


class HistoryVersions(Silver):
    """For readers: a row per version, with the time from which and before which it held."""

    system_columns: ClassVar[T.StructType] = T.StructType(
        [
            T.StructField(VALID_FROM, T.TimestampType()),
            T.StructField(VALID_TO, T.TimestampType()),
            T.StructField(POSITION_COLUMN, POSITION),
            T.StructField(UNTIL, POSITION),
        ]
    )
    version_columns: ClassVar[tuple[str, ...]] = (POSITION_COLUMN,)


class HistoryChanges(Silver):
    """For the merge: a row per change, also of those that are older than what silver holds. One without a key is of
    the whole table: a truncate."""

    system_columns: ClassVar[T.StructType] = T.StructType(
        [
            T.StructField(DELETED, T.BooleanType()),
            T.StructField(POSITION_COLUMN, POSITION),
            T.StructField(SOURCE_TS, T.TimestampType()),
            T.StructField(COLUMN_POSITIONS, COLUMN_POSITIONS_TYPE),
            T.StructField(OTHER_KEY, T.StringType()),
            T.StructField(ARRIVED, T.BooleanType()),
        ]
    )
    version_columns: ClassVar[tuple[str, ...]] = (POSITION_COLUMN, DELETED, ARRIVED)
