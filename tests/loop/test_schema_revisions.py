"""The catalog records a change of columns before any table takes it over: runs that die in between, and lakehouses of
versions that did it the other way round."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.lakehouse import silver
from ingest.lakehouse.catalog import Catalog, CatalogEntry
from ingest.lakehouse.silver import Silver
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from ingest.pipeline.composition import bronze_of, rules_of
from ingest.reconcile import table_state
from tests.changelogs import Record, Topic, schema
from tests.merge.rules import UNAVAILABLE
from tests.shop import captured, merged, pipeline

pytestmark = pytest.mark.spark
ORDERS = "public.orders"
FILLED = {"field": "t", "type": "int32", "optional": True, "default": 7}
OLD = schema(("id", "int64"), ("v", "int32"), ("big", "string"))
NEW = schema(("id", "int64"), ("v", "int64"), ("big", "string"), FILLED)
BIG = 1 << 40


class Died(Exception):
    """Raised in place of SIGKILL."""


def before_the_change() -> Topic:
    t = Topic("shop.orders")
    t.change("c", 10, {"id": 1, "v": 1, "big": "a"}, schema=OLD)
    t.change("u", 15, {"id": 3, "v": 3, "big": UNAVAILABLE}, schema=OLD)
    return t


def changed() -> list[Record]:
    t = before_the_change()
    t.change("c", 20, {"id": 2, "v": BIG, "big": "b", "t": 5}, schema=NEW)
    t.change("c", 12, {"id": 3, "v": 0, "big": "late"}, schema=OLD)
    t.change("u", 14, {"id": 4, "v": 4, "big": "late"}, schema=OLD)
    return t.records


RIGHT = {1: (1, "a", 7), 2: (BIG, "b", 5), 3: (3, "late", 7), 4: (4, "late", 7)}


def rows(spark: SparkSession, shop: Pipeline) -> dict[int, tuple[Any, ...]]:
    found = Silver(spark, shop.layout.silver(shop.name, ORDERS)).rows().collect()
    return {row["id"]: (row["v"], row["big"], row["t"]) for row in found}


def revisions(spark: SparkSession, shop: Pipeline) -> tuple[int, dict[str, int]]:
    """Returns the revision of the catalog's entry, and that of each stored table."""
    stored = table_state(spark, shop.layout, shop.name, ORDERS, history=True)
    parts = {part.path: part.revision() for part in stored.tables}
    return Catalog(spark, shop.layout.tables).entry(shop.name, ORDERS).revision, parts


def die_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Kills the run at the step `number` of a change: even before, odd after a commit, the first of them that of the
    catalog."""
    steps = iter(range(100))
    record, evolve = Catalog.record, Silver.evolve

    def dying(step: Any) -> Any:
        def call(*arguments: Any) -> None:
            if next(steps) == number:
                raise Died
            step(*arguments)
            if next(steps) == number:
                raise Died

        return call

    monkeypatch.setattr(Catalog, "record", dying(record))
    monkeypatch.setattr(Silver, "evolve", dying(evolve))


@pytest.mark.long
def test_runs_that_die_within_a_change_are_completed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {ORDERS: {"history": True}}
    base = tmp_path / "base"
    shop = pipeline(base, tables=settings)
    merged(spark, shop, captured(spark, shop, base, before_the_change().records))
    captured(spark, shop, base, changed())
    behind = set[tuple[int, ...]]()
    for number in range(1, 100, 2):
        folder = tmp_path / str(number)
        shutil.copytree(base, folder)
        shop = pipeline(folder, tables=settings)
        die_at(monkeypatch, number)
        try:
            merged(spark, shop, bronze_of(spark, shop))
        except Died:
            has_died = True
        else:
            has_died = False
        monkeypatch.undo()
        catalog, parts = revisions(spark, shop)
        behind.add(tuple(sorted(catalog - revision for revision in parts.values())))
        merged(spark, shop, bronze_of(spark, shop))
        assert rows(spark, shop) == RIGHT, number
        catalog, parts = revisions(spark, shop)
        assert {*parts.values()} == {catalog}
        if not has_died:
            break
    assert len(parts) == 4
    assert behind == {(0,) * (4 - n) + (1,) * n for n in range(5)}, "no run died between two of the commits"


def test_stored_tables_are_brought_up_when_a_run_starts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = pipeline(tmp_path)
    merged(spark, shop, captured(spark, shop, tmp_path, before_the_change().records))
    bronze = captured(spark, shop, tmp_path, changed())
    die_at(monkeypatch, 1)
    with pytest.raises(Died):
        merged(spark, shop, bronze)
    monkeypatch.undo()
    assert "t" not in Silver(spark, shop.layout.silver(shop.name, ORDERS)).rows().columns
    Merge(spark, shop.name, shop.layout, rules_of(shop), bronze, 1).tables.table_state(ORDERS)
    assert rows(spark, shop) == {1: (1, "a", 7)}


@pytest.mark.long
def test_writer_that_knows_an_older_revision_follows_another_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has recorded the change, and has died before silver took it over."""
    shop = pipeline(tmp_path)
    bronze = captured(spark, shop, tmp_path, before_the_change().records)
    one, two = (Merge(spark, shop.name, shop.layout, rules_of(shop), bronze, 36, writer) for writer in ("one", "two"))
    assert one.step() and two.step()
    bronze = captured(spark, shop, tmp_path, changed())
    die_at(monkeypatch, 3)
    with pytest.raises(Died):
        one.step(bronze.last_batch())
    monkeypatch.undo()
    assert sorted(revisions(spark, shop)[1].values()) == [1, 2]
    while two.step(bronze.last_batch()):
        pass
    assert rows(spark, shop) == RIGHT
    assert {*revisions(spark, shop)[1].values()} == {revisions(spark, shop)[0]}


