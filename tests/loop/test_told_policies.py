"""What the rows of a table are after changes that messages tell, under each policy; at once and event by event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.recomputing import recompute_tables
from ingest.names import Lakehouse
from ingest.testing.source_table import UNKNOWN, TableChange
from ingest.testing.table_deliveries import interleaved
from ingest.testing.table_records import as_debezium
from tests.changelogs import Record
from tests.loop.test_schema_policies import (
    ADD,
    APPLIED,
    DROP,
    FAILED,
    IGNORED,
    KEPT,
    KEY,
    ORDERS,
    REFUSED,
    TYPE,
    Rows,
    merge_all,
    outcomes,
    rows,
)
from tests.loop.test_told_tables import INT, TEXT, Source
from tests.shop import captured, pipeline

pytestmark = pytest.mark.spark
RENAME, DROP_TABLE, CREATE, NULLABILITY = "rename.column", "drop.table", "create.table", "alter.nullability"


def renamed(source: Source) -> None:
    source.write("c", id=1, a=1, t="x")
    source.rename("a", "b")
    source.write("c", id=2, b=2, t="y")
    source.write("u", id=1, b=5, t="x")
    source.write("c", id=3, b=3, t="z")


def back(source: Source) -> None:
    source.write("c", id=1, a=1, t="x")
    source.drop("a")
    source.write("c", id=2, t="y")
    source.add("a", INT, 7)
    source.write("c", id=3, a=3, t="z")


def added(source: Source) -> None:
    source.write("c", id=1, a=1, t="x")
    source.add("b", INT, 7)
    source.write("c", id=2, a=2, t="y", b=2)


def recreated(source: Source) -> None:
    source.write("c", id=1, a=1, t="x")
    source.write("c", id=2, a=2, t="y")
    source.recreate(("id",), id=INT, t=TEXT, a=INT)
    source.write("c", id=2, t="new", a=22)


def rekeyed(source: Source) -> None:
    source.write("c", id=1, a=1, t="x")
    source.rekey("a")
    source.write("u", id=9, a=1, t="y")


def widened(source: Source) -> None:
    source.write("c", id=1, a=1, t="x")
    source.retype("a", "bigint")
    source.write("c", id=2, a=1 << 40, t="y")


def row(a: Any, t: str, **more: Any) -> dict[str, Any]:
    return {"a": a, "t": t, **more}


Case = tuple[
    Callable[[Source], None], dict[str, Any], dict[str, str], Rows | None, list[tuple[str, str, str, int | None]]
]
BESIDE = {1: row(None, "x", b=5), 2: row(None, "y", b=2), 3: row(None, "z", b=3)}
STAYS = {1: row(None, "x"), 2: row(None, "y"), 3: row(None, "z")}
CASES: dict[str, Case] = {
    "a rename, lenient": (
        renamed,
        {"on_change": "lenient"},
        {},
        BESIDE,
        [(RENAME, "a", KEPT, None)],
    ),
    "a rename, ignored": (
        renamed,
        {"on_change": "ignore"},
        {},
        STAYS,
        [(RENAME, "a", IGNORED, None), (ADD, "b", IGNORED, 3)],
    ),
    "a rename, excluded": (
        renamed,
        {"exclude": [RENAME]},
        {},
        BESIDE,
        [(RENAME, "a", IGNORED, None)],
    ),
    "a rename alone, included": (
        renamed,
        {"include": [RENAME, CREATE]},
        {},
        {1: {"b": 5, "t": "x"}, 2: {"b": 2, "t": "y"}, 3: {"b": 3, "t": "z"}},
        [(RENAME, "a", APPLIED, None)],
    ),
    "a rename, refused": (renamed, {"on_change": "fail"}, FAILED, None, [(RENAME, "a", REFUSED, None)]),
    "a column that is back, lenient": (
        back,
        {"on_change": "lenient"},
        {},
        {1: row(1, "x"), 2: row(None, "y"), 3: row(3, "z")},
        [(DROP, "a", KEPT, None), (ADD, "a", APPLIED, None)],
    ),
    "a column that is back, ignored": (
        back,
        {"on_change": "ignore"},
        {},
        {1: row(1, "x"), 2: row(None, "y"), 3: row(3, "z")},
        [(DROP, "a", IGNORED, None), (ADD, "a", APPLIED, None)],
    ),
    "a new column, lenient": (
        added,
        {"on_change": "lenient"},
        {},
        {1: row(1, "x", b=7), 2: row(2, "y", b=2)},
        [(ADD, "b", APPLIED, None)],
    ),
    "a new column, ignored": (
        added,
        {"on_change": "ignore"},
        {},
        {1: row(1, "x"), 2: row(2, "y")},
        [(ADD, "b", IGNORED, 1)],
    ),
    "another table, lenient": (
        recreated,
        {"on_change": "lenient"},
        {},
        {1: row(1, "x"), 2: row(22, "new")},
        [(DROP_TABLE, "", KEPT, None), (CREATE, "", APPLIED, None)],
    ),
    "another table, ignored": (
        recreated,
        {"on_change": "ignore"},
        {},
        {1: row(1, "x"), 2: row(22, "new")},
        [(DROP_TABLE, "", IGNORED, None), (CREATE, "", IGNORED, None)],
    ),
    "another table, refused": (recreated, {"on_change": "fail"}, FAILED, None, [(DROP_TABLE, "", REFUSED, None)]),
    "another key, lenient": (
        rekeyed,
        {"on_change": "lenient"},
        {},
        {9: row(1, "y")},
        [(NULLABILITY, "a", APPLIED, None), (KEY, "", APPLIED, None)],
    ),
    "another key, ignored": (rekeyed, {"on_change": "ignore"}, FAILED, None, [(KEY, "", REFUSED, None)]),
    "a wider type, lenient": (
        widened,
        {"on_change": "lenient"},
        {},
        {1: row(1, "x"), 2: row(1 << 40, "y")},
        [(TYPE, "a", APPLIED, None)],
    ),
    "a wider type, ignored": (widened, {"on_change": "ignore"}, FAILED, None, [(TYPE, "a", REFUSED, None)]),
}
"""Changes, the policy → the codes of tables set aside, the rows, and the outcomes."""


def changelog(change: Callable[[Source], None]) -> list[Record]:
    source = Source(ORDERS, ("id",), id=INT, a=INT, t=TEXT)
    change(source)
    return interleaved([as_debezium(source.story(), source.events)], Random(0))


OF_A_COMMIT = {"a rename, lenient", "another table, refused"}
"""The cases that run with each commit; the long tests run all of them."""


@pytest.mark.parametrize(
    "at_once", [True, pytest.param(False, marks=pytest.mark.long)], ids=["one slice", "slice by slice"]
)
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in OF_A_COMMIT else pytest.mark.long) for n in CASES])
def test_a_told_change_has_the_outcome_that_its_policy_says(
    spark: SparkSession, tmp_path: Path, name: str, at_once: bool
) -> None:
    change, settings, aside, right, noted = CASES[name]
    folder = tmp_path / "shop"
    shop = pipeline(folder, schema=settings)
    captured(spark, shop, folder, changelog(change), batch=1)
    assert merge_all(spark, shop, at_once) == aside
    if right is None:
        assert (rows(spark, shop.layout) is None) == at_once, "what came before the change is merged"
        return
    assert rows(spark, shop.layout) == right
    assert outcomes(spark, shop) == noted
    again = Lakehouse(str(tmp_path / "again"))
    recompute_tables(spark, shop, again)
    assert rows(spark, again) == right, "a table that is folded anew is the same"


@pytest.mark.long
def test_a_refused_table_goes_on_once_its_policy_allows_the_change(spark: SparkSession, tmp_path: Path) -> None:
    shop = pipeline(tmp_path, schema={"on_change": "fail"})
    captured(spark, shop, tmp_path, changelog(renamed), batch=1)
    assert merge_all(spark, shop, at_once=False) == FAILED
    assert outcomes(spark, shop)[-1] == (RENAME, "a", REFUSED, None)
    shop = pipeline(tmp_path, tables={ORDERS: {"schema": {"on_change": "lenient"}}})
    assert merge_all(spark, shop, at_once=False) == {}
    assert rows(spark, shop.layout) == BESIDE
    assert outcomes(spark, shop) == [(RENAME, "a", KEPT, None)]


@pytest.mark.long
def test_messages_that_come_after_all_events_leave_what_the_policy_made_of_these(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = changelog(renamed)
    is_message = [record["topic"].endswith(".message") for record in records]
    late = [*(r for r, m in zip(records, is_message, strict=True) if not m)]
    late += [r for r, m in zip(records, is_message, strict=True) if m]
    for at_once in (True, False):
        folder = tmp_path / f"{at_once}"
        shop = pipeline(folder, schema={"on_change": "lenient"})
        captured(spark, shop, folder, interleaved([late], Random(0)), batch=1)
        assert merge_all(spark, shop, at_once) == {}
        assert rows(spark, shop.layout) == BESIDE


@pytest.mark.long
def test_a_change_that_no_event_shows_is_not_refused_where_events_went_on_before_messages_were_followed(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(ORDERS, ("id",), id=INT, a=INT, t=TEXT)
    for number in (1, 2):
        source.write("c", id=number, a=number, t="x")
    source.alter(TableChange("alter.default", "a", to=replace(source.table.columns["a"], default=UNKNOWN)))
    source.write("c", id=3, a=3, t="x")
    records = as_debezium(source.story(), source.events)
    is_message = [record["topic"].endswith(".message") for record in records]
    events = [record for record, told in zip(records, is_message, strict=True) if not told]
    messages = [record for record, told in zip(records, is_message, strict=True) if told]
    source.write("c", id=4, a=4, t="x")
    events += as_debezium(source.story(), source.events[-1:])
    shop = pipeline(tmp_path, schema={"on_change": "fail"})
    records = interleaved([[*events[:3], *messages, events[3]]], Random(0))
    for count in (3, len(records)):
        captured(spark, shop, tmp_path, records[:count], batch=1)
        assert merge_all(spark, shop, at_once=True) == {}
    assert len(rows(spark, shop.layout) or ()) == 4


@pytest.mark.long
def test_messages_about_a_table_with_declared_renames_are_said_once_to_have_no_effect(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop = pipeline(tmp_path, tables={ORDERS: {"renames": {"a": "b"}}})
    captured(spark, shop, tmp_path, changelog(renamed), batch=1)
    assert merge_all(spark, shop, at_once=True) == {}
    assert rows(spark, shop.layout) == {number: {"b": one["b"], "t": one["t"]} for number, one in BESIDE.items()}
    assert sum("goes by its events" in record.getMessage() for record in caplog.records) == 1
