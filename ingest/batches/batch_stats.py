"""What a batch of events holds, counted while they pass by on their way to bronze: as `profile` tells it, but without
reading them for it.

A tally is an accumulator of Spark's: what tasks have counted is added up as each succeeds.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.batches.group_stats import CHANGE, Group, in_order
from ingest.batches.schema_novelty import asking
from ingest.changelog.origin import ORIGIN
from ingest.evolution.inference import are_whole, column_kinds, images
from ingest.jvm.sources import called, define_function, reaches_tasks
from ingest.merge.key_changes import names_new_key
from ingest.spark.local_rows import local_rows

_Shape = tuple[str | None, bool]
_HERE = Path(__file__).parent
_MOST_KNOWN = 10_000
_VALUES = T.StructType(
    [
        T.StructField("group", T.IntegerType()),
        T.StructField("wrapped", T.BooleanType()),
        T.StructField("value", T.BinaryType()),
    ]
)


class Tally:
    """Of the events of one batch."""

    _known: ClassVar[dict[str | None, _Shape]] = {}
    """By the name of what was seen of all values. Of most batches it is what it was of the one before."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        jvm: Any = spark._jvm
        self._counts = _class(jvm)()
        spark._jsc.sc().register(self._counts)

    @staticmethod
    def counts(spark: SparkSession) -> bool:
        """Whether it can: executors beside this JVM don't know its class."""
        return reaches_tasks(spark.sparkContext)

    def passing(self, batch: Column, position: Column, table: Column) -> Column:
        """`batch`, for each event once: selected beside it, it is counted. `position`: where it stands. `table`: whose
        it is."""
        return called(self._spark._jvm, self._counts, "saw", T.LongType(), (_seen(position, table), batch), pure=False)

    def told(self) -> list[dict[str, Any]] | None:
        """What `Group.said` of each group, once all events have passed by. None where that can't be told."""
        text = self._counts.told()
        if text is None:
            return None
        counted = json.loads(text)
        groups = []
        for said, (joined, opened) in zip(counted, self._shapes(counted), strict=True):
            known = said["kind"] == CHANGE and said["schema_id"] is None and said["seen"] is not None
            del said["seen"], said["values"]
            partitions = sorted({tuple(place) for place in said["partitions"]})
            told = {"partitions": partitions, "kinds": joined, "opened": opened, "known": known}
            groups.append(Group.heard(said | told))
        return [group.said for group in in_order(groups)]

    def _shapes(self, counted: Sequence[dict[str, Any]]) -> list[_Shape]:
        """Of each group the shape, and whether every value that tells of it could be opened."""
        names = [_name(group["seen"]) for group in counted]
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        unknown = {n: group for n, group in enumerate(counted) if names[n] not in self._known}
        looked = self._looked_up(unknown) if unknown else {}
        found = [looked[n] if n in looked else self._known[names[n]] for n in range(len(counted))]
        self._known.update((name, told) for name, told in zip(names, found, strict=True) if name and told[1])
        return found

    def _looked_up(self, groups: Mapping[int, dict[str, Any]]) -> dict[int, _Shape]:
        values = [
            {"group": n, "wrapped": group["wrapped"], "value": None if text is None else base64.b64decode(text)}
            for n, group in groups.items()
            for text in (group["values"] or [None])
        ]
        rows = local_rows(self._spark, values, _VALUES).withColumn("_images", images(F.col("value").cast("string")))
        joined = column_kinds(F.col("_images"), F.col("wrapped")).alias("kinds")
        opened = F.bool_and(are_whole(F.col("_images"))).alias("opened")
        told = {row["group"]: row for row in rows.groupBy("group").agg(joined, opened).collect()}  # a row per table
        return {n: (told[n]["kinds"], not groups[n]["values"] or told[n]["opened"]) for n in groups}


def _name(seen: Sequence[str] | None) -> str | None:
    """Of what was seen of values: as a digest, for the names in it may be data. None where not all of it is known."""
    return None if seen is None else hashlib.sha256("\n".join(seen).encode()).hexdigest()


@cache
def _class(jvm: Any) -> Any:
    asking(jvm)
    define_function(jvm, _HERE / "Run.java", ("Sent", "Run"))
    define_function(jvm, _HERE / "Counted.java", ("Partition", "Counted"))
    define_function(jvm, _HERE / "Tally.java", ("Passing", "Tally"))
    return jvm.org.apache.spark.sql.api.java.Tally


def _seen(position: Column, table: Column) -> Column:
    """What a tally is told of an event, in this order."""
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