def as_older_version(spark: SparkSession, layout: Lakehouse) -> None:
    """Takes from the catalog what older versions don't write."""
    known = spark.read.format("delta").load(layout.tables).drop("versions").toPandas()
    written = spark.createDataFrame(known, spark.read.format("delta").load(layout.tables).drop("versions").schema)
    written.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(layout.tables)


@pytest.mark.long
@pytest.mark.parametrize("step", [None, 1, 3], ids=["whole", "died after the catalog", "died after one table"])
def test_tables_of_an_older_version_go_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int | None
) -> None:
    shop = pipeline(tmp_path)
    monkeypatch.setattr(silver, "_revision_of", lambda _: ())
    merged(spark, shop, captured(spark, shop, tmp_path, before_the_change().records))
    monkeypatch.undo()
    as_older_version(spark, shop.layout)
    entry = Catalog(spark, shop.layout.tables).entry(shop.name, ORDERS)
    assert (entry.is_intent, entry.versions) == (False, frozenset())
    bronze = captured(spark, shop, tmp_path, changed())
    if step is not None:
        die_at(monkeypatch, step)
        with pytest.raises(Died):
            merged(spark, shop, bronze)
        monkeypatch.undo()
    merged(spark, shop, bronze)
    assert rows(spark, shop) == RIGHT


@pytest.mark.long
def test_default_that_an_older_version_recorded_is_still_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old version knew one fill for all positions, and no position of the column's begin."""
    shop = pipeline(tmp_path)
    monkeypatch.setattr(silver, "_revision_of", lambda _: ())
    t = before_the_change()
    t.change("c", 20, {"id": 2, "v": 2, "big": "b", "t": 5}, schema=NEW)
    merged(spark, shop, captured(spark, shop, tmp_path, t.records))
    monkeypatch.undo()
    add_default(spark, shop.layout)
    t.change("c", 13, {"id": 5, "v": 5, "big": "late"}, schema=OLD)
    t.change("c", 30, {"id": 6, "v": 6, "big": "dropped"}, schema=OLD)
    merged(spark, shop, captured(spark, shop, tmp_path, t.records))
    assert rows(spark, shop) == {
        1: (1, "a", 7),
        2: (2, "b", 5),
        5: (5, "late", 7),
        6: (6, "dropped", None),
    }


def add_default(spark: SparkSession, layout: Lakehouse) -> None:
    """Makes the catalog an older version's, with the default of a column in its JSON."""
    as_older_version(spark, layout)
    entries = spark.read.format("delta").load(layout.tables).toPandas()
    wire = {"encoding": "NUMBER", "number": "int32", "digits": 0, "checked": False, "elements": [], "names": []}
    columns = [json.loads(text) for text in entries["columns"]]
    for found in columns:
        for column in found:
            column.update({"default": "7", "default_wire": wire} if column["name"] == "t" else {})
    entries["columns"] = [json.dumps(found) for found in columns]
    written = spark.createDataFrame(entries, spark.read.format("delta").load(layout.tables).schema)
    written.write.format("delta").mode("overwrite").save(layout.tables)


def test_entries_without_versions_have_all_their_columns_from_the_beginning(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = pipeline(tmp_path)
    merged(spark, shop, captured(spark, shop, tmp_path, _schemaless().records))
    entry: CatalogEntry = Catalog(spark, shop.layout.tables).entry(shop.name, ORDERS)
    assert (entry.versions, entry.is_intent, sorted(entry.lives.shown)) == (frozenset(), True, ["id", "v"])
    assert entry.lives.places == ()


def _schemaless() -> Topic:
    t = Topic("shop.orders")
    t.change("c", 10, {"id": 1, "v": 1})
    t.change("c", 11, {"id": 2})
    return t
