"""What keeps an erased subject's old life away: events that name a fenced key, at or below its request's cut-off."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import EVENT_ID
from ingest.changelog.position import POSITION, is_placed, place
from ingest.spark.local_rows import local_rows
from ingest.suppression.cutoff import CutOff

OLD, UNKNOWN = "_old", "_unknown"
"""Whether an event is of the old life, and whether nothing tells."""
_ENDS = T.StructType(
    [
        T.StructField("request", T.StringType()),
        T.StructField("_ends", T.MapType(T.StringType(), T.LongType())),
        T.StructField("_last", POSITION),
    ]
)


def judged(hits: DataFrame, cut_offs: Mapping[str, CutOff], table: str) -> DataFrame:
    """Events of `table` (`EVENT_ID`, `op`, `position`) that name a key of a `request`, with `OLD` and `UNKNOWN`."""
    ends = F.broadcast(_ends(hits.sparkSession, cut_offs, table))
    told = hits.join(ends, "request")
    end = F.element_at("_ends", _partition(F.col(EVENT_ID)))
    before = F.coalesce(F.col(EVENT_ID)["offset"] < end, F.lit(False))
    placed = is_placed(F.col("position")) & F.col("_last").isNotNull()
    here, last = place(F.col("position")), F.col("_last")
    # A snapshot that is read later may stand where the log stood, if nothing was written since.
    read_later = (F.col("op") == "r") & end.isNotNull() & (here >= place(last.withField("streamed", F.lit(0))))
    sent_again = placed & ~read_later & (here <= place(last))
    old = before | F.coalesce(sent_again, F.lit(False))
    unknown = ~old & end.isNull() & ~F.coalesce(placed, F.lit(False))
    return told.withColumns({OLD: old, UNKNOWN: unknown}).drop("_ends", "_last")


def _partition(event: Column) -> Column:
    return F.concat(event["topic"], F.lit("\0"), event["partition"].cast("string"))


def _ends(spark: SparkSession, cut_offs: Mapping[str, CutOff], table: str) -> DataFrame:
    rows = []
    for request, cut_off in cut_offs.items():
        ends = {f"{t}\0{p}": end for t, ps in cut_off.offsets.items() for p, end in ps.items()}
        at = cut_off.position(table)
        last = None if at is None else dict(zip(POSITION.names, at, strict=True))
        rows.append({"request": request, "_ends": [*ends.items()], "_last": last})
    return local_rows(spark, rows, _ENDS)
