"""What is known of a state's key, where one position decides: the row that is there, and the tombstone."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import COLUMN_POSITIONS, POSITION_COLUMN, quoted
from ingest.changelog.position import POSITION, position_literal
from ingest.internal_columns import LOCATION, LOCATION_TYPE
from ingest.lakehouse.tombstones import MOVED_AT
from ingest.merge.actions import with_whole_row_actions

LAYERED = "_layered"
"""Whether columns of the row are older than itself."""


def row_facts(key: Sequence[str], rows: DataFrame) -> DataFrame:
    """Of stored rows with their `LOCATION` all that a verdict asks for."""
    # Of all that they hold a reader needs to open but the smallest part.
    layered = F.map_values(COLUMN_POSITIONS)["before"].isNotNull().alias(LAYERED)
    return rows.select(*map(quoted, dict.fromkeys([*key, POSITION_COLUMN])), LOCATION, layered)


def with_verdict(
    key: Sequence[str],
    horizon: tuple[int, ...] | None,
    states: DataFrame,
    live: DataFrame | None,
    tombstones: DataFrame | None,
) -> DataFrame:
    """The states with what they do to the rows and tombstones of their keys, where these are, and when they moved.
    `live`: `row_facts`; `buried`: tombstones with `MOVED_AT`. `horizon`: of tombstones."""
    judged = with_whole_row_actions(
        states, live, tombstones, key, None if horizon is None else position_literal(horizon)
    )
    if live is None:
        judged = judged.withColumns({LOCATION: F.lit(None).cast(LOCATION_TYPE), LAYERED: F.lit(False)})
    return judged if tombstones is not None else judged.withColumn(MOVED_AT, F.lit(None).cast(POSITION))
