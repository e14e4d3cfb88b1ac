"""The law of batches: compact(a ∪ b) = compact(compact(a) ∪ compact(b))."""

from __future__ import annotations

import os

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.change import CODE, DELETED, EVENT_ID, POSITION_COLUMN
from ingest.changelog.position import POSITION
from ingest.merge.compaction import compacted

pytestmark = pytest.mark.spark
SEED = int(os.environ.get("FUZZ_SEED", "4"))
KEY = ["case", "id"]


def random_changes(spark: SparkSession, cases: int, events: int) -> DataFrame:
    """Returns the changes of `cases` changelogs with three keys each. Many share a position except for their offset,
    some can't be applied, and a third is delivered twice."""
    number = F.col("n")
    place = {"major": F.floor(F.rand(SEED) * 4), "streamed": F.floor(F.rand(SEED + 1) * 2), "offset": number}
    fields = [place.get(f.name, F.lit(0)).cast(f.dataType).alias(f.name) for f in POSITION.fields]
    once = (
        spark.range(cases * events)
        .select((F.col("id") % cases).alias("case"), F.col("id").alias("n"))
        .select(
            "case",
            F.floor(F.rand(SEED + 2) * 3).alias("id"),
            F.struct(*fields).alias(POSITION_COLUMN),
            (F.rand(SEED + 3) < 0.3).alias(DELETED),
            F.struct(F.lit("t").alias("topic"), F.lit(0).alias("partition"), number.alias("offset")).alias(EVENT_ID),
            F.when(F.rand(SEED + 4) < 0.1, "no-key").alias(CODE),
            F.floor(F.rand(SEED + 5) * 10).alias("value"),
        )
        .localCheckpoint()
    )
    return once.unionByName(once.sample(0.3, SEED)).localCheckpoint()


@pytest.mark.parametrize("parts", [None, 3], ids=["few", "many"])
def test_compaction_does_not_depend_on_batches(spark: SparkSession, parts: int | None) -> None:
    changes = random_changes(spark, cases=300, events=12)
    cut = changes.withColumn("side", F.rand(SEED + 6) < 0.5).localCheckpoint()
    left, right = (cut.where(F.col("side") == side).drop("side") for side in (True, False))
    whole = compacted(changes, KEY, parts)
    columns = whole.columns
    by_parts = compacted(compacted(left, KEY, parts).unionByName(compacted(right, KEY, parts)), KEY, parts).select(
        columns
    )
    assert whole.count() > 900
    assert whole.exceptAll(by_parts).isEmpty()
    assert by_parts.exceptAll(whole).isEmpty()
    assert compacted(whole, KEY, parts).select(columns).exceptAll(whole).isEmpty()


@pytest.mark.parametrize("parts", [None, 3], ids=["few", "many"])
def test_refused_changes_replace_no_change_of_their_key(spark: SparkSession, parts: int | None) -> None:
    changes = random_changes(spark, cases=300, events=12)
    able = F.col(CODE).isNull()
    states = compacted(changes, KEY, parts)
    newest = F.max(POSITION_COLUMN).alias(POSITION_COLUMN)
    wanted = changes.where(able).groupBy(*KEY).agg(newest)
    assert states.where(able).select(*wanted.columns).exceptAll(wanted).isEmpty()
    assert wanted.exceptAll(states.where(able).select(*wanted.columns)).isEmpty()
    refused = changes.where(~able).select(EVENT_ID).distinct()
    assert refused.exceptAll(states.where(~able).select(EVENT_ID)).isEmpty()
