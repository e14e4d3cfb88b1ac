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
from ingest.changelog.reader import Reader, Reading
from ingest.changelog.values.columns import Column
from ingest.evolution.inference import holds_long_numbers, proven_columns, read_as, settled
from ingest.merge.images import TableSchema, changes

_OPS_WITH = {Reading.AFTER: ("c", "r", "u"), Reading.BEFORE: ("u", "d")}


@dataclass(frozen=True)
class Decoding:
    """How the events of a table are read. `parts`: those of a kind, of these ops alone if they are named; `rest`: null
    tombstones."""

    table_schema: TableSchema
    parts: tuple[tuple[Kind, tuple[str, ...] | None, Reader], ...]
    rest: Reader | None

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

    def __call__(self, reading: Reading) -> DataFrame:
        """Read for one image or the other."""
        return self.decoding(reading).of(*self.events)

    @property
    def spark(self) -> SparkSession:
        return self._batch.events.sparkSession

    @property
    def events(self) -> tuple[DataFrame, ...]:
        """What a `Decoding` reads."""
        tombstones = self._batch.tombstones
        return (self._batch.events,) if tombstones is None else (self._batch.events, tombstones)

    def decoding(self, reading: Reading) -> Decoding:
        """How it is done."""
        table_schema, rules = self._table_schema, self._rules
        ops = None if table_schema.key else _ops_with(reading, table_schema.table, rules)
        parts = []
        for group, own in self._readable:
            wire = (
                own
                if group.schema_id is not None
                else settled(own, table_schema.columns, table_schema.key, rules.spelling(table_schema.table))
            )
            parts.append((group.of, ops, self._reader(reading, wire, group)))
        rest = None
        if self._batch.tombstones is not None or not parts:
            wire = settled(self._arrived, table_schema.columns, spelling=rules.spelling(table_schema.table)) or tuple(
                map(read_as, table_schema.columns)
            )
            rest = self._reader(reading, wire)
        return Decoding(table_schema, tuple(parts), rest)

    def _reader(self, reading: Reading, wire: tuple[Column, ...], group: Group | None = None) -> Reader:
        names = self._rules.column_names(self._table_schema.table, wire, self._table_schema.names)
        one = Reader(wire, self._rules.placeholder, names, reading, self._batch.key_changes)
        if group is None:
            return one
        one = replace(one, wrapped=group.wrapped)
        if group.schema_id is not None:
            return one
        one = replace(one, long_numbers=holds_long_numbers(group.kinds))
        if not group.opened:
            return replace(one, may_repeat_fields=True)
        # The shape is that of the images after, wherever there are any.
        plain = frozenset() if reading is Reading.BEFORE else proven_columns(wire, group.kinds)
        return replace(one, plain=plain, known=group.known)


def _ops_with(reading: Reading, table: str, rules: Rules) -> tuple[str, ...]:
    """Of a table without a key: the events that add a row, or those that take one away."""
    return () if reading is Reading.BEFORE and table in rules.append_only else _OPS_WITH[reading]
