"""Rows that an erasure leaves, without what was personal in them.

A masked row is a change like any other: a record right after the end of its subject's old life, in a bronze of its own,
merged as a backfill is. So silver that is folded anew has it too, and a later change of the row wins over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.source_readers import MASK
from ingest.batches.rules import Rules
from ingest.changelog.change import quoted
from ingest.changelog.envelope import RECORD, events
from ingest.changelog.values.render import json_object, rendered
from ingest.config import Pipeline
from ingest.errors import ConfigError
from ingest.lakehouse.backfills import BackfillRun, Backfills
from ingest.lakehouse.bronze import Bronze, CaptureState
from ingest.loop.late_children import REQUEST
from ingest.loop.merge import Merge
from ingest.merge.table_schema import TableSchema
from ingest.suppression.cutoff import Cutoff
from ingest.suppression.masks import invalid_constant, mask_column

_ROWS_OF_A_TASK = 1 << 33


class Masking:
    """Of one pipeline's removal."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        rules: Rules,
        table_schemas: list[TableSchema],
        ends: Mapping[str, Cutoff],
    ) -> None:
        """`ends`: request → up to where its subject's life is the old one."""
        self._spark = spark
        self._pipeline = pipeline
        self._rules = replace(rules, stops_at_restart=False)
        self._ends = ends
        self._registry = Backfills(spark, pipeline.layout.backfills, pipeline.name)
        self._types = {
            s.table: {c.name: str(c.type) for c in s.columns} for s in table_schemas if s.table in rules.masks
        }
        self._bronze: Bronze | None = None

    def keep(self, table_schema: TableSchema, old: DataFrame) -> None:
        """Writes down what is left of these rows of silver, each with the `REQUEST` whose old life it is of. From then
        on `finish` brings them back, whoever dies meanwhile."""
        masks = self._rules.masks[table_schema.table]
        wrong = self._spark.range(1).select(invalid_constant(table_schema.table, table_schema.columns, masks)).first()
        if wrong is not None and wrong[0] is not None:
            raise ConfigError(
                f"tables.{table_schema.table}.on_erasure.{wrong[0]}: the constant is no value of its type",
                "choose one that the column can hold, or null",
            )
        if not table_schema.key:
            raise ConfigError(
                f"table {table_schema.table} has no key, so none of its rows can be masked", "say on_erasure: delete"
            )
        ends = F.broadcast(self._placed(table_schema.table))
        last = (
            old.join(ends, REQUEST)
            .groupBy(*map(quoted, table_schema.key))
            .agg(F.max("_ingest_end").alias("_ingest_end"))
        )
        rows = old.dropDuplicates([*table_schema.key]).join(last, [*table_schema.key])
        left = {c.name: rendered(mask_column(table_schema.table, c, masks), c.type) for c in table_schema.columns}
        bronze = self._own_bronze()
        batch = bronze.captured().batch + 1
        records = rows.select(*self._record(table_schema, left, batch))
        bronze.append(events(records, self._rules.naming), CaptureState(batch))

    def finish(self) -> int:
        """Merges what was kept, in this run or in one that died. How many rows that were."""
        rows = 0
        for begun in self._registry.all():
            if begun.request["source"] == MASK and begun.ended_at is None:
                rows += self._merged(begun)
                self._registry.end(begun)
        return rows

    def _merged(self, begun: BackfillRun) -> int:
        bronze, layout = self._bronze_of(begun), self._pipeline.layout
        columns = dict(self._rules.columns) | begun.request["types"]
        rules = replace(self._rules, columns=columns, columns_as_stored=True)
        most = self._pipeline.batch.merged_at_once
        merge = Merge(self._spark, self._pipeline.name, layout, rules, bronze, most, begun.writer)
        rows, last = 0, bronze.last_batch()
        while merge.merged < last:
            rows += sum(account.applied for account in merge.step(last))
        return rows

    def _own_bronze(self) -> Bronze:
        if self._bronze is None:
            # It reads nothing of the stream's bronze.
            self._bronze = self._bronze_of(self._registry.start({"source": MASK, "types": self._types}, 0))
        return self._bronze

    def _bronze_of(self, begun: BackfillRun) -> Bronze:
        path = self._pipeline.layout.backfilled(self._pipeline.name, begun.number)
        return Bronze(self._spark, path, self._rules.epochs, self._rules.names)

    def _placed(self, table: str) -> DataFrame:
        """Returns `REQUEST` and the `_ingest_end` of its old life."""
        rows = []
        for request, cutoff in self._ends.items():
            at = cutoff.position(table)
            if at is None:
                raise ConfigError(
                    f"the source of table {table} gives no positions, so nothing tells what comes after a masked row",
                    f"say tables.{table}.on_erasure: delete",
                )
            rows.append((request, at[:4]))
        schema = f"{REQUEST} string, _ingest_end struct<epoch int, major bigint, minor bigint, ordinal bigint>"
        return self._spark.createDataFrame(rows, schema)

    def _record(self, table_schema: TableSchema, left: Mapping[str, Column], batch: int) -> list[Column]:
        """Right after the old life: before any change that comes later, and no part of it."""
        schema, _, table = table_schema.table.partition(".")
        end, now = F.col("_ingest_end"), datetime.now(UTC)
        source = {
            "schema": F.lit(schema if table else None).cast("string"),
            "table": F.lit(table or schema),
            "file": F.concat(F.lit("end."), end["major"].cast("string")),
            "pos": end["minor"],
            "row": end["ordinal"] + 1,
            "snapshot": F.lit("incremental"),
            "ts_ms": F.lit(int(now.timestamp() * 1000)),
        }
        of_source = F.struct(*(value.alias(name) for name, value in source.items()))
        value = F.concat(
            *(F.lit('{"op":"r","source":'), F.to_json(of_source), F.lit(',"after":'), json_object(left), F.lit("}"))
        )
        number = F.monotonically_increasing_id()
        record = {
            "topic": F.lit(table_schema.table),
            "partition": F.spark_partition_id(),
            "offset": F.lit(batch).cast("bigint") * _ROWS_OF_A_TASK + number % _ROWS_OF_A_TASK,
            "timestamp": self._written(end["epoch"], now),
            "headers": F.lit(None).cast(RECORD["headers"].dataType),
            "key": json_object({k: left[k] for k in table_schema.key}).cast("binary"),
            "value": value.cast("binary"),
        }
        return [column.alias(name) for name, column in record.items()]

    def _written(self, epoch: Column, now: datetime) -> Column:
        """A time in that life of the source's log: by it a record is known to be of it."""
        epochs = self._rules.epochs
        if not epochs:
            return F.lit(now)
        begins = [epochs[0] - timedelta(days=1), *epochs]
        return F.array(*map(F.lit, begins))[epoch]
