"""What a table's batch says: its events, read by what is known of the table's columns and of each schema's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batches.group_stats import Group, Kind, of_kind
from ingest.batches.rules import Rules
from ingest.batches.table_batch import TableBatch
from ingest.changelog.image_reader import ImageChoice, ImageReader
from ingest.changelog.values.columns import Column
from ingest.evolution.inference import columns_for_table, holds_long_numbers, proven_columns, stored_column
from ingest.merge.images import TableSchema, changes

_OPS_WITH = {ImageChoice.AFTER: ("c", "r", "u"), ImageChoice.BEFORE: ("u", "d")}


@dataclass(frozen=True)
class Decoding:
    """How the events of a table are read. `parts`: those of a kind, of these ops alone if they are named; `rest`: null
    tombstones."""

    table_schema: TableSchema
    parts: tuple[tuple[Kind, tuple[str, ...] | None, ImageReader], ...]
    rest: ImageReader | None

    def of(self, events: DataFrame, tombstones: DataFrame | None = None) -> DataFrame:
        """The changes."""
        frames = []
        for kind, ops, reader in self.parts:
            mine = events.where(of_kind(kind))
            frames.append(
                changes(mine if ops is None else mine.where(F.col("op").isin(*ops)), self.table_schema, reader)
            )
        if self.rest is not None:
            rest = events.limit(0) if tombstones is None else tombstones
            frames.append(changes(rest, self.table_schema, self.rest))
        return reduce(DataFrame.unionByName, frames)


class Changes:
    """The changes of a batch: of `readable`, groups with the columns that they came with, and of null tombstones, whose
    keys are written as in what had `arrived` before."""

    def __init__(
        self,
        batch: TableBatch,
        table_schema: TableSchema,
        readable: Sequence[tuple[Group, tuple[Column, ...]]],
        rules: Rules,
        arrived: tuple[Column, ...],
    ) -> None:
        self._batch = batch
        self._table_schema = table_schema
        self._readable = readable
        self._rules = rules
        self._arrived = arrived

    def __call__(self, image_choice: ImageChoice) -> DataFrame:
        """Read for one image or the other."""
        return self.decoding(image_choice).of(*self.events)

    @property
    def spark(self) -> SparkSession:
        return self._batch.events.sparkSession

    @property
    def events(self) -> tuple[DataFrame, ...]:
        """What a `Decoding` reads."""
        tombstones = self._batch.tombstones
        return (self._batch.events,) if tombstones is None else (self._batch.events, tombstones)

    def decoding(self, image_choice: ImageChoice) -> Decoding:
        """How it is done."""
        table_schema, rules = self._table_schema, self._rules
        ops = None if table_schema.key else _ops_with(image_choice, table_schema.table, rules)
        parts = []
        for group, own in self._readable:
            wire = (
                own
                if group.schema_id is not None
                else columns_for_table(own, table_schema.columns, table_schema.key, rules.spelling(table_schema.table))
            )
            parts.append((group.of, ops, self._reader(image_choice, wire, group)))
        rest = None
        if self._batch.tombstones is not None or not parts:
            wire = columns_for_table(
                self._arrived, table_schema.columns, spelling=rules.spelling(table_schema.table)
            ) or tuple(map(stored_column, table_schema.columns))
            rest = self._reader(image_choice, wire)
        return Decoding(table_schema, tuple(parts), rest)

    def _reader(self, image_choice: ImageChoice, wire: tuple[Column, ...], group: Group | None = None) -> ImageReader:
        names = self._rules.column_names(self._table_schema.table, wire, self._table_schema.names)
        one = ImageReader(wire, self._rules.placeholder, names, image_choice, self._batch.key_changes)
        if group is None:
            return one
        one = replace(one, wrapped=group.wrapped)
        if group.schema_id is not None:
            return one
        one = replace(one, long_numbers=holds_long_numbers(group.kinds))
        if not group.opened:
            return replace(one, may_repeat_fields=True)
        # The shape is that of the images after, wherever there are any.
        proven = frozenset() if image_choice is ImageChoice.BEFORE else proven_columns(wire, group.kinds)
        return replace(one, proven=proven, parsed_before=group.known)


def _ops_with(image_choice: ImageChoice, table: str, rules: Rules) -> tuple[str, ...]:
    """Of a table without a key: the events that add a row, or those that take one away."""
    return () if image_choice is ImageChoice.BEFORE and table in rules.append_only else _OPS_WITH[image_choice]
