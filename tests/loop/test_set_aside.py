"""A table that can't be merged is set aside without stopping others, and catches up once its cause is fixed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.backfill.replay import Case, Delivery, replay
from ingest.cli import app
from ingest.cli.lakehouse import prove as prove_command
from ingest.cli.pipeline import backfill as backfill_command
from ingest.cli.pipeline import run as run_command
from ingest.cli.pipeline import status as status_command
from ingest.config import Pipeline
from ingest.errors import ChangelogUnusable, ConfigError, Contended, StopRequested, TableUnusable, Unreachable
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.quarantine import SET_ASIDE, Quarantine
from ingest.lakehouse.tombstones import Tombstones
from ingest.loop.merge import Merge
from ingest.loop.table_faults import reason_of
from ingest.merge.actions import TOMBSTONE_KEY
from ingest.pipeline.composition import bronze_of, rules_of
from ingest.quality.accounting import audit
from ingest.upkeep.tombstone_gc import age_horizons, collect_garbage
from tests.changelogs import Record, Topic, schema, write
from tests.shop import DAY_BEGINS, captured, digests, merged, pipeline

pytestmark = pytest.mark.spark
ORDERS, ITEMS, NOTES = "public.orders", "public.items", "public.notes"
RENAMED = {ITEMS: {"rename": {"Email": "email_2"}}}
ONE = schema(("id", "int32"), ("email", "string"))
BOTH = schema(("id", "int32"), ("email", "string"), ("Email", "string"))


def changelog() -> list[Record]:
    """Returns events. In the last two thirds the items have two columns that differ only in case; the last events are
    deletes."""
    records: list[Record] = []
    orders = Topic("shop.orders", ("public", "orders"), records=records)
    items = Topic("shop.items", ("public", "items"), records=records)
    notes = Topic("shop.notes", ("public", "notes"), key=(), records=records)
    for n in range(30):
        orders.change("c", 100 + n, {"id": n, "v": "a"})
        if n < 10:
            items.change("c", 100 + n, {"id": n, "email": "a"}, schema=ONE)
        elif n < 20:
            items.change("c", 100 + n, {"id": n, "email": "b", "Email": "B"}, schema=BOTH)
        else:
            items.change("d", 100 + n, before={"id": n - 20, "email": "a", "Email": None}, schema=BOTH)
            items.tombstone({"id": n - 20})
        notes.change("c", 100 + n, {"said": n % 3})
    return [record | {"timestamp": DAY_BEGINS} for record in records]


@pytest.fixture
def cli(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Returns a function that runs a command in this session."""
    for command in (run_command, backfill_command, prove_command, status_command):
        monkeypatch.setattr(command, "running", lambda *_: nullcontext(spark))
    job = run_command.job("merge")

    def invoke(name: str, *arguments: str) -> Any:
        if name == "merge":
            return CliRunner().invoke(job, [*arguments, "--available-now"])
        return CliRunner().invoke(app, [name, *arguments])

    return invoke


def waiting(spark: SparkSession, shop: Pipeline) -> int:
    return Quarantine(spark, shop.layout.quarantine, "shop").rows().where(f"code = '{SET_ASIDE}'").count()


def checked(spark: SparkSession, shop: Pipeline) -> dict[str, dict[str, int]]:
    """Checks the accounts and returns their sums."""
    bronze, accounts = bronze_of(spark, shop), Accounts(spark, shop.layout.accounts, "shop").rows()
    found = audit(bronze.rows(), accounts)
    assert found.problems == []
    assert found.waiting == 0
    every = audit(bronze.rows(), accounts, 3, 5)
    assert every.problems == []
    return found.tables


def undisturbed_shop(spark: SparkSession, folder: Path) -> tuple[Pipeline, dict[str, dict[str, int]]]:
    """Returns the same shop with a correct file from the beginning."""
    shop = pipeline(folder, tables=RENAMED)
    merged(spark, shop, captured(spark, shop, folder, changelog()))
    return shop, checked(spark, shop)


