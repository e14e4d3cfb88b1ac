"""The history of a silver table, if the pipeline file asks for it: all versions of its rows (SCD type 2), and the
changes that the versions are computed from."""

from __future__ import annotations

from typing import ClassVar

from pyspark.sql import types as T

from ingest.changelog.change import COLUMN_POSITIONS, COLUMN_POSITIONS_TYPE, DELETED, POSITION_COLUMN, SOURCE_TS
from ingest.changelog.position import POSITION
from ingest.lakehouse.silver import Silver
from ingest.merge.row_versions import UNTIL, VALID_FROM, VALID_TO

OTHER_KEY = "_other_key"
"""A key as JSON: of a deleted row the key under which it went on, of a row that came from another key that key."""
ARRIVED = "_arrived"
"""True in a row that only records that a row came from another key."""


class HistoryVersions(Silver):
    """The versions of a table's rows, for readers: a row per version, valid from `VALID_FROM` until before
    `VALID_TO`."""

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
    """The changes of a table, for the merge: a row per change, also if it is older than silver's row. A change without
    a key is a truncate."""

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
