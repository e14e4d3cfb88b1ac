"""What a table's batch says: its events, read by what is known of the table's columns and of each schema's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.changelog.columns import Column
from ingest.changelog.connect_schema import declared
from ingest.changelog.images import Shape, changes
from ingest.changelog.inference import settled, vouched
from ingest.changelog.reader import Reader, Reading
from ingest.run.profile import Group, belongs_to
from ingest.run.rules import Rules
from ingest.run.table_batch import TableBatch

_OPS_WITH = {Reading.AFTER: ("c", "r", "u"), Reading.BEFORE: ("u", "d")}


def decoded(
    batch: TableBatch,
    shape: Shape,
    readable: Sequence[tuple[Group, tuple[Column, ...]]],
    rules: Rules,
    arrived: tuple[Column, ...],
    reading: Reading,
) -> DataFrame:
    """The changes of `readable`, groups with the columns that they came with, and of null tombstones, whose keys are
    written as in what had `arrived` before."""

    def reader(wire: tuple[Column, ...], group: Group | None = None) -> Reader:
        one = Reader(wire, rules.placeholder, rules.fold_case, reading, batch.key_changes)
        if group is None:
            return one
        one = replace(one, wrapped=group.wrapped)
        if group.schema_id is not None:
            return one
        if not group.opened:
            return replace(one, doubtful=True)
        plain = vouched(wire, group.shape) if reading is Reading.AFTER else frozenset()
        return replace(one, plain=plain, known=group.known)

    types = {c.name: c.type for c in shape.columns}
    frames = []
    for group, own in readable:
        wire = own if group.schema_id is not None else settled(own, types, shape.key, rules.fold_case)
        events = batch.events.where(belongs_to(group))
        if not shape.key:
            events = events.where(F.col("op").isin(*_ops_with(reading, batch.table, rules)))
        frames.append(changes(events, shape, reader(wire, group)))
    if batch.tombstones is not None or not frames:
        wire = arrived or tuple(declared(c.name, str(c.type)) for c in shape.columns)
        rest = batch.events.limit(0) if batch.tombstones is None else batch.tombstones
        frames.append(changes(rest, shape, reader(wire)))
    return reduce(DataFrame.unionByName, frames)


def _ops_with(reading: Reading, table: str, rules: Rules) -> tuple[str, ...]:
    """Of a table without a key: the events that add a row, or those that take one away."""
    return () if reading is Reading.BEFORE and table in rules.append_only else _OPS_WITH[reading]
