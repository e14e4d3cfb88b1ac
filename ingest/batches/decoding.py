"""Decodes the events of a table's batch into changes, by the table's columns and by those of each schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batches.decoding_parts import DecodingPart, parts_by_position
from ingest.batches.group_stats import Group
from ingest.batches.rules import Rules
from ingest.batches.table_batch import TableBatch
from ingest.changelog.connect_schema import key_columns_of
from ingest.changelog.image_reader import ImageChoice, ImageReader
from ingest.changelog.record_keys import schema_of_key
from ingest.evolution.declared_types import of_types
from ingest.evolution.inferred.inference import columns_for_table, holds_long_numbers, proven_columns, stored_column
from ingest.evolution.life import Lives
from ingest.evolution.policies import TableColumn
from ingest.merge.images import changes
from ingest.merge.table_schema import TableSchema
from ingest.spark.checkpoints import checkpoint
from ingest.values.columns import Column
from ingest.values.types import Kind

_OPS = {ImageChoice.AFTER: ("c", "r", "u"), ImageChoice.BEFORE: ("u", "d")}


@dataclass(frozen=True)
class Decoding:
    """How to read the events of a table; hashable, so that plans can be kept. `rest`: readers of null tombstones, each
    by the text of the schema that their keys are wrapped in; None for all without one."""

    table_schema: TableSchema
    parts: tuple[DecodingPart, ...]
    rest: tuple[tuple[str | None, ImageReader], ...]

    def decode(self, events: DataFrame, tombstones: DataFrame | None = None) -> DataFrame:
        """Returns the changes of `events` and `tombstones`."""
        frames = [changes(part.of(events), self.table_schema, part.reader) for part in self.parts]
        known = [schema for schema, _ in self.rest if schema is not None]
        for schema, reader in self.rest:
            rest = events.limit(0) if tombstones is None else tombstones
            if known:
                of_key = schema_of_key(F.col("key"))
                is_own = of_key == schema if schema is not None else of_key.isNull() | ~of_key.isin(known)
                rest = rest.where(is_own)
            frames.append(changes(rest, self.table_schema, reader))
        return reduce(DataFrame.unionByName, frames)


class BatchChanges:
    """The changes of a batch, decoded on demand. `readable`: groups with the columns that they came with. `arrived`:
    the columns that came last before the batch, by which keys of null tombstones are read. `lives`: those of the
    table's columns."""

    def __init__(
        self,
        batch: TableBatch,
        table_schema: TableSchema,
        readable: Sequence[tuple[Group, tuple[Column, ...]]],
        rules: Rules,
        arrived: tuple[Column, ...],
        lives: Lives,
    ) -> None:
        self._batch = batch
        self._table_schema = table_schema
        self._readable = readable
        self._rules = rules
        self._arrived = arrived
        self._lives = lives

    def __call__(self, image_choice: ImageChoice) -> DataFrame:
        """Returns the changes, read from the images that `image_choice` names."""
        return self.decoding(image_choice).decode(*self.events)

    @property
    def table_schema(self) -> TableSchema:
        """Returns the table's columns, and the key that the events carry."""
        return self._table_schema

    @property
    def spark(self) -> SparkSession:
        return self._batch.events.sparkSession

    @property
    def lives(self) -> Lives:
        """Returns the lives of the table's columns."""
        return self._lives

    @property
    def events(self) -> tuple[DataFrame, ...]:
        """Returns the arguments of `Decoding.decode`."""
        tombstones = self._batch.tombstones
        return (self._batch.events,) if tombstones is None else (self._batch.events, tombstones)

    def without(self, events: DataFrame) -> BatchChanges:
        """Returns the changes without those of `events` (topic, partition and offset)."""
        left = self._batch.events.join(F.broadcast(events), ["topic", "partition", "offset"], "left_anti")
        batch = replace(self._batch, events=checkpoint(left))
        return BatchChanges(batch, self._table_schema, self._readable, self._rules, self._arrived, self._lives)

    def by_former_texts(self) -> list[BatchChanges]:
        """Returns the changes of events whose key is a text where the table has another type by now: of the key alone,
        as that text."""
        former: dict[TableSchema, list[tuple[Group, tuple[Column, ...]]]] = {}
        spelling, of_table = self._rules.spelling(self._table_schema.table), self._table_schema
        for group, columns in self._readable if any(c.hashed_as for c in of_table.columns) else ():
            names = spelling.table_names([c.name for c in columns], of_table.names)
            texts = {names[c.name] for c in columns if c.type.kind is Kind.STRING and c.written is None}
            by_text = tuple(_of_text(c) if c.name in texts else c for c in of_table.columns if c.name in of_table.key)
            if not {*by_text} <= {*of_table.columns}:
                carried = tuple(c for c in columns if names[c.name] in of_table.key)
                former.setdefault(replace(of_table, columns=by_text), []).append((group, carried))
        batch = replace(self._batch, tombstones=None)
        return [BatchChanges(batch, one, groups, self._rules, (), Lives()) for one, groups in former.items()]

    def decoding(self, image_choice: ImageChoice) -> Decoding:
        """Returns how the batch is read from the images that `image_choice` names."""
        table_schema, rules = self._table_schema, self._rules
        ops = None if table_schema.key else _ops_for(image_choice, table_schema.table, rules)
        parts: list[DecodingPart] = []
        for group, columns in self._readable:
            if group.schema_id is not None:
                reader = self._reader(image_choice, columns, group)
                parts += parts_by_position(group, ops, reader, self._lives, table_schema)
                continue
            spelling = rules.spelling(table_schema.table)
            wire = columns_for_table(columns, table_schema.columns, table_schema.key, spelling)
            reader = self._reader(image_choice, wire, group)
            if self._lives.are_told:
                parts += parts_by_position(group, ops, reader, self._lives, table_schema)
            else:
                parts.append(DecodingPart(group.decoding_key, ops, reader))
        rest = tuple(self._tombstone_readers(image_choice)) if self._batch.tombstones is not None or not parts else ()
        return Decoding(table_schema, tuple(parts), rest)

    def _tombstone_readers(self, image_choice: ImageChoice) -> Iterator[tuple[str | None, ImageReader]]:
        """Yields `Decoding.rest`: a null tombstone has nothing but its key, which is read by its own schema, else by
        the columns that came last."""
        table_schema, spelling = self._table_schema, self._rules.spelling(self._table_schema.table)
        wire = columns_for_table(self._arrived, table_schema.columns, spelling=spelling)
        yield None, self._reader(image_choice, wire or tuple(map(stored_column, table_schema.columns)))
        for schema in self._batch.tombstone_schemas:
            columns = key_columns_of(schema, self._rules.times_out_of_range)
            names = spelling.table_names([c.name for c in columns], table_schema.names)
            known = tuple(c for c in columns if names[c.name] in table_schema.names)
            if known and {*table_schema.key} <= {names[c.name] for c in known}:
                yield schema, self._reader(image_choice, of_types(known, table_schema.columns, names))

    def _reader(self, image_choice: ImageChoice, wire: tuple[Column, ...], group: Group | None = None) -> ImageReader:
        names = self._rules.column_names(self._table_schema.table, wire, self._table_schema.names)
        reader = ImageReader(wire, self._rules.placeholder, names, image_choice, self._batch.key_changes)
        if group is None:
            return reader
        reader = replace(reader, wrapped=group.wrapped)
        if group.schema_id is not None:
            return reader
        reader = replace(reader, long_numbers=holds_long_numbers(group.kinds))
        if not group.opened:
            return replace(reader, may_repeat_fields=True)
        # The kinds are those of images after, wherever there are any, so nothing is proven of images before.
        proven = frozenset() if image_choice is ImageChoice.BEFORE else proven_columns(wire, group.kinds)
        return replace(reader, proven=proven, parsed_before=group.known)


def _of_text(column: TableColumn) -> TableColumn:
    """Returns a column as it was when it was a text last; itself if it never was, or is one."""
    kinds = [type_.kind for type_ in column.hashed_as]
    if column.type.kind is Kind.STRING or Kind.STRING not in kinds:
        return column
    last = len(kinds) - 1 - kinds[::-1].index(Kind.STRING)
    return replace(column, type=column.hashed_as[last], hashed_as=column.hashed_as[:last])


def _ops_for(image_choice: ImageChoice, table: str, rules: Rules) -> tuple[str, ...]:
    """Returns the ops of a keyless table that add a row (`ImageChoice.AFTER`) or remove one (`ImageChoice.BEFORE`)."""
    return () if image_choice is ImageChoice.BEFORE and table in rules.append_only else _OPS[image_choice]
