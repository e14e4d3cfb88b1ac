"""Collects the statistics of a batch (its `Group`s) while its events are written to bronze, so that the merge need not
read them again for that.

The counter is a Spark accumulator: the counts of each task are added up when the task succeeds.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.batches.group_stats import CHANGE, Group, in_transport_order
from ingest.batches.key_names import keys_of
from ingest.changelog.origin import ORIGIN
from ingest.evolution.inferred.inference import are_parsed, column_kinds, parsed_images
from ingest.jvm.expressions import JavaAccumulator
from ingest.jvm.library import tasks_have_library
from ingest.merge.key_changes import names_new_key
from ingest.spark.local_rows import local_rows
from ingest.tuning import DEFAULT_TUNING, Tuning

_Kinds = tuple[str | None, bool]
_VALUES = T.StructType(
    [
        T.StructField("group", T.IntegerType()),
        T.StructField("wrapped", T.BooleanType()),
        T.StructField("value", T.BinaryType()),
    ]
)


class BatchCounter:
    """Counts the events of one batch."""

    _kinds_by_digest: ClassVar[dict[str | None, _Kinds]] = {}
    """Kinds of values by the digest of the images seen, kept between batches: mostly a batch has the same as the one
    before."""

    def __init__(self, spark: SparkSession, tuning: Tuning = DEFAULT_TUNING) -> None:
        self._spark = spark
        self._tuning = tuning
        self._counts = JavaAccumulator(spark, "ingest.batches.BatchStats")

    @staticmethod
    def is_available(spark: SparkSession) -> bool:
        """Returns True where tasks have the counter's class."""
        return tasks_have_library(spark.sparkContext)

    def observe(self, batch: Column, position: Column, table: Column) -> Column:
        """Returns `batch` as a column that counts each event for which it is evaluated. `position`, `table`: the
        event's position and table, as bronze places it."""
        observed = (_observed(position, table), batch)
        return self._counts.updated_by("observe", T.LongType(), observed)

    def groups_json(self) -> list[dict[str, Any]] | None:
        """Returns `Group.to_json` of each group, once all events are written. None where not all could be counted."""
        text = self._counts.to_json()
        if text is None:
            return None
        counted = json.loads(text)
        groups = []
        for stats, (joined, opened) in zip(counted, self._kinds(counted), strict=True):
            known = stats["kind"] == CHANGE and stats["schema_id"] is None and stats["seen"] is not None
            del stats["seen"], stats["values"]
            partitions = sorted({tuple(place) for place in stats["partitions"]})
            inferred = {"partitions": partitions, "kinds": joined, "opened": opened, "known": known}
            inferred["keys"] = keys_of(stats["keys"])
            groups.append(Group.from_json(stats | inferred))
        return [group.to_json() for group in in_transport_order(groups)]

    def _kinds(self, counted: Sequence[dict[str, Any]]) -> list[_Kinds]:
        """Returns of each group the kinds of its values, as `inference.column_kinds` gives them, and whether every
        image could be opened."""
        names = [_digest(group["seen"]) for group in counted]
        if len(self._kinds_by_digest) > self._tuning.remembered_images:
            self._kinds_by_digest.clear()
        unknown = {n: group for n, group in enumerate(counted) if names[n] not in self._kinds_by_digest}
        inferred = self._inferred_kinds(unknown) if unknown else {}
        found = [inferred[n] if n in inferred else self._kinds_by_digest[names[n]] for n in range(len(counted))]
        self._kinds_by_digest.update(
            (name, kinds) for name, kinds in zip(names, found, strict=True) if name and kinds[1]
        )
        return found

    def _inferred_kinds(self, groups: Mapping[int, dict[str, Any]]) -> dict[int, _Kinds]:
        values = [
            {"group": n, "wrapped": group["wrapped"], "value": None if text is None else base64.b64decode(text)}
            for n, group in groups.items()
            for text in (group["values"] or [None])
        ]
        rows = local_rows(self._spark, values, _VALUES).withColumn(
            "_images", parsed_images(F.col("value").cast("string"))
        )
        joined = column_kinds(F.col("_images"), F.col("wrapped")).alias("kinds")
        opened = F.bool_and(are_parsed(F.col("_images"))).alias("opened")
        kinds = {row["group"]: row for row in rows.groupBy("group").agg(joined, opened).collect()}  # a row per table
        return {n: (kinds[n]["kinds"], not groups[n]["values"] or kinds[n]["opened"]) for n in groups}


def _digest(seen: Sequence[str] | None) -> str | None:
    """Returns a digest of the images seen of a group, because their names of columns may be data; None where not all of
    them are known."""
    return None if seen is None else hashlib.sha256("\n".join(seen).encode()).hexdigest()


def _observed(position: Column, table: Column) -> Column:
    """Returns what the counter takes of an event, in this order."""
    wrapped = F.coalesce("wrapped", F.lit(False)).alias("wrapped")
    before = (table.alias("source_table"), "op", "problem", "schema_id", wrapped, "topic", "partition", "offset")
    return F.struct(
        *before,
        position.alias("position"),
        "progress",
        "ends_snapshot",
        names_new_key().alias("key_changes"),
        "key",
        "value",
        "source_ts",
        ORIGIN,
    )
