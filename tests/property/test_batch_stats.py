"""The statistics counted while events are captured equal those of a read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batches.batch_stats import BatchCounter
from ingest.batches.group_stats import groups_by_slice
from ingest.changelog.envelope import RECORD, events
from ingest.changelog.naming import Naming
from ingest.tuning import DEFAULT_TUNING, Tuning
from tests.property.test_schema_novelty import json_object, types_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

_SEED = 17
_TABLES = 150
_NAMING = Naming(sequences=(("s.t7", "n"), ("s.t8", "n")))
_BEFORE, _AFTER, _REST = '"before": {"id": 1}', '"after": {"id": 1}', '"source": {"lsn": 1}, "op": "u"'
Row = tuple[str, int, int, list[tuple[str, bytes]] | None, bytes | None, bytes | None]
GroupJson = dict[str, Any]


def _source(random: Random, table: str) -> dict[str, Any]:
    lsn = random.randint(1, 60)
    common = {"schema": "s", "table": table, "name": random.choice(["one", "one", "one", "two"]), "ts_ms": lsn * 1000}
    if random.random() < 0.3:
        return common | {"file": f"binlog.{random.randint(8, 11)}", "pos": lsn, "row": random.randint(0, 1)}
    sequence = {"sequence": f'["{lsn - 1}","{lsn}"]'} if random.random() < 0.7 else {}
    return (
        common
        | {"lsn": lsn, "snapshot": random.choice(["false", "true", "last", "last_in_data_collection"])}
        | sequence
    )


def _value(random: Random, table: str, odd: bool) -> tuple[str, bytes]:
    op = random.choice(["c", "u", "d", "d", "r", "t", "m", "?"] if random.random() < 0.2 else ["c", "u", "d", "r"])
    images = [json_object(random, 2, odd) if random.random() < 0.8 else "null" for _ in range(2)]
    source = json.dumps(_source(random, table))
    change = f'{{"before": {images[0]}, "after": {images[1]}, "source": {source}, "op": "{op}"}}'
    if random.random() < 0.3:
        schema = random.choice(["null", '{"type": "struct"}', '{"type": "struct", "name": "x"}'])
        change = f'{{"schema": {schema}, "payload": {change}}}'
    return op, change.encode()


def _partition(random: Random, table: str, topic: str, partition: int, odd: bool) -> list[Row]:
    """Returns the records of one partition of a table's topic."""
    rows: list[Row] = []
    offset = 0
    for _ in range(random.randint(1, 12)):
        offset += random.choice([1, 1, 1, 2])
        key = random.choice([b"{}", b'{"id":1}', b'{"id":2}', b'{"schema":null,"payload":{"id":1,"x":""}}', None])
        op, value = _value(random, table, odd)
        headers = [("__debezium.newkey", b"{}")] if random.random() < 0.02 else random.choice([None, [("a", b"b")]])
        rows.append((topic, partition, offset, headers, key, random.choice([value] * 9 + [b"{", b"1"])))
        if op == "d" and random.random() < 0.8:
            offset += random.choice([1, 1, 1, 2])
            rows.append((topic, partition, offset, None, key if random.random() < 0.9 else b"{}", None))
    return rows


