"""What the rows of a table are after changes of its columns, under each policy; in one batch and event by event."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.recomputing import recompute_tables
from ingest.batches.limits import LIMIT
from ingest.batches.policies.change_policies import SCHEMA_CHANGE
from ingest.changelog.naming import Naming
from ingest.config import Pipeline
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.quarantine import Quarantine
from ingest.lakehouse.silver import Silver
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from ingest.pipeline.composition import bronze_of, rules_of
from ingest.pipeline.definition_changes import DefinitionChange, table_changes
from ingest.quality.accounting import audit
from tests.changelogs import Record, Topic, schema
from tests.shop import captured, pipeline

pytestmark = pytest.mark.spark
ORDERS = "public.orders"
NARROW = schema(("id", "int64"), ("a", "int32"))
WIDE = schema(("id", "int64"), ("a", "int32"), {"field": "b", "type": "int32", "optional": True, "default": 7})
WITHOUT_A = schema(("id", "int64"), ("b", "int32"))
BIG = schema(("id", "int64"), ("a", "int64"))
SMALL = schema(("id", "int64"), ("a", "int16"))
TEXTUAL = schema(("id", "int64"), ("a", "string"))

Rows = dict[int, dict[str, Any]]


def rows(spark: SparkSession, layout: Lakehouse, table: str = ORDERS) -> Rows | None:
    silver = Silver(spark, layout.silver("shop", table))
    if not silver.exists():
        return None
    found = (row.asDict() for row in silver.rows().collect())
    return {row["id"]: {n: v for n, v in row.items() if n != "id" and not n.startswith("_")} for row in found}


def merge_all(spark: SparkSession, shop: Pipeline, at_once: bool) -> dict[str, str]:
    """Merges what is captured, in slices of one event unless `at_once`. Returns the codes of tables set aside."""
    bronze = bronze_of(spark, shop)
    merge = Merge(spark, shop.name, shop.layout, rules_of(shop), bronze, 1000 if at_once else 1)
    while merge.step():
        pass
    merge.close()
    account_rows = Accounts(spark, shop.layout.accounts, shop.name).rows()
    assert not audit(bronze.rows(), account_rows).problems
    return {table: one.code for table, one in merge.set_aside.items()}


def outcomes(spark: SparkSession, shop: Pipeline, table: str = ORDERS) -> list[tuple[str, str, str, int | None]]:
    found: list[DefinitionChange] = table_changes(spark, shop.name, shop.layout, table)
    return [(one.kind, one.column, str(one.outcome), one.events) for one in found if one.kind != "first"]


def declared(of_events: dict[str, Any], plain: bool) -> dict[str, Any]:
    return {} if plain else {"schema": of_events}


def added(topic: Topic, plain: bool) -> None:
    topic.change("c", 10, {"id": 1, "a": 1}, **declared(NARROW, plain))
    topic.change("c", 20, {"id": 2, "a": 2, "b": 3}, **declared(WIDE, plain))
    topic.change("u", 30, {"id": 1, "a": 4, "b": 5}, **declared(WIDE, plain))


def dropped(topic: Topic, plain: bool) -> None:
    topic.change("c", 10, {"id": 1, "a": 1, "b": 1}, **declared(WIDE, plain))
    topic.change("c", 20, {"id": 2, "b": 2}, **declared(WITHOUT_A, plain))
    topic.change("c", 30, {"id": 3, "a": 3, "b": 3}, **declared(WIDE, plain))


def wider(topic: Topic, plain: bool) -> None:
    topic.change("c", 10, {"id": 1, "a": 1}, schema=NARROW)
    topic.change("c", 20, {"id": 2, "a": 1 << 40}, schema=BIG)


def narrower(topic: Topic, plain: bool) -> None:
    topic.change("c", 10, {"id": 1, "a": 1}, schema=NARROW)
    topic.change("c", 20, {"id": 2, "a": 2}, schema=SMALL)


def textual(topic: Topic, plain: bool) -> None:
    topic.change("c", 10, {"id": 1, "a": 1}, schema=NARROW)
    topic.change("c", 20, {"id": 2, "a": "x"}, schema=TEXTUAL)


def truncated(topic: Topic, plain: bool) -> None:
    topic.change("c", 10, {"id": 1, "a": 1}, **declared(NARROW, plain))
    topic.change("t", 20, key=None)
    topic.change("c", 30, {"id": 2, "a": 2}, **declared(NARROW, plain))


def rekeyed(topic: Topic, plain: bool) -> None:
    topic.change("c", 10, {"id": 1, "a": 1}, **declared(NARROW, plain))
    topic.change("c", 20, {"id": 1, "a": 2}, key={"id": 1, "a": 2}, **declared(NARROW, plain))


def keyed(topic: Topic, plain: bool) -> None:
    topic.change("c", 10, {"id": 1, "a": 1}, key=None, **declared(NARROW, plain))
    topic.change("c", 20, {"id": 2, "a": 2}, **declared(NARROW, plain))


Change = Callable[[Topic, bool], None]
FAILED = {ORDERS: SCHEMA_CHANGE}
ADD, DROP, TYPE, TRUNCATE, KEY = "add.column", "drop.column", "alter.column.type", "truncate.table", "alter.key"
APPLIED, KEPT, IGNORED, REFUSED = "applied", "kept beside", "ignored and counted", "refused"
AB = {1: {"a": 4, "b": 5}, 2: {"a": 2, "b": 3}}
ONLY_A = {1: {"a": 4}, 2: {"a": 2}}
CASES: tuple[tuple[Change, str, bool, str | None, Rows | None, list[tuple[str, str, str, int | None]]], ...] = (
    (added, "evolve", False, None, AB, [(ADD, "b", APPLIED, None)]),
    (added, "lenient", False, None, AB, [(ADD, "b", APPLIED, None)]),
    (added, "ignore", False, None, ONLY_A, [(ADD, "b", IGNORED, 2)]),
    (added, "fail", False, SCHEMA_CHANGE, None, [(ADD, "b", REFUSED, None)]),
    (added, "evolve", True, None, AB, []),
    (
        dropped,
        "evolve",
        False,
        None,
        {1: {"a": None, "b": 1}, 2: {"a": None, "b": 2}, 3: {"a": 3, "b": 3}},
        [(DROP, "a", APPLIED, None), (ADD, "a", APPLIED, None)],
    ),
    (
        dropped,
        "lenient",
        False,
        None,
        {1: {"a": 1, "b": 1}, 2: {"a": None, "b": 2}, 3: {"a": 3, "b": 3}},
        [(DROP, "a", KEPT, None)],
    ),
    (
        dropped,
        "ignore",
        False,
        None,
        {1: {"a": 1, "b": 1}, 2: {"a": None, "b": 2}, 3: {"a": 3, "b": 3}},
        [(DROP, "a", IGNORED, None)],
    ),
    (dropped, "fail", False, SCHEMA_CHANGE, None, [(DROP, "a", REFUSED, None)]),
    (dropped, "fail", True, None, {1: {"a": 1, "b": 1}, 2: {"a": None, "b": 2}, 3: {"a": 3, "b": 3}}, []),
    (wider, "lenient", False, None, {1: {"a": 1}, 2: {"a": 1 << 40}}, [(TYPE, "a", APPLIED, None)]),
    (wider, "ignore", False, SCHEMA_CHANGE, None, [(TYPE, "a", REFUSED, None)]),
    (narrower, "ignore", False, None, {1: {"a": 1}, 2: {"a": 2}}, [(TYPE, "a", IGNORED, None)]),
    (narrower, "fail", False, SCHEMA_CHANGE, None, [(TYPE, "a", REFUSED, None)]),
    (textual, "evolve", False, None, {1: {"a": "1"}, 2: {"a": "x"}}, [(TYPE, "a", APPLIED, None)]),
    (textual, "lenient", False, None, {1: {"a": "1"}, 2: {"a": "x"}}, [(TYPE, "a", APPLIED, None)]),
    (textual, "ignore", False, SCHEMA_CHANGE, None, [(TYPE, "a", REFUSED, None)]),
    (truncated, "evolve", False, None, {2: {"a": 2}}, []),
    (truncated, "lenient", False, None, {1: {"a": 1}, 2: {"a": 2}}, [(TRUNCATE, "", IGNORED, 1)]),
    (truncated, "ignore", True, None, {1: {"a": 1}, 2: {"a": 2}}, [(TRUNCATE, "", IGNORED, 1)]),
    (truncated, "fail", False, SCHEMA_CHANGE, None, [(TRUNCATE, "", REFUSED, None)]),
    (rekeyed, "fail", False, SCHEMA_CHANGE, None, [(KEY, "", REFUSED, None)]),
    (rekeyed, "ignore", False, SCHEMA_CHANGE, None, [(KEY, "", REFUSED, None)]),
    (keyed, "ignore", False, SCHEMA_CHANGE, None, [(KEY, "", REFUSED, None)]),
)
"""A change, the policy, whether events have no schema → the code if the table is set aside, rows and outcomes."""


def changelog(change: Change, plain: bool) -> list[Record]:
    topic = Topic("shop.orders", ("public", "orders"))
    change(topic, plain)
    return topic.records


@dataclass(frozen=True)
class Merged:
    """A pipeline that merged the changelog of each case into a table of its own, and its tables folded anew."""

    shop: Pipeline
    aside: dict[str, str]
    anew: Lakehouse
    by_event: bool


@pytest.fixture(scope="module", params=["one slice", pytest.param("event by event", marks=pytest.mark.long)])
def of_cases(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Merged:
    folder, by_event = tmp_path_factory.mktemp("cases"), request.param == "event by event"
    records: list[Record] = []
    tables = {}
    for number, (change, mode, plain, *_) in enumerate(CASES):
        change(Topic(f"shop.t{number}", ("public", f"t{number}"), records=records), plain)
        tables[f"public.t{number}"] = {"schema": {"on_change": mode}}
    shop = pipeline(folder / "shop", tables=tables)
    captured(spark, shop, folder / "shop", records, batch=1 if by_event else 1000)
    aside = merge_all(spark, shop, at_once=not by_event)
    anew = Lakehouse(str(folder / "anew"))
    if by_event:
        recompute_tables(spark, shop, anew)
    return Merged(shop, aside, anew, by_event)


@pytest.mark.parametrize(
    "number",
    range(len(CASES)),
    ids=[f"{c[0].__name__} {c[1]}{' without a schema' if c[2] else ''}" for c in CASES],
)
def test_a_change_has_the_outcome_that_its_policy_says(spark: SparkSession, of_cases: Merged, number: int) -> None:
    _, _, _, aside, right, noted = CASES[number]
    table, shop = f"public.t{number}", of_cases.shop
    assert of_cases.aside.get(table) == aside
    if right is not None or not of_cases.by_event:
        assert rows(spark, shop.layout, table) == right
    # Without an entry in the catalog nothing of the table is known.
    if noted and (right is not None or of_cases.by_event):
        assert outcomes(spark, shop, table) == noted
    if right is not None and of_cases.by_event:
        assert rows(spark, of_cases.anew, table) == right, "a table that is folded anew is the same"


@pytest.mark.long
def test_a_table_that_was_refused_goes_on_once_its_policy_allows_the_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = pipeline(tmp_path, schema={"on_change": "fail"})
    captured(spark, shop, tmp_path, changelog(added, False), batch=1)
    assert merge_all(spark, shop, at_once=False) == FAILED
    assert rows(spark, shop.layout) == {1: {"a": 1}}, "what came before the change is merged"
    shop = pipeline(tmp_path, schema={"on_change": "fail"}, tables={ORDERS: {"schema": {"on_change": "evolve"}}})
    assert merge_all(spark, shop, at_once=False) == {}
    assert rows(spark, shop.layout) == AB
    assert outcomes(spark, shop) == [(ADD, "b", APPLIED, None)]


@pytest.mark.long
def test_a_new_column_of_events_without_a_schema_is_refused_after_the_first_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = pipeline(tmp_path, schema={"on_change": "fail"})
    captured(spark, shop, tmp_path, changelog(added, True), batch=1)
    assert merge_all(spark, shop, at_once=False) == FAILED
    assert rows(spark, shop.layout) == {1: {"a": 1}}
    ignoring = tmp_path / "ignoring"
    shop = pipeline(ignoring, schema={"on_change": "ignore"})
    captured(spark, shop, ignoring, changelog(added, True), batch=1)
    assert merge_all(spark, shop, at_once=False) == {}
    assert rows(spark, shop.layout) == ONLY_A
    assert outcomes(spark, shop) == [(ADD, "b", IGNORED, 2)]


def test_kinds_of_changes_can_be_excluded_and_tables_left_out(spark: SparkSession, tmp_path: Path) -> None:
    shop = pipeline(tmp_path, schema={"exclude": ["truncate.table"]})
    captured(spark, shop, tmp_path, changelog(truncated, False))
    assert merge_all(spark, shop, at_once=True) == {}
    assert rows(spark, shop.layout) == {1: {"a": 1}, 2: {"a": 2}}
    other = tmp_path / "other"
    shop = pipeline(other, schema={"on_change": "fail", "exclude": ["create.table"]})
    captured(spark, shop, other, changelog(added, False))
    assert merge_all(spark, shop, at_once=True) == {}
    assert rows(spark, shop.layout) is None
    ignored = Accounts(spark, shop.layout.accounts, shop.name).ignored(ORDERS)
    assert ignored == {"create.table": 3}


def test_a_new_column_of_the_key_is_refused_where_new_columns_are_excluded(spark: SparkSession, tmp_path: Path) -> None:
    topic = Topic("shop.orders", ("public", "orders"))
    topic.change("c", 10, {"id": 1, "a": 1}, schema=NARROW)
    topic.change("c", 20, {"id": 1, "a": 2, "b": 1}, key={"id": 1, "b": 1}, schema=WIDE)
    shop = pipeline(tmp_path, schema={"on_change": "lenient", "exclude": ["add.column"]})
    captured(spark, shop, tmp_path, topic.records, batch=1)
    assert merge_all(spark, shop, at_once=False) == FAILED
    assert rows(spark, shop.layout) == {1: {"a": 1}}


def test_an_ignored_column_of_another_table_is_stored(spark: SparkSession, tmp_path: Path) -> None:
    shop = pipeline(tmp_path, schema={"on_change": "ignore"}, tables={ORDERS: {"schema": {"on_change": "evolve"}}})
    captured(spark, shop, tmp_path, changelog(added, False), batch=1)
    assert merge_all(spark, shop, at_once=False) == {}
    assert rows(spark, shop.layout) == AB
    assert json.dumps(outcomes(spark, shop)) == json.dumps([(ADD, "b", APPLIED, None)])


def nested(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "int32", "optional": True}
    for _ in range(levels):
        found = {"type": "array", "optional": True, "items": found}
    return found | {"field": "deep"}


@pytest.mark.long
def test_tables_beyond_a_limit_are_set_aside_and_others_flow(spark: SparkSession, tmp_path: Path) -> None:
    records: list[Record] = []
    wide, many, deep, deeper, plain, fine = (
        Topic(f"shop.{name}", ("public", name), records=records)
        for name in ("wide", "many", "deep", "deeper", "plain", "orders")
    )
    fine.change("c", 10, {"id": 1, "a": 1}, schema=NARROW)
    wide.change("c", 10, dict.fromkeys(map(str, range(9)), 1) | {"id": 1})
    many.change("c", 10, {"id": 1})
    for n in range(6):
        many.change("c", 20 + n, {"id": 2, f"c{n}": 1})
    flat = {"id": 1, "deep": None}
    deep.change("c", 10, flat, schema=schema(("id", "int64"), nested(9)))
    deeper.change("c", 10, flat, schema=schema(("id", "int64"), nested(450)))
    value: Any = 1
    for _ in range(9):
        value = [value]
    plain.change("c", 10, {"id": 1, "deep": value})
    limits = {"columns": 8, "new_columns_per_day": 4, "nesting_depth": 8}
    shop = pipeline(tmp_path, limits=limits)
    captured(spark, shop, tmp_path, records, batch=4)
    aside = merge_all(spark, shop, at_once=False)
    assert aside == dict.fromkeys((f"public.{t}" for t in ("wide", "many", "deep", "deeper", "plain")), LIMIT)
    assert rows(spark, shop.layout) == {1: {"a": 1}}
    shop = pipeline(tmp_path, limits={"nesting_depth": 100})
    assert set(merge_all(spark, shop, at_once=False)) == {"public.deeper"}, "once the limits are raised they go on"


def test_an_event_that_is_too_large_is_quarantined_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    topic = Topic("shop.orders", ("public", "orders"))
    topic.change("c", 10, {"id": 1, "a": "x"})
    topic.change("c", 20, {"id": 2, "a": "x" * 2000})
    shop = pipeline(tmp_path, limits={"event_bytes": 1024})
    captured(spark, shop, tmp_path, topic.records)
    assert merge_all(spark, shop, at_once=True) == {}
    assert rows(spark, shop.layout) == {1: {"a": "x"}}
    refused = Quarantine(spark, shop.layout.quarantine, shop.name).rows().collect()
    assert [(row["code"], row["offset"], len(row["value"]) > 1024) for row in refused] == [("too-large", 1, True)]
    assert Naming(event_bytes=1024).digest != Naming().digest, "an archive's events are read again under another limit"


RENAMED = schema(("id", "int64"), ("b", "int32"))
HINT = {ORDERS: {"renames": {"a": "b"}}}


def renamed(topic: Topic, plain: bool) -> None:
    topic.change("c", 10, {"id": 1, "a": 1}, **declared(NARROW, plain))
    topic.change("c", 20, {"id": 2, "b": 3}, **declared(RENAMED, plain))
    topic.change("c", 12, {"id": 3, "a": 7}, **declared(NARROW, plain))
    topic.change("u", 30, {"id": 1, "b": 5}, **declared(RENAMED, plain))


@pytest.mark.long
def test_a_column_that_is_declared_renamed_goes_on_under_its_new_name(spark: SparkSession, tmp_path: Path) -> None:
    right = {1: {"b": 5}, 2: {"b": 3}, 3: {"b": 7}}
    for at_once in (True, False):
        folder = tmp_path / f"{at_once}"
        shop = pipeline(folder, tables=HINT)
        captured(spark, shop, folder, changelog(renamed, False), batch=1)
        assert merge_all(spark, shop, at_once) == {}
        assert rows(spark, shop.layout) == right
    later = tmp_path / "later"
    shop = pipeline(later)
    captured(spark, shop, later, changelog(renamed, False)[:1], batch=1)
    assert merge_all(spark, shop, at_once=True) == {}
    assert rows(spark, shop.layout) == {1: {"a": 1}}
    shop = pipeline(later, tables=HINT)
    captured(spark, shop, later, changelog(renamed, False), batch=1)
    assert merge_all(spark, shop, at_once=False) == {}
    assert rows(spark, shop.layout) == right, "rows from before the declaration have the new name"
    again = Lakehouse(str(tmp_path / "again"))
    recompute_tables(spark, shop, again)
    assert rows(spark, again) == right


def test_a_lenient_policy_keeps_a_renamed_column_beside_what_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    tables = {ORDERS: HINT[ORDERS] | {"schema": {"on_change": "lenient"}}}
    shop = pipeline(tmp_path, tables=tables)
    captured(spark, shop, tmp_path, changelog(renamed, False)[:2], batch=1)
    assert merge_all(spark, shop, at_once=False) == {}
    assert rows(spark, shop.layout) == {1: {"a": 1, "b": None}, 2: {"a": None, "b": 3}}
