"""Columns of a source may have any name, except reserved ones, whose events are quarantined with the reason; other
tables go on."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import ingest
from ingest.backfill.replay import Case, Delivery, replay
from ingest.changelog.reserved_names import RESERVED_NAMES, is_reserved
from tests.changelogs import Record, Topic, write
from tests.merge.rules import UNAVAILABLE, moves_to

pytestmark = pytest.mark.spark
KEYED, BAG, LIVES = "public.keyed", "public.bag", "public.lives"
SETTINGS = {"tables": {LIVES: {"history": True}}}


def names_in_code() -> Iterator[str]:
    """Whatever the code of a merge may call a column beside those of a table."""
    for package in ("changelog", "evolution", "merge", "batches", "reconcile", "loop", "lakehouse", "delta"):
        for file in sorted((Path(ingest.__file__).parent / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                name, number = (node.values[0], "0") if isinstance(node, ast.JoinedStr) and node.values else (node, "")
                if isinstance(name, ast.Constant) and re.fullmatch(r"_[a-z][a-z_]*", str(name.value)):
                    yield str(name.value) + number


PLAIN = {"op", "topic", "partition", "offset", "key", "value", "position", "request", "key_hash", "table", "reason"}
UNDERLINED = {"_file", "_number", "_run", "_next", "_same", "_key", "_event", "_location", "_action", "_reason"}
FREE = sorted({n for n in names_in_code() if not is_reserved(n)} | PLAIN | UNDERLINED)


def row(names: list[str], i: int, said: str) -> dict[str, Any]:
    return {"id": i} | {name: f"{said} {name}" for name in names}


def unsent(names: list[str], i: int) -> dict[str, Any]:
    return {"id": i} | dict.fromkeys(names, UNAVAILABLE)


def story(names: list[str]) -> list[Record]:
    """Everything that can happen to rows whose columns have these names."""
    found = []
    for table in ("keyed", "lives"):
        t = Topic(f"shop.public.{table}", ("public", table))
        for i in range(1, 7):
            t.change("c", 10 + i, row(names, i, "first"))
        t.change("u", 30, row(names, 1, "last"), before=row(names, 1, "first"))
        t.change("u", 20, row(names, 1, "late"))
        t.change("d", 31, before=row(names, 2, "first"))
        t.tombstone({"id": 2})
        t.change("u", 32, row(names, 13, "moved"), before=row(names, 3, "first"))
        t.change("u", 33, unsent(names, 4))
        t.change("d", 34, before={"id": 5}, headers=moves_to(15))
        t.change("c", 34, unsent(names, 15))
        t.change("u", 40, unsent(names, 20))
        t.change("u", 39, row(names, 20, "waited for"))
        found += t.records
    bag = Topic("shop.public.bag", ("public", "bag"), key=())
    for lsn, said in enumerate(("a", "a", "b", "c")):
        bag.change("c", 10 + lsn, row(names, 1, said))
    bag.change("d", 20, before=row(names, 1, "a"))
    bag.change("d", 21, before=row(names, 1, "owed"))
    bag.change("u", 22, row(names, 1, "d"), before=row(names, 1, "b"))
    return found + bag.records


def expected(names: list[str]) -> dict[str, list[dict[str, Any]]]:
    rows = [(1, "last"), (4, "first"), (6, "first"), (13, "moved"), (15, "first"), (20, "waited for")]
    keyed = [row(names, *one) for one in rows]
    return {KEYED: keyed, LIVES: keyed, BAG: [row(names, 1, said) for said in ("a", "c", "d")]}


def folded(
    spark: SparkSession, folder: Path, records: list[Record], size: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rows of each table, and the summary."""
    said = write(folder / "events", records, SETTINGS)
    case = Case("names", (said / "events.jsonl",), said / "tables.json", folder / "out")
    ((_, summary),) = replay(spark, [case], Delivery(size), "jsonl")
    rows = {
        table: [json.loads(line) for line in (case.out / settings["file"]).read_text(encoding="utf-8").splitlines()]
        for table, settings in summary["tables"].items()
    }
    return rows, summary


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(r, sort_keys=True) for r in rows)


@pytest.mark.long
def test_other_names_are_free(spark: SparkSession, tmp_path: Path) -> None:
    assert len(FREE) > 20
    records = story(FREE)
    rows, summary = folded(spark, tmp_path, records, len(records) // 2)
    assert summary["quarantine"] == []
    for table, right in expected(FREE).items():
        assert in_order(rows[table]) == in_order(right), table


def test_reserved_names_are_refused_and_nothing_else_stops(spark: SparkSession, tmp_path: Path) -> None:
    others = Topic("shop.public.others", ("public", "others"))
    others.change("c", 10, {"id": 1, "v": "a"})
    mine = Topic("shop.public.mine", ("public", "mine"))
    mine.change("c", 10, {"id": 1, **{name.upper(): "x" for name in RESERVED_NAMES}, "_Ingest_anything": 1})
    rows, summary = folded(spark, tmp_path, [*others.records, *mine.records], 0)
    assert rows["public.others"] == [{"id": 1, "v": "a"}]
    assert not rows.get("public.mine")
    (refused,) = summary["quarantine"]
    assert refused["code"] == "reserved-name"
    assert all(repr(name.upper()) in refused["reason"] for name in RESERVED_NAMES)
    assert "'_Ingest_anything'" in refused["reason"]
    assert "column.exclude.list" in refused["reason"]