def _records(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    records = [
        (topic, partition, offset, None, headers, key and bytearray(key), value and bytearray(value))
        for topic, partition, offset, headers, key, value in rows
    ]
    return spark.createDataFrame(records, RECORD)


@pytest.fixture(scope="module")
def captured(spark: SparkSession) -> DataFrame:
    """Returns the events of many tables, some of them in two topics or partitions."""
    random = Random(_SEED)
    rows = []
    for n in range(_TABLES):
        for place in range(random.choice([1, 1, 2, 3])):
            rows += _partition(random, f"t{n}", f"topic{n}.{place % 2}", place // 2, odd=not n % 5)
    rows += [("__debezium-heartbeat.x", 0, n, None, b"k", b"{}") for n in range(3)]
    return events(_records(spark, rows), _NAMING).localCheckpoint()


def _counted(spark: SparkSession, rows_of_batch: DataFrame, tuning: Tuning = DEFAULT_TUNING) -> list[GroupJson] | None:
    stats = BatchCounter(spark, tuning)
    counted = rows_of_batch.select(
        "*", stats.observe(F.lit(1).cast("bigint"), F.col("position"), F.col("source_table")).alias("batch")
    )
    assert counted.agg(F.min("batch"), F.max("batch"), F.count("*")).first() == (1, 1, rows_of_batch.count())
    return stats.groups_json()


def _with_types(group: GroupJson) -> GroupJson:
    """Returns the group with the types of its columns in place of their kinds."""
    return group | {"kinds": types_of(group["kinds"])}


def _read(rows_of_batch: DataFrame) -> list[GroupJson]:
    return [group.to_json() for group in groups_by_slice(rows_of_batch, F.lit(0), is_small=True)[0]]


def _sorted(groups: list[GroupJson]) -> list[GroupJson]:
    return sorted(map(_with_types, groups), key=repr)


def test_counts_of_one_task_equal_those_of_a_read(spark: SparkSession, captured: DataFrame) -> None:
    rows_of_batch = captured.coalesce(1).sortWithinPartitions("topic", "partition", "offset")
    statistics, read = _counted(spark, rows_of_batch), _read(rows_of_batch)
    assert statistics is not None
    assert _sorted(statistics) == _sorted(read), _SEED
    for name in ("goes_back", "opened", "known", "key_changes", "wrapped"):
        assert {group[name] for group in read} == {True, False}, f"{name} varies"
    for name in ("progress", "last_read", "first_read", "problem", "table", "kind", "schema_id", "newest"):
        assert len({group[name] is None for group in read}) == 2, f"{name} varies"
    assert {group["table"] is None for group in read if group["kind"] == "tombstone"} == {True, False}
    assert {tuple(key) for group in read for key in group["keys"]} == {(), ("id",), ("id", "x")}


@pytest.mark.parametrize(
    ("value", "known"),
    [
        (f"{{{_AFTER}, {_REST}}}", True),
        (f'{{"payload": {{{_AFTER}, {_REST}}}}}', True),
        (f"{{{_AFTER}, {_REST}, {_AFTER}}}", False),
        (f"{{{_BEFORE}, {_AFTER}, {_REST}, {_BEFORE}}}", False),
        (f'{{"payload": {{{_AFTER}, {_REST}, {_AFTER}}}}}', False),
        (f'{{{_AFTER}, {_REST}, "\\u0061fter": null}}', False),
        (f'{{"schema": {{"type": "struct"}}, "payload": {{{_AFTER}, {_REST}}}}}', False),
    ],
)
def test_events_that_may_name_an_image_twice_are_not_known(spark: SparkSession, value: str, known: bool) -> None:
    records = [("t", 0, n, None, b"{}", value.encode()) for n in range(2)]
    statistics = _counted(spark, events(_records(spark, records), _NAMING).coalesce(1))
    assert statistics is not None
    (group,) = statistics
    assert group["known"] is known


@pytest.mark.long
def test_counts_of_several_tasks_equal_those_of_a_read(spark: SparkSession, captured: DataFrame) -> None:
    """A null tombstone whose delete was in another task has no table."""
    place = ("topic", "partition", "offset")
    for tasks in (3, 40):
        rows_of_batch = captured.repartitionByRange(tasks, *place).sortWithinPartitions(*place).localCheckpoint()
        assert rows_of_batch.rdd.getNumPartitions() == tasks
        statistics = _counted(spark, rows_of_batch)
        assert statistics is not None
        counted, read = (
            [g for g in groups if g["kind"] != "tombstone"] for groups in (statistics, _read(rows_of_batch))
        )
        assert _sorted(counted) == _sorted(read), _SEED
        tombstones, known = (_tombstones(groups) for groups in (statistics, _read(rows_of_batch)))
        assert tombstones.total() == known.total()
        assert all(tombstones[table] <= count for table, count in known.items() if table is not None)


def _tombstones(groups: list[GroupJson]) -> Counter[str | None]:
    counts: Counter[str | None] = Counter()
    for group in groups:
        if group["kind"] == "tombstone":
            counts[group["table"]] += group["count"]
    return counts


def test_unordered_events_leave_it_open_whether_the_log_went_back(spark: SparkSession, captured: DataFrame) -> None:
    statistics = _counted(spark, captured.coalesce(1).sortWithinPartitions(F.col("offset").desc()))
    assert statistics is not None
    several = [g for g in statistics if g["progress"] is not None and g["count"] > len(g["partitions"])]
    assert several
    assert {g["goes_back"] for g in several} == {None}


def test_second_batch_reuses_inferred_kinds(
    spark: SparkSession, captured: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_of_batch = captured.where("schema_id is null and source_table in ('s.t1', 's.t2', 's.t3', 's.t4')").coalesce(1)
    first = _counted(spark, rows_of_batch)
    monkeypatch.setattr("ingest.batches.batch_stats.local_rows", None)
    assert _counted(spark, rows_of_batch) == first


def test_full_cache_of_kinds_is_cleared(spark: SparkSession, captured: DataFrame) -> None:
    """It is cleared before a batch looks up its images, not after."""
    rows_of_batch = captured.where("schema_id is null and source_table in ('s.t1', 's.t2')").coalesce(1)
    first = _counted(spark, rows_of_batch)
    assert _counted(spark, rows_of_batch, replace(DEFAULT_TUNING, remembered_images=0)) == first


def test_too_many_new_images_are_left_to_a_read(spark: SparkSession) -> None:
    rows: list[Row] = []
    for n in range(2500):
        name = f"{n}" + "x" * 900
        value = json.dumps({"op": "c", "after": {"a": {name: n}, "b": "y" * 900}, "source": {"lsn": n, "table": "t"}})
        rows.append(("t", 0, n, None, b"{}", value.encode()))
    few, many = (_counted(spark, events(_records(spark, rows[:n]), Naming()).coalesce(1)) for n in (500, 2500))
    assert few is not None
    assert [g["count"] for g in few] == [500]
    assert many is None
