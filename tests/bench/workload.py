"""The workload of the benchmarks: a changelog of one or more tables with ten columns, and the expected rows.

Debezium's JSON without schemas: 70 % updates, 10 % inserts, 20 % deletes. One event in a hundred is delivered twice,
another one late. Random choices are hashes of a seed, so every machine makes the same workload.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

TABLE = "shop.orders"
COLUMNS = ("id", "customer", "amount", "status", "quantity", "note", "paid", "email", "city", "changed")
IMAGE = (
    "id bigint, customer bigint, amount double, status string, quantity bigint, note string, paid boolean, "
    "email string, city string, changed bigint"
)
Keys = Literal["uniform", "zipf", "append"]
_LATE_WITHIN = 2000
"""The maximum delay, in events, of a late event and of a second delivery."""
_SNAPSHOT_LSN = 1000
_SKEW = 4
"""The skew of the Zipf-like choice of keys: half of all changes are to a sixteenth of the rows."""


@dataclass(frozen=True)
class Workload:
    """`rows`: rows of the initial table. `batches` of `batch` events follow. `keys`: which rows change. `tables`: the
    number of tables among which the rows are divided."""

    rows: int
    batch: int
    batches: int
    keys: Keys = "uniform"
    seed: int = 1
    tables: int = 1

    @property
    def events(self) -> int:
        return self.batch * self.batches

    def snapshot(self, spark: SparkSession, after: int = 0, through: int | None = None) -> DataFrame:
        """Returns snapshot reads of the rows `after` < id ≤ `through`, in order of the key."""
        ids = spark.range(after + 1, (self.rows if through is None else through) + 1)
        events_by_key = ids.select(
            "id", *self._image(F.lit(0)), F.lit("r").alias("op"), F.lit(_SNAPSHOT_LSN).alias("lsn")
        )
        return _records(events_by_key, F.col("id"), self._table())

    def changes(self, spark: SparkSession) -> DataFrame:
        """Returns records with their number `batch`, from 0, in the order of delivery."""
        delivered = self._delivered(spark)
        # Several events may be delivered in one place: the number makes their offsets different.
        offset = F.lit(self.rows + 1) + F.col("place") * (4 * _LATE_WITHIN) + F.col("number") % (4 * _LATE_WITHIN)
        batch = F.floor(F.col("place") / self.batch).cast("int").alias("batch")
        return _records(delivered.where(F.col("place") < self.events), offset, self._table(), batch)

    def _table(self) -> Column:
        return F.lit("orders") if self.tables == 1 else F.concat(F.lit("orders_"), F.col("id") % self.tables)

    def result(self, spark: SparkSession) -> DataFrame:
        """Returns the expected rows after all batches: the newest per key, unless it was deleted."""
        delivered = self._delivered(spark).where(F.col("place") < self.events)
        newest = delivered.groupBy("id").agg(F.max_by(F.struct(*COLUMNS[1:], "op"), "number").alias("last"))
        first = spark.range(1, self.rows + 1).select("id", *self._image(F.lit(0)))
        untouched = first.join(newest, "id", "left_anti")
        return untouched.unionByName(newest.where(F.col("last.op") != "d").select("id", "last.*").drop("op"))

    def _delivered(self, spark: SparkSession) -> DataFrame:
        """Returns the events with the `place` of their delivery. Late ones may be delivered after the last batch."""
        events_by_key = self._drawn_events(spark)
        draw = self._hash("number", "place") % 100
        later = 1 + F.pmod(self._hash("number", "later"), F.lit(_LATE_WITHIN))
        places = F.when(draw == 0, F.array(F.col("number"), F.col("number") + later))
        places = places.when(draw == 1, F.array(F.col("number") + later)).otherwise(F.array("number"))
        return events_by_key.select("*", F.explode(places).alias("place"))

    def _drawn_events(self, spark: SparkSession) -> DataFrame:
        """Returns `number`, `id`, `op` and the image. The event after a delete of its key is always an insert."""
        drawn = spark.range(self.events).withColumnRenamed("id", "number").withColumn("id", self._key())
        draw = F.pmod(self._hash("number", "op"), F.lit(100))
        inserts = ((draw >= 70) & (draw < 80)) | (F.col("id") > self.rows)
        kind = F.when(inserts, "c").when(draw < 70, "u").otherwise("d")
        own = self.rows + 1 + F.col("number")
        drawn = drawn.withColumn("kind", kind).withColumn(
            "id", F.when(F.col("kind") == "c", own).otherwise(F.col("id"))
        )
        of_a_key = Window.partitionBy("id").orderBy("number")
        gone = F.coalesce(F.lag("kind").over(of_a_key) == "d", F.lit(False))
        op = F.when(gone, "c").otherwise(F.col("kind"))
        drawn = drawn.withColumn("op", op).drop("kind")
        lsn = (_SNAPSHOT_LSN + 100 + F.col("number") * 10).alias("lsn")
        return drawn.select("number", "id", "op", *self._image(F.col("number") + 1), lsn)

    def _key(self) -> Column:
        even = F.pmod(self._hash("number", "key"), F.lit(1 << 30)) / (1 << 30)
        if self.keys == "append":
            # Nine in ten are inserts of new rows.
            new = self.rows + 1 + F.col("number")
            old = 1 + F.floor(even * self.rows)
            return F.when(F.pmod(self._hash("number", "new"), F.lit(10)) < 9, new).otherwise(old).cast("bigint")
        spread = even if self.keys == "uniform" else F.pow(even, F.lit(_SKEW))
        return (1 + F.floor(spread * self.rows)).cast("bigint")

    def _image(self, version: Column) -> Iterator[Column]:
        drawn = F.pmod(F.xxhash64(F.col("id"), version, F.lit(self.seed)), F.lit(1_000_000))
        yield (drawn % 50_000).alias("customer")
        yield (drawn / 100).alias("amount")
        yield F.element_at(F.array(*map(F.lit, ("open", "paid", "sent", "back"))), (drawn % 4 + 1).cast("int")).alias(
            "status"
        )
        yield (drawn % 9 + 1).alias("quantity")
        yield F.when(drawn % 3 > 0, F.concat(F.lit("note on order "), drawn, F.lit(" at the door"))).alias("note")
        yield (drawn % 2 == 0).alias("paid")
        yield F.concat(F.lit("someone"), drawn, F.lit("@example.org")).alias("email")
        yield F.element_at(
            F.array(*map(F.lit, ("Ulm", "Graz", "Bern", "Gent", "Oslo"))), (drawn % 5 + 1).cast("int")
        ).alias("city")
        yield version.alias("changed")

    def _hash(self, column: str, purpose: str) -> Column:
        return F.abs(F.xxhash64(F.col(column), F.lit(purpose), F.lit(self.seed)))


def _records(events_by_key: DataFrame, offset: Column, table: Column, *more: Column) -> DataFrame:
    """Returns the records as a Kafka consumer gets them."""
    row = F.struct(*COLUMNS)
    deleted = F.col("op") == "d"
    before = F.when(deleted, F.struct("id"))
    source = F.struct(
        F.lit("3.7.0.Final").alias("version"),
        F.lit("postgresql").alias("connector"),
        F.lit("bench").alias("name"),
        (F.lit(1_760_000_000_000) + F.col("lsn")).alias("ts_ms"),
        F.when(F.col("op") == "r", "true").otherwise("false").alias("snapshot"),
        F.lit("shop").alias("db"),
        F.concat(F.lit('["'), F.col("lsn"), F.lit('","'), F.col("lsn") + 8, F.lit('"]')).alias("sequence"),
        F.lit("shop").alias("schema"),
        table.alias("table"),
        F.col("lsn").alias("txId"),
        F.col("lsn"),
        F.lit(None).cast("bigint").alias("xmin"),
    )
    after = F.when(~deleted, row)
    clock = (F.lit(1_760_000_000_100) + F.col("lsn")).alias("ts_ms")
    value = F.struct(before.alias("before"), after.alias("after"), source.alias("source"), "op", clock)
    return events_by_key.select(
        *more,
        F.concat(F.lit("bench.shop."), table).alias("topic"),
        F.lit(0).alias("partition"),
        offset.cast("bigint").alias("offset"),
        F.timestamp_millis(F.lit(1_760_000_000_200) + F.col("lsn")).alias("timestamp"),
        F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
        F.to_json(F.struct("id")).cast("binary").alias("key"),
        F.to_json(value, {"ignoreNullFields": "false"}).cast("binary").alias("value"),
    )
