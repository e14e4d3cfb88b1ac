"""`prove` confirms that silver equals the fold of its events and finds differences; `as-of` gives silver at any
position."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.backfill.proving import prove
from ingest.backfill.recomputing import committed_by, recompute_tables
from ingest.changelog.point import Point
from ingest.cli import app
from ingest.cli.lakehouse import as_of as as_of_command
from ingest.cli.lakehouse import prove as prove_command
from ingest.config import Pipeline
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.silver import Silver
from ingest.names import Lakehouse
from tests.changelogs import Record
from tests.shop import DAY_BEGINS, HOUR, captured, digests, events, first_half, merged, pipeline

pytestmark = pytest.mark.spark
ITEMS, ORDERS, NOTES = "public.items", "public.orders", "public.notes"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proved")


@pytest.fixture(scope="module")
def shop(spark: SparkSession, folder: Path) -> tuple[Pipeline, Bronze]:
    made = pipeline(folder)
    bronze = captured(spark, made, folder, events())
    merged(spark, made, bronze)
    return made, bronze


def test_prove_names_a_tampered_row(
    spark: SparkSession, folder: Path, shop: tuple[Pipeline, Bronze], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prove_command, "running", lambda *_: nullcontext(spark))

    def run_command(*options: str, code: int) -> str:
        result = CliRunner().invoke(app, ["prove", str(folder / "shop.yaml"), *options])
        assert result.exit_code == code, result.output
        return result.output

    proofs = json.loads(run_command("--json", code=0))["tables"]
    assert {p["table"] for p in proofs} == {ITEMS, ORDERS, NOTES}
    assert all(p["equal"] and p["live"]["rows"] for p in proofs)
    path = shop[0].layout.silver("shop", ORDERS)
    table = DeltaTable.forPath(spark, path)
    good = table.history(1).select("version").collect()[0][0]
    table.update("id = 20", {"v": "'something else'"})
    table.delete("id = 32")
    (proof,) = json.loads(run_command("--json", "--table", ORDERS, code=1))["tables"]
    assert [(d["key"], d["live"] is None) for d in proof["differences"]] == [
        ({"id": "20"}, False),
        ({"id": "32"}, True),
    ]
    lines = [n for n, r in enumerate(e for e in events() if e["topic"] == "shop.orders") if is_event_of(r, 20)]
    assert [e.split("@")[1].split()[0] for e in proof["differences"][0]["events"]] == [str(n) for n in lines]
    assert "id = 32" not in run_command("--table", ORDERS, "--no-keys", code=1)
    assert "id = 32 is missing" in run_command("--table", ORDERS, code=1)
    table.restoreToVersion(good)
    assert not Path(shop[0].layout.scratch("x").root).parent.exists() or not list(
        Path(shop[0].layout.scratch("x").root).parent.iterdir()
    ), "nothing is left behind"


def is_event_of(record: Record, key: int) -> bool:
    return bool(record["value"]) and record["key"] == {"id": key}


@pytest.mark.long
def test_prove_ignores_concurrent_merges(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, before = first_half(spark, tmp_path)
    more = captured(spark, shop, tmp_path, events())
    version_at = Silver.version_at

    def merges_first(silver: Silver, writer: str, through_batch: int) -> int:
        merged(spark, shop, more)
        return version_at(silver, writer, through_batch)

    monkeypatch.setattr(Silver, "version_at", merges_first)
    proofs = {p.table: p for p in prove(spark, shop, shop.layout.scratch("proof"))}
    assert {t: p.live for t, p in proofs.items()} == before
    assert all(p.equal for p in proofs.values())
    assert digests(spark, shop) != before


@pytest.mark.long
@pytest.mark.parametrize("hours", [1, 6])
def test_as_of_a_time_equals_a_merge_of_earlier_commits(
    spark: SparkSession, folder: Path, shop: tuple[Pipeline, Bronze], tmp_path: Path, hours: int
) -> None:
    until = Point.parse(f"2026-01-01T{hours - 1:02}:59:00Z")
    recompute_tables(spark, shop[0], Lakehouse(str(tmp_path / "then")), event_filter=partial(committed_by, until))
    first = [r for r in events() if r["timestamp"] < DAY_BEGINS + hours * HOUR]
    other = pipeline(tmp_path)
    merged(spark, other, captured(spark, other, tmp_path, first))
    other_lakehouse = other.model_copy(update={"lakehouse": str(tmp_path / "then")})
    assert digests(spark, other_lakehouse) == digests(spark, other)


def transactions() -> list[Record]:
    """Returns events of Postgres from transactions that were open at the same time; each names the last commit before
    its own."""
    commits = [  # (lsn, the last commit before, id)
        (100, 90, 1),
        (110, 90, 2),
        (130, 120, 3),  # written before the row of 140, committed after it
        (105, 140, 4),
        (160, 140, 5),
        (180, 170, 6),
        (190, 190, 7),  # at the position of the preceding commit
    ]
    records = []
    for offset, (lsn, commit, key) in enumerate(commits):
        source = {"connector": "postgresql", "schema": "s", "table": "t", "lsn": lsn, "ts_ms": 1, "name": "db"}
        value = {"op": "c", "after": {"id": key}, "source": source | {"sequence": f'["{commit}","{lsn}"]'}}
        record = {"topic": "s.t", "partition": 0, "offset": offset, "key": {"id": key}, "value": value}
        records.append(record)
    return records


@pytest.mark.parametrize(
    ("position", "ids"),
    [
        (89, []),
        pytest.param(119, [], marks=pytest.mark.long),
        (120, [1, 2]),
        pytest.param(139, [1, 2], marks=pytest.mark.long),
        pytest.param(140, [1, 2, 3], marks=pytest.mark.long),
        pytest.param(169, [1, 2, 3], marks=pytest.mark.long),
        (170, [1, 2, 3, 4, 5]),
        (189, [1, 2, 3, 4, 5]),
        (190, [1, 2, 3, 4, 5, 6]),
        (191, [1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_as_of_a_position_splits_no_transaction(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, log: Pipeline, position: int, ids: list[int]
) -> None:
    then = Lakehouse(str(tmp_path_factory.mktemp("then") / "lakehouse"))
    entries = recompute_tables(spark, log, then, event_filter=partial(committed_by, Point.parse(str(position))))
    rows: list[Any] = [r for e in entries for r in Silver(spark, e.path).rows().collect()]
    assert sorted(r["id"] for r in rows) == ids


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    folder = tmp_path_factory.mktemp("log")
    made = pipeline(folder)
    merged(spark, made, captured(spark, made, folder, transactions()))
    return made


def test_as_of_writes_tables_that_can_be_queried(
    spark: SparkSession, folder: Path, shop: tuple[Pipeline, Bronze], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(as_of_command, "running", lambda *_: nullcontext(spark))
    out = tmp_path / "then"
    options = ["as-of", str(folder / "shop.yaml"), "--out", str(out), "--table", ORDERS, "--json"]
    result = CliRunner().invoke(app, [*options, "--position", "0/FA0"])  # 4000
    assert result.exit_code == 0, result.output
    (table,) = json.loads(result.output)["tables"]
    rows = {r["id"]: r["v"] for r in spark.read.format("delta").load(table["path"]).collect()}
    assert rows == {
        0: "changed in 1",
        2: "hour 0",
        10: "changed in 2",
        12: "hour 1",
        20: "hour 2",
        21: "hour 2",
        22: "hour 2",
        30: "hour 3",
    }
    assert table["rows"] == len(rows)
    assert CliRunner().invoke(app, [*options, "--position", "1"]).exception is not None, "it is not empty"
    assert CliRunner().invoke(app, ["as-of", "x", "--out", "y"]).exception is not None
