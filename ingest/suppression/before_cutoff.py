"""Events at or below the cutoff of an erased subject whose keys they reference. These are suppressed."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import EVENT_ID
from ingest.changelog.position import POSITION, has_source_position, source_position
from ingest.spark.local_rows import local_rows
from ingest.suppression.cutoff import Cutoff

BEFORE_CUTOFF, UNDECIDED = "_ingest_before_cutoff", "_ingest_undecided"
"""Boolean columns: the event stands at or below the cutoff; neither its offset nor its position decides that."""
_CUTOFF_ROWS = T.StructType(
    [
        T.StructField("request", T.StringType()),
        T.StructField("_ingest_ends", T.MapType(T.StringType(), T.LongType())),
        T.StructField("_ingest_last", POSITION),
    ]
)


def with_cutoff_flags(events: DataFrame, cutoffs: Mapping[str, Cutoff], table: str) -> DataFrame:
    """Returns events of `table` (`EVENT_ID`, `op`, `position`, `request`) with `BEFORE_CUTOFF` and `UNDECIDED` for
    their `request`."""
    cutoff_rows = F.broadcast(_cutoff_rows(events.sparkSession, cutoffs, table))
    joined = events.join(cutoff_rows, "request")
    end = F.element_at("_ingest_ends", _partition(F.col(EVENT_ID)))
    before = F.coalesce(F.col(EVENT_ID)["offset"] < end, F.lit(False))
    placed = has_source_position(F.col("position")) & F.col("_ingest_last").isNotNull()
    event_position, last_position = source_position(F.col("position")), F.col("_ingest_last")
    # A snapshot read after the cutoff has the cutoff's position if nothing was written in between.
    snapshot_read_later = (
        (F.col("op") == "r")
        & end.isNotNull()
        & (event_position >= source_position(last_position.withField("streamed", F.lit(0))))
    )
    sent_again = placed & ~snapshot_read_later & (event_position <= source_position(last_position))
    is_before = before | F.coalesce(sent_again, F.lit(False))
    is_undecided = ~is_before & end.isNull() & ~F.coalesce(placed, F.lit(False))
    return joined.withColumns({BEFORE_CUTOFF: is_before, UNDECIDED: is_undecided}).drop("_ingest_ends", "_ingest_last")


def _partition(event: Column) -> Column:
    return F.concat(event["topic"], F.lit("\0"), event["partition"].cast("string"))


def _cutoff_rows(spark: SparkSession, cutoffs: Mapping[str, Cutoff], table: str) -> DataFrame:
    rows = []
    for request, cutoff in cutoffs.items():
        ends = {f"{t}\0{p}": end for t, ps in cutoff.offsets.items() for p, end in ps.items()}
        position = cutoff.position(table)
        last = None if position is None else dict(zip(POSITION.names, position, strict=True))
        rows.append({"request": request, "_ingest_ends": [*ends.items()], "_ingest_last": last})
    return local_rows(spark, rows, _CUTOFF_ROWS)
