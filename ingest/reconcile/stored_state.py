"""The stored state of a key where one position per row decides: the row in silver, and the tombstone."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import COLUMN_POSITIONS, POSITION_COLUMN, quoted
from ingest.changelog.position import POSITION, position_literal
from ingest.internal_columns import LOCATION, LOCATION_TYPE
from ingest.lakehouse.tombstones import MOVED_AT
from ingest.merge.actions import with_whole_row_actions

HAS_COLUMN_VERSIONS = "_ingest_has_column_versions"
"""True where columns of the stored row are older than the row."""


def lookup_columns(key: Sequence[str], rows: DataFrame) -> DataFrame:
    """Returns of stored rows only what a lookup needs: the key, `_position`, `LOCATION` and `HAS_COLUMN_VERSIONS`. The
    reader then decodes few of the table's Parquet columns."""
    has_column_versions = F.map_values(COLUMN_POSITIONS)["before"].isNotNull().alias(HAS_COLUMN_VERSIONS)
    return rows.select(*map(quoted, dict.fromkeys([*key, POSITION_COLUMN])), LOCATION, has_column_versions)


def with_row_actions(
    key: Sequence[str],
    horizon: tuple[int, ...] | None,
    states: DataFrame,
    rows: DataFrame | None,
    tombstones: DataFrame | None,
) -> DataFrame:
    """Returns the states with the `ACTION` of each on the row and tombstone of its key, the row's `LOCATION`, and
    `MOVED_AT`, the position at which the key's row moved to another key.

    `rows`: as `lookup_columns` gives them. `tombstones`: with `MOVED_AT`. None: the table has none. `horizon`: the gc
    horizon of the tombstones."""
    resolved = with_whole_row_actions(
        states, rows, tombstones, key, None if horizon is None else position_literal(horizon)
    )
    if rows is None:
        no_location = F.lit(None).cast(LOCATION_TYPE)
        resolved = resolved.withColumns({LOCATION: no_location, HAS_COLUMN_VERSIONS: F.lit(False)})
    return resolved if tombstones is not None else resolved.withColumn(MOVED_AT, F.lit(None).cast(POSITION))