@pytest.mark.long
def test_table_is_set_aside_and_catches_up(spark: SparkSession, tmp_path: Path, cli: Callable[..., Any]) -> None:
    shop, file = pipeline(tmp_path), str(tmp_path / "shop.yaml")
    captured(spark, shop, tmp_path, changelog()[:24])
    assert cli("merge", file).exit_code == 0
    captured(spark, shop, tmp_path, changelog())
    result = cli("merge", file)
    assert isinstance(result.exception, ChangelogUnusable)
    assert result.exception.exit_code == 2
    for word in (ITEMS, "'email' and 'Email'", "rename"):
        assert word in str(result.exception)
    right, sums = undisturbed_shop(spark, tmp_path / "whole")
    now, wanted = digests(spark, shop), digests(spark, right)
    assert [now[t] for t in (ORDERS, NOTES)] == [wanted[t] for t in (ORDERS, NOTES)]
    counted = checked(spark, shop)
    assert {t: counted[t] for t in (ORDERS, NOTES)} == {t: sums[t] for t in (ORDERS, NOTES)}
    assert counted[ITEMS]["read"] == sums[ITEMS]["read"]
    (aside,) = json.loads(cli("status", file, "--json").output)["set_aside"].values()
    assert (aside["table"], aside["code"], aside["after"]) == (ITEMS, "columns-alike", 2)
    assert aside["events"] == counted[ITEMS]["quarantined"] == waiting(spark, shop)
    assert "set aside" in cli("status", file).output

    proof = cli("prove", file, "--json")
    proved = {t["table"]: t["equal"] for t in json.loads(proof.output.splitlines()[-1])["tables"]}
    assert proved == dict.fromkeys((ORDERS, ITEMS, NOTES), True)
    assert isinstance(proof.exception, ChangelogUnusable)

    bronze = bronze_of(spark, shop)
    later = datetime(2026, 2, 1, tzinfo=UTC)
    waiting_events = bronze.rows().where(f"source_table = '{ITEMS}' AND batch > {aside['after']}")
    first = waiting_events.selectExpr(f"unhex('00') AS {TOMBSTONE_KEY}", "min(position) AS _position")
    tombstones = Tombstones(spark, shop.layout.tombstones("shop", ITEMS))
    tombstones.write(first)
    found = collect_garbage(spark, "shop", shop.layout, bronze, age_horizons(bronze, later), dry_run=True)
    assert {one.table: one.forgotten for one in found} == {ORDERS: 0, ITEMS: 0}, "waiting events need the tombstones"

    pipeline(tmp_path, tables=RENAMED)
    assert cli("merge", file).exit_code == 0
    assert digests(spark, shop) == digests(spark, right)
    counted = checked(spark, shop)
    assert [counted[ITEMS][c] for c in ("read", "quarantined", "suppressed")] == [sums[ITEMS]["read"], 0, 0]
    assert waiting(spark, shop) == 0
    assert json.loads(cli("status", file, "--json").output)["set_aside"] == {}
    assert cli("prove", file).exit_code == 0


@pytest.mark.long
def test_excluded_table_waits_no_more(spark: SparkSession, tmp_path: Path) -> None:
    shop = pipeline(tmp_path)
    bronze = captured(spark, shop, tmp_path, changelog())
    merged(spark, shop, bronze)
    waited = waiting(spark, shop)
    merged(spark, pipeline(tmp_path, source={"exclude_tables": "items"}), bronze)
    counts = checked(spark, shop)[ITEMS]
    assert counts["suppressed"] >= waited > 0
    assert (waiting(spark, shop), counts["quarantined"]) == (0, 0)


@pytest.mark.long
def test_status_shows_a_table_set_aside_by_a_backfill(
    spark: SparkSession, tmp_path: Path, cli: Callable[..., Any]
) -> None:
    shop, file = pipeline(tmp_path, source={"exclude_tables": "items"}), str(tmp_path / "shop.yaml")
    merged(spark, shop, captured(spark, shop, tmp_path, changelog()))
    pipeline(tmp_path)
    words = ("backfill", file, "--table", ITEMS)
    assert isinstance(cli(*words).exception, ChangelogUnusable)
    aside = json.loads(cli("status", file, "--json").output)["set_aside_by_backfills"]
    assert aside["1"][ITEMS]["code"] == "columns-alike"
    assert "by backfill 1: table public.items" in cli("status", file).output
    pipeline(tmp_path, tables=RENAMED)
    assert cli(*words).exit_code == 0
    assert json.loads(cli("status", file, "--json").output)["set_aside_by_backfills"] == {}
    right, _ = undisturbed_shop(spark, tmp_path / "whole")
    assert digests(spark, shop)[ITEMS] == digests(spark, right)[ITEMS]


@pytest.mark.long
def test_rebuild_repairs_a_table_next_to_a_stream(spark: SparkSession, tmp_path: Path, cli: Callable[..., Any]) -> None:
    """The stream was started before the rebuild; it detects the rebuilt table and continues with it."""
    shop = pipeline(tmp_path)
    records = changelog()
    bronze = captured(spark, shop, tmp_path, records[:80])
    stream = Merge(spark, "shop", shop.layout, rules_of(shop), bronze, 12)
    while stream.step():
        pass
    assert set(stream.set_aside) == {ITEMS}
    file = str(tmp_path / "shop.yaml")
    refused = cli("backfill", file, "--rebuild", "--table", ITEMS)
    assert isinstance(refused.exception, ChangelogUnusable)
    shop = pipeline(tmp_path, tables=RENAMED)
    assert cli("backfill", file, "--rebuild", "--table", ITEMS, "--json").exit_code == 0
    assert waiting(spark, shop) == 0
    assert json.loads(cli("status", file, "--json").output)["set_aside"] == {}
    checked(spark, shop)
    merged(spark, shop, captured(spark, shop, tmp_path, records))
    right, _ = undisturbed_shop(spark, tmp_path / "whole")
    assert digests(spark, shop) == digests(spark, right)
    checked(spark, shop)


