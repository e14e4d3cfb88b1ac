"""Facts of keys against a source whose table changes its key: what is left are the source's rows, in any order."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.change import DELETED, POSITION_COLUMN
from ingest.changelog.position import POSITION
from ingest.merge.key_facts import carriers, facts, is_newest, survivors

pytestmark = pytest.mark.spark
SEED = int(os.environ.get("FUZZ_SEED", "6"))
CASES = 250
COLUMNS = ("a", "b", "c")
KEYS = (("a",), ("b",), ("a", "b"), ("b", "c"), ("a", "b", "c"))
Key = tuple[str, ...]
Row = dict[str, int]


@dataclass
class Source:
    """A table at the source, and the events that it has sent: (position, deleted, key, row)."""

    random: Random
    key: Key
    rows: list[Row] = field(default_factory=list)
    sent: list[tuple[int, bool, Key, Row]] = field(default_factory=list)

    def values(self, row: Row, key: Key) -> tuple[int, ...]:
        return tuple(row[column] for column in key)

    def write(self, old: Row | None, new: Row | None) -> None:
        """Replaces a row as Debezium sends it: a change of its key is a delete and a create."""
        others = [self.values(row, self.key) for row in self.rows if row is not old]
        if new is not None and self.values(new, self.key) in others:
            return
        self.rows = [row for row in self.rows if row is not old] + ([new] if new else [])
        if old is not None and (new is None or self.values(old, self.key) != self.values(new, self.key)):
            self.sent.append((len(self.sent), True, self.key, {column: old[column] for column in self.key}))
        if new is not None:
            self.sent.append((len(self.sent), False, self.key, new))

    def step(self) -> None:
        old = self.random.choice([None, *self.rows])
        new = {column: self.random.randrange(3) for column in COLUMNS}
        match self.random.choice(["write", "write", "write", "update", "delete", "key"]):
            case "write":
                self.write(old, new)
            case "update" if old is not None:
                self.write(old, {c: old[c] if self.random.random() < 0.5 else new[c] for c in COLUMNS})
            case "delete" if old is not None:
                self.write(old, None)
            case "key":
                key = self.random.choice(KEYS)
                if len({self.values(row, key) for row in self.rows}) == len(self.rows):
                    self.key = key


def _cases() -> list[Source]:
    random = Random(SEED)
    found = []
    for _ in range(CASES):
        source = Source(random, random.choice(KEYS))
        for _ in range(random.randint(1, 25)):
            source.step()
        found.append(source)
    return found


def _events(spark: SparkSession, cases: list[Source]) -> DataFrame:
    """Returns the events of all cases, each with the case's number, by which its key begins too."""
    random = Random(SEED)
    rows: list[tuple[Any, ...]] = []
    for number, source in enumerate(cases):
        for at, deleted, key, row in source.sent:
            values = (row.get(column) for column in COLUMNS)
            rows.append((number, at, deleted, list(key), *values, random.random() < 0.5))
    frame = spark.createDataFrame(
        rows, "case int, at int, _deleted boolean, key array<string>, a int, b int, c int, late boolean"
    )
    fields = {f.name: F.lit(0) for f in POSITION.fields} | {"major": F.col("at")}
    place = F.struct(*(value.alias(name) for name, value in fields.items())).cast(POSITION)
    return frame.withColumn(POSITION_COLUMN, place).localCheckpoint()


def _folded(
    images: DataFrame, events: DataFrame, before: dict[Key, DataFrame]
) -> tuple[DataFrame, dict[Key, DataFrame]]:
    """Returns the images that are left after these events, and all facts."""
    known = {}
    for key in KEYS:
        carried = events.where(F.col("key") == F.array(*map(F.lit, key)))
        found = facts(carried, ("case", *key))
        known["case", *key] = found.unionByName(before["case", *key]) if before else found
    left = images.unionByName(events.where(~F.col(DELETED)))
    return survivors(left, known).localCheckpoint(), known


def _shown(left: DataFrame, cases: list[Source]) -> list[list[Row]]:
    found: list[list[Row]] = [[] for _ in cases]
    for key in KEYS:
        numbers = [number for number, source in enumerate(cases) if source.key == key]
        rows = left.where(F.col("case").isin(numbers)).withColumn("shown", is_newest(("case", *key)))
        for row in rows.where("shown").collect():
            found[row["case"]].append({column: row[column] for column in COLUMNS})
    return [sorted(rows, key=repr) for rows in found]


def test_what_is_left_are_the_rows_of_the_source(spark: SparkSession) -> None:
    cases = _cases()
    events = _events(spark, cases)
    wanted = [sorted(source.rows, key=repr) for source in cases]
    assert sum(len({key for _, _, key, _ in source.sent}) > 1 for source in cases) > 100
    none = events.limit(0)
    whole, known = _folded(none, events, {})
    assert _shown(whole, cases) == wanted, SEED
    early, known_early = _folded(none, events.where(~F.col("late")), {})
    both, _ = _folded(early, events.where("late"), known_early)
    assert _shown(both, cases) == wanted, SEED
    assert both.exceptAll(whole).isEmpty()
    assert whole.exceptAll(both).isEmpty()
    for key in KEYS:
        carried = carriers(whole, ("case", *key), known).where(F.col("key") != F.array(*map(F.lit, key)))
        assert carried.isEmpty(), "a row carries the key of its event only"
