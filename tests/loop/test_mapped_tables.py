"""Told changes of tables with column mapping, which a name such as `unit price` needs: silver is the source's table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.evolution.policies import TableColumn
from ingest.evolution.revisions import AS_STORED, ColumnRevision
from ingest.lakehouse.silver import Silver
from ingest.merge.table_schema import TableSchema
from ingest.names import Lakehouse
from ingest.testing import SourceColumn, fold
from ingest.testing.table_deliveries import interleaved
from ingest.testing.table_records import as_debezium, unmatched
from ingest.values.types import Kind, LogicalType
from tests.changelogs import write
from tests.deaths import Deaths, Died
from tests.loop.test_changing_crashes import rows_of, run_until_merged
from tests.loop.test_told_tables import AGREES, INT, TEXT, Source, merged

pytestmark = pytest.mark.spark
PRICE = {"unit price": INT}


def of_price(price: int | None) -> dict[str, int | None]:
    return {"unit price": price}


def renames() -> Source:
    """Renames columns, one to the name of another that was dropped, and the mapped one."""
    source = Source("public.mapped_renames", ("id",), id=INT, a=INT, b=TEXT, **PRICE)
    source.write("c", id=1, a=1, b="x", **of_price(10))
    source.write("c", id=2, a=2, b="y")
    source.rename("a", "c")
    source.write("u", id=2, c=22, b="y")
    source.drop("b")
    source.rename("c", "b")
    source.rename("unit price", "price, unit")
    source.write("c", id=3, b=3, **{"price, unit": 30})
    source.write("d", id=1)
    return source


def swaps() -> Source:
    """Lets two columns change their names, of which one has another type after that."""
    source = Source("public.mapped_swaps", ("id",), id=INT, a=INT, b=INT, **PRICE)
    source.write("c", id=1, a=1, b=2, **of_price(10))
    source.write("c", id=2, a=3, b=4)
    source.rename("a", "free")
    source.rename("b", "a")
    source.rename("free", "b")
    source.retype("b", "text")
    source.write("u", id=2, a=44, b="33")
    source.write("c", id=3, a=5, b="6")
    return source


def cases() -> Source:
    """Renames columns to other cases of their names, the key and the mapped one too."""
    source = Source("public.mapped_cases", ("id",), id=INT, a=INT, b=TEXT, **PRICE)
    source.write("c", id=1, a=1, b="x", **of_price(10))
    source.write("c", id=2, a=2, b="y")
    source.rename("a", "A")
    source.rename("unit price", "Unit Price")
    source.write("u", id=2, A=22, b="y")
    source.drop("A")
    source.rename("b", "a")
    source.rename("id", "Id")
    source.write("c", Id=3, a="z", **{"Unit Price": 30})
    source.write("d", Id=1)
    return source


def lives() -> Source:
    """Drops columns, adds them again with other types, widens others."""
    source = Source("public.mapped_lives", ("id",), id=INT, a=INT, w=INT, **PRICE)
    source.write("c", id=1, a=1, w=1, **of_price(10))
    source.write("c", id=2, a=2, w=2, **of_price(20))
    source.drop("a")
    source.drop("unit price")
    source.write("u", id=2, w=22)
    source.retype("w", "bigint")
    source.add("a", TEXT)
    source.add("unit price", SourceColumn("text"), "none")
    source.write("c", id=3, a="three", w=1 << 40, **{"unit price": "30"})
    return source


def added() -> Source:
    """Adds the first column that needs column mapping, and renames another one."""
    source = Source("public.mapped_later", ("id",), id=INT, a=INT)
    source.write("c", id=1, a=1)
    source.write("c", id=2, a=2)
    source.add("unit price", INT, 7)
    source.rename("a", "b")
    source.write("u", id=2, b=22, **of_price(20))
    source.retype("b", "text")
    source.write("c", id=3, b="3", **of_price(30))
    return source


def keys() -> Source:
    """Changes the key, of which the mapped column becomes a part, and renames that."""
    source = Source("public.mapped_keys", ("id",), id=INT, r=INT, v=TEXT, **PRICE)
    for number in range(1, 5):
        source.write("c", id=number, r=10 * number, v="a", **of_price(number))
    source.rekey("r")
    source.write("u", id=9, r=10, v="b", **of_price(5))
    source.write("d", id=2, r=20)
    source.rekey("unit price", "r")
    source.rename("unit price", "price")
    source.write("u", id=3, r=30, v="c", price=3)
    source.write("d", r=40, price=4)
    return source


SOURCES = (renames, swaps, cases, lives, added, keys)


@pytest.mark.parametrize("batches", [2, pytest.param(12, marks=pytest.mark.long)])
def test_a_mapped_table_is_that_of_the_source(spark: SparkSession, tmp_path: Path, batches: int) -> None:
    stories = [make().story() for make in SOURCES]
    longest = max(len(story.events) for story in stories)
    sent = [[*story.events, *[story.events[-1]] * (longest - len(story.events))] for story in stories]
    pairs = enumerate(zip(stories, sent, strict=True))
    turns = zip(*(as_debezium(story, events, server=f"srv{n}") for n, (story, events) in pairs), strict=True)
    records = interleaved([[record for turn in turns for record in turn]], Random(0))
    merged(spark, tmp_path, stories, records, len(records) // batches + 1)


def test_a_change_of_columns_goes_on_after_the_first_of_its_commits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("id", "a", "b", "unit price")
    before = TableSchema("t", ("id",), tuple(TableColumn(name, LogicalType(Kind.INT32)) for name in names), 1)
    after = replace(before, columns=tuple(replace(c, name="a" if c.name == "b" else c.name) for c in before.columns))
    after = replace(after, columns=tuple(c for n, c in enumerate(after.columns) if n != 1), revision=2)
    silver = Silver(spark, str(tmp_path / "t"))
    silver.create(before)
    rows = spark.range(3).selectExpr("int(id) id", "int(id + 10) a", "int(id + 20) b", "int(id + 30) `unit price`")
    nothing = (F.lit(None).cast(field.dataType).alias(field.name) for field in Silver.system_columns)
    silver.rekey(rows.select("*", *nothing), before, changed=True)
    with monkeypatch.context() as patched:
        Deaths(patched).begin(1)
        with pytest.raises(Died):
            silver.evolve(before, after, [ColumnRevision("a", "b", AS_STORED)])
    again = Silver(spark, str(tmp_path / "t"))
    assert (again.revision(), again.has(after)) == (2, False)
    again.finish_columns()
    assert again.has(after)
    found = again.rows().select("id", "a", "unit price").orderBy("id").collect()
    assert [tuple(row) for row in found] == [(n, n + 20, n + 30) for n in range(3)]


@pytest.mark.long
@pytest.mark.parametrize("make", SOURCES)
def test_a_run_that_dies_between_the_commits_of_a_change_is_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Source]
) -> None:
    story = make().story()
    records = interleaved([as_debezium(story, story.events)], Random(0))
    file = write(tmp_path / "in", records, None) / "events.jsonl"
    layout = Lakehouse(str(tmp_path / "lakehouse"))
    with monkeypatch.context() as patched:
        deaths = Deaths(patched)
        run_until_merged(spark, layout, file, len(records) // 2, deaths)
    assert deaths.after[layout.silver("crash", story.name)] > 1
    assert unmatched(fold(story.events).values(), rows_of(spark, layout, story), story) == AGREES
