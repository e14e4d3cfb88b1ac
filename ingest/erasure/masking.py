"""Masking of rows that an erasure keeps without their personal values.

A masked row is written as a change: a snapshot record right after its subject's cutoff, in a bronze of its own, and
merged like a backfill. A rebuild therefore reproduces it, and a later change of the row wins over it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.source_readers import MASK
from ingest.batches.rules import Rules
from ingest.changelog.change import quoted
from ingest.changelog.dialects.registry import exact_fields
from ingest.changelog.envelope import RECORD, events
from ingest.config import Pipeline
from ingest.errors import ConfigError
from ingest.lakehouse.backfills import BackfillRun, Backfills
from ingest.lakehouse.bronze import Bronze, CaptureState
from ingest.loop.merge import Merge
from ingest.loop.suppression.late_children import REQUEST
from ingest.merge.table_schema import TableSchema
from ingest.suppression.cutoff import Cutoff
from ingest.suppression.masks import invalid_constant, mask_column
from ingest.values.render import json_object, rendered

_ROWS_OF_A_TASK = 1 << 33


class Masking:
    """The masking of one removal run."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        rules: Rules,
        table_schemas: list[TableSchema],
        cutoffs: Mapping[str, Cutoff],
    ) -> None:
        """`cutoffs`: request → cutoff."""
        self._spark = spark
        self._pipeline = pipeline
        self._rules = replace(rules, stops_at_restart=False)
        self._cutoffs = cutoffs
        self._registry = Backfills(spark, pipeline.layout.backfills, pipeline.name)
        self._types = {
            s.table: {c.name: str(c.type) for c in s.columns} for s in table_schemas if s.table in rules.masks
        }
        self._bronze: Bronze | None = None

    def save(self, table_schema: TableSchema, old: DataFrame) -> None:
        """Stores the masked version of these rows of silver, each with the `request` that it falls under. `merge_saved`
        writes them back, in this run or, after a crash, in a later one."""
        masks = self._rules.masks[table_schema.table]
        invalid = self._spark.range(1).select(invalid_constant(table_schema.table, table_schema.columns, masks)).first()
        if invalid is not None and invalid[0] is not None:
            raise ConfigError(
                f"tables.{table_schema.table}.on_erasure.{invalid[0]}: the constant is no value of its type",
                "choose one that the column can hold, or null",
            )
        if not table_schema.key:
            raise ConfigError(
                f"table {table_schema.table} has no key, so none of its rows can be masked", "say on_erasure: delete"
            )
        cutoff_positions = F.broadcast(self._cutoff_positions(table_schema.table))
        last = (
            old.join(cutoff_positions, REQUEST)
            .groupBy(*map(quoted, table_schema.key))
            .agg(F.max("_ingest_end").alias("_ingest_end"))
        )
        rows = old.dropDuplicates([*table_schema.key]).join(last, [*table_schema.key])
        masked_values = {
            c.name: rendered(mask_column(table_schema.table, c, masks), c.type) for c in table_schema.columns
        }
        bronze = self._mask_bronze()
        batch = bronze.captured().batch + 1
        records = rows.select(*self._record(table_schema, masked_values, batch))
        bronze.append(events(records, self._rules.naming), CaptureState(batch))

    def merge_saved(self) -> int:
        """Merges what was saved, in this run or in one that was killed. Returns the number of rows."""
        rows = 0
        for run in self._registry.all():
            if run.request["source"] == MASK and run.ended_at is None:
                rows += self._merge(run)
                self._registry.end(run)
        return rows

    def _merge(self, run: BackfillRun) -> int:
        bronze, layout = self._bronze_of(run), self._pipeline.layout
        columns = dict(self._rules.columns) | run.request["types"]
        rules = replace(self._rules, columns=columns, columns_as_stored=True)
        max_events = self._pipeline.batch.merged_at_once
        merge = Merge(self._spark, self._pipeline.name, layout, rules, bronze, max_events, run.writer)
        rows, last = 0, bronze.last_batch()
        while merge.merged < last:
            rows += sum(account.applied for account in merge.step(last))
        return rows

    def _mask_bronze(self) -> Bronze:
        if self._bronze is None:
            # Batch 0: it reads nothing of the stream's bronze.
            self._bronze = self._bronze_of(self._registry.start({"source": MASK, "types": self._types}, 0))
        return self._bronze

    def _bronze_of(self, run: BackfillRun) -> Bronze:
        path = self._pipeline.layout.backfilled(self._pipeline.name, run.number)
        return Bronze(self._spark, path, self._rules.epochs, self._rules.names, self._rules.tuning)

    def _cutoff_positions(self, table: str) -> DataFrame:
        """Returns a frame of `request` and its cutoff position, `_end`."""
        rows = []
        for request, cutoff in self._cutoffs.items():
            position = cutoff.position(table)
            if position is None:
                raise ConfigError(
                    f"the source of table {table} gives no positions, so later changes can't be told from a masked row",
                    f"say tables.{table}.on_erasure: delete",
                )
            rows.append((request, position[:4]))
        schema = f"{REQUEST} string, _ingest_end struct<epoch int, major bigint, minor bigint, ordinal bigint>"
        return self._spark.createDataFrame(rows, schema)

    def _record(self, table_schema: TableSchema, masked_values: Mapping[str, Column], batch: int) -> list[Column]:
        """Returns the columns of a record whose position is right after the cutoff: above all erased events, below
        every later change."""
        schema, _, table = table_schema.table.partition(".")
        end, now = F.col("_ingest_end"), datetime.now(UTC)
        source = {
            "schema": F.lit(schema if table else None).cast("string"),
            "table": F.lit(table or schema),
            **exact_fields(end["major"], end["minor"], end["ordinal"] + 1),
            "snapshot": F.lit("incremental"),
            "ts_ms": F.lit(int(now.timestamp() * 1000)),
        }
        source_struct = F.struct(*(value.alias(name) for name, value in source.items()))
        value = F.concat(
            *(
                F.lit('{"op":"r","source":'),
                F.to_json(source_struct),
                F.lit(',"after":'),
                json_object(masked_values),
                F.lit("}"),
            )
        )
        number = F.monotonically_increasing_id()
        record = {
            "topic": F.lit(table_schema.table),
            "partition": F.spark_partition_id(),
            "offset": F.lit(batch).cast("bigint") * _ROWS_OF_A_TASK + number % _ROWS_OF_A_TASK,
            "timestamp": self._record_time(end["epoch"], now),
            "headers": F.lit(None).cast(RECORD["headers"].dataType),
            "key": json_object({k: masked_values[k] for k in table_schema.key}).cast("binary"),
            "value": value.cast("binary"),
        }
        return [column.alias(name) for name, column in record.items()]

    def _record_time(self, epoch: Column, now: datetime) -> Column:
        """Returns a timestamp within the epoch, by which a record is assigned to it."""
        epochs = self._rules.epochs
        if not epochs:
            return F.lit(now)
        begins = [epochs[0] - timedelta(days=1), *epochs]
        return F.array(*map(F.lit, begins))[epoch]