def mongo(topic: str, number: int, described: bool) -> Record:
    document = json.dumps({"_id": {"$numberInt": str(number)}, "name": "x"})
    source = {"connector": "mongodb", "name": "srv", "db": "shop", "collection": topic, "ord": number, "ts_ms": 1}
    value: dict[str, Any] = {"before": None, "after": document, "source": source, "op": "c"}
    if described:
        text = {"type": "string", "optional": True, "name": "io.debezium.data.Json"}
        fields = [text | {"field": name} for name in ("before", "after")]
        value = {"schema": {"type": "struct", "fields": fields}, "payload": value}
    record = {"topic": f"srv.shop.{topic}", "partition": 0, "offset": number, "key": {"id": str(number)}}
    return record | {"value": value}


@pytest.mark.parametrize("size", [0, pytest.param(1, marks=pytest.mark.long)])
def test_documents_set_only_their_table_aside(spark: SparkSession, tmp_path: Path, size: int) -> None:
    orders = Topic()
    records = []
    for number in range(3):
        records += [mongo("described", number, True), mongo("plain", number, False)]
        records.append(orders.change("c", 10 + number, {"id": number, "v": "a"}))
    folder = write(tmp_path / "events", records, None)
    case = Case("shop", (folder / "events.jsonl",), None, tmp_path / "out")
    ((_, summary),) = replay(spark, [case], Delivery(size), "jsonl")
    assert summary["tables"][ORDERS]["rows"] == 3
    assert {t: why["code"] for t, why in summary["set_aside"].items()} == {
        "srv.shop.described": "documents",
        "srv.shop.plain": "documents",
    }
    assert all("exclude_tables" in why["reason"] for why in summary["set_aside"].values())
    assert (summary["read"], summary["applied"], summary["quarantined"]) == (9, 3, 6)
    assert {q["code"] for q in summary["quarantine"]} == {SET_ASIDE}


def test_table_that_its_first_batch_sets_aside_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    orders, of_value = Topic(), schema(("id", "int32"), ("region", "int32"))
    orders.change("c", 10, {"id": 1, "region": 2}, schema=of_value)
    orders.change("c", 20, {"id": 2, "region": 3}, schema=of_value, key={"region": 3})
    folder = write(tmp_path / "in", orders.records, {"tables": {ORDERS: {"history": True}}})
    case = Case("first", (folder / "events.jsonl",), folder / "tables.json", tmp_path / "out")
    ((_, summary),) = replay(spark, [case], Delivery(), "jsonl")
    assert {table: why["code"] for table, why in summary["set_aside"].items()} == {ORDERS: "key-changed"}
    assert summary["tables"] == {ORDERS: {"file": "tables/public.orders.jsonl", "rows": 0}}


class Died(Exception):
    """Stands for SIGKILL: the run does nothing after it."""


def test_only_a_fault_of_the_table_sets_it_aside(spark: SparkSession, tmp_path: Path) -> None:
    def raised(make: Callable[[], Any]) -> Exception:
        with pytest.raises(Exception) as caught:  # The class is checked below.
            make()
        return caught.value

    jvm: Any = spark._jvm
    theirs = {
        "analysis": raised(lambda: spark.sql("SELECT nothing").collect()),
        "arithmetic": raised(lambda: spark.sql("SELECT 1 / 0").collect()),
        "a file is missing": raised(lambda: jvm.java.io.FileInputStream(str(tmp_path / "none"))),
        "of Python": raised(lambda: dict[str, str]()["none"]),
    }
    assert isinstance(theirs["a file is missing"], Py4JJavaError)
    for name, error in theirs.items():
        found = reason_of("t", error)
        assert found is not None, name
        assert found.code == ("table-damaged" if name == "a file is missing" else "engine-error"), name
        assert "none" not in found.text, name
    others = [
        raised(lambda: jvm.java.net.Socket("127.0.0.1", 9)),
        Contended("", ""),
        Unreachable("", ""),
        StopRequested("", ""),
        OSError(),
        Died(),
    ]
    assert [reason_of("t", error) for error in others] == [None] * len(others)
    own = (ConfigError("p", "r"), ChangelogUnusable("p", "r"), TableUnusable("c", "p", "r"))
    reasons = [reason_of("t", error) for error in own]
    assert [found and found.code for found in reasons] == ["table-settings", "table-unusable", "c"]
