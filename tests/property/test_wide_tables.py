"""Wide tables: no plan grows faster than the number of columns, and 1,200 columns are merged with the right values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import DataFrame, SparkSession

from ingest.batches.rules import DEFAULT_PLACEHOLDER, Rules
from ingest.delta.delta_table import Table
from ingest.jvm.prepared_plans import RowPlan
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.silver import Silver
from ingest.loop.capture import Capture
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from ingest.sources.files import FileSource, lines
from ingest.spark import prepared
from ingest.spark.prepared import Query
from ingest.spark.settings import EVERYWHERE
from tests.bench.wide import image
from tests.changelogs import Record, write

pytestmark = pytest.mark.spark
Kind = Literal["whole rows", "partial rows", "keyless"]
KINDS: Sequence[Kind] = ("whole rows", "partial rows", "keyless")
TABLE, KEYS, BATCHES = "shop.wide", 6, 3
WIDTHS = (100, 200, 400)
_NODE = re.compile(r"[\w$]+#\d+|[\w$]+\(")
"""A column or a function, in the text of a plan."""


def records(kind: Kind, columns: int, batch: int) -> Iterator[Record]:
    """Yields the records of a batch. Batch 0 inserts rows, later ones update them, and the last deletes one. Partial
    rows lack a value."""
    for key in range(KEYS):
        deleted = batch == 2 and key == KEYS - 1
        after: dict[str, Any] | None = None if deleted else image(key, batch, columns)
        before = image(key, batch - 1, columns) if batch and kind == "keyless" else None
        if after and kind == "partial rows" and batch and key % 2:
            after["c1"] = DEFAULT_PLACEHOLDER
        source = {"connector": "postgresql", "schema": "shop", "table": "wide", "lsn": 100 * (batch + 1) + key}
        value = {"before": before, "after": after, "op": "d" if deleted else "u" if batch else "c", "source": source}
        place = {"topic": "wide", "partition": 0, "offset": batch * KEYS + key}
        yield {**place, "key": None if kind == "keyless" else {"id": key}, "value": value}


def expected(kind: Kind, columns: int) -> dict[int, dict[str, Any]]:
    found = {key: image(key, 2, columns) for key in range(KEYS - 1)}
    for key, row in found.items():
        if kind == "partial rows" and key % 2:
            row["c1"] = image(key, 0, columns)["c1"]
    return found


def merged_rows(spark: SparkSession, root: Path, kind: Kind, columns: int) -> dict[int, dict[str, Any]]:
    """Returns id → row, after all batches."""
    changes = [record for batch in range(BATCHES) for record in records(kind, columns, batch)]
    file = write(root / "said", changes, None) / "events.jsonl"
    lakehouse = Lakehouse(str(root / "lakehouse"))
    bronze = Bronze(spark, lakehouse.bronze("wide"))
    capture = Capture(spark, FileSource(list(lines([file]))), bronze, Rules().naming, KEYS)
    merge = Merge(spark, "wide", lakehouse, Rules(), bronze)
    while capture.step():
        (account,) = merge.step(capture.captured.batch)
        assert account.quarantined == 0
    rows = [row.asDict() for row in Silver(spark, lakehouse.silver("wide", TABLE)).rows().collect()]
    return {row["id"]: {n: v for n, v in row.items() if not n.startswith("_")} for row in rows}


@contextmanager
def record_plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """Yields a list that collects the plans made in the block, in order: the step and the number of nodes of each."""
    found: list[tuple[str, int]] = []

    def count(step: str, frame: DataFrame) -> None:
        plan: Any = frame._jdf.queryExecution().optimizedPlan()
        found.append((step, len(_NODE.findall(plan.toString()))))

    planned, checkpoint, written = RowPlan.__init__, DataFrame.localCheckpoint, Table._written

    def planning(
        of: Any, spark: SparkSession, query: Query, by: tuple[Any, ...], columns: Any, *more: Any, **others: Any
    ) -> None:
        planned(of, spark, query, by, columns, *more, **others)
        count(f"planned once: {getattr(query, '__name__', query)}", of._planned)

    def checkpointing(frame: DataFrame, *more: Any, **others: Any) -> DataFrame:
        count("checkpoint", frame)
        return checkpoint(frame, *more, **others)

    def writing(transaction: Any, frame: DataFrame | None, *more: Any, **others: Any) -> list[Any]:
        if frame is not None:
            count(f"written: {frame.columns[0]}", frame)
        return written(transaction, frame, *more, **others)

    with monkeypatch.context() as watched:
        watched.setattr(RowPlan, "__init__", planning)
        watched.setattr(DataFrame, "localCheckpoint", checkpointing)
        watched.setattr(Table, "_written", staticmethod(writing))
        yield found


@pytest.mark.long
@pytest.mark.usefixtures("whole_plans")
@pytest.mark.parametrize("kind", KINDS)
def test_plans_grow_no_faster_than_the_columns(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    spark.conf.set("spark.sql.debug.maxToStringFields", "100000")
    derives = "spark.sql.constraintPropagation.enabled"
    assert EVERYWHERE[derives] == "false", (
        "Spark infers constraints of each column from all others, which takes most of the time"
    )
    spark.conf.set(derives, EVERYWHERE[derives])  # `ingest sql`, of another test, sets it in the same session.
    sizes = []
    for columns in WIDTHS:
        prepared._plan.cache_clear()
        with record_plans(monkeypatch) as found:
            assert merged_rows(spark, tmp_path / str(columns), kind, columns) == expected(kind, columns)
        # Silver and its tombstones are written at the same time.
        sizes.append(sorted(found, key=lambda step_and_size: step_and_size[0]))
    small, middle, large = sizes
    assert [step for step, _ in small] == [step for step, _ in middle] == [step for step, _ in large]
    assert max(nodes for _, nodes in large) > WIDTHS[-1], "the columns are there"
    for (step, a), (_, b), (_, c) in zip(small, middle, large, strict=True):
        # Twice the columns make at most twice the nodes, beside those that no column needs.
        assert c - b <= 2.1 * (b - a) + 20, (step, a, b, c)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_table_of_1200_columns_is_merged(spark: SparkSession, tmp_path: Path, kind: Kind) -> None:
    assert merged_rows(spark, tmp_path, kind, 1200) == expected(kind, 1200)
