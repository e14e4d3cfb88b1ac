"""No value of a personal column gets into a table's statistics; rows are still found."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.changelogs import Record, Topic
from tests.shop import captured, merged, pipeline

EMAILS = ("anna@example.org", "bert@example.org")


def events() -> list[Record]:
    people = Topic("shop.people", ("public", "people"), key=("email",))
    for lsn, email in enumerate(EMAILS, start=10):
        people.change("c", lsn, {"email": email, "name": f"name of {email}"})
    people.change("u", 20, {"email": EMAILS[0], "name": "Anna"})
    people.change("d", 30, before={"email": EMAILS[1], "name": None})
    return people.records


@pytest.mark.spark
def test_personal_key_is_in_no_log(spark: SparkSession, tmp_path: Path) -> None:
    settings = {"personal": ["email", "name"], "history": True}
    shop = pipeline(tmp_path, tables={"public.people": settings}, batch={"max_events": 2})
    merged(spark, shop, captured(spark, shop, tmp_path, events(), batch=2))
    silver = spark.read.format("delta").load(shop.layout.silver(shop.name, "public.people"))
    assert [(r.email, r.name) for r in silver.collect()] == [(EMAILS[0], "Anna")]
    logs = [*Path(shop.lakehouse).rglob("_delta_log/*.json")]
    assert len(logs) > 6
    assert [log for log in logs if "example.org" in log.read_text(encoding="utf-8")] == []


@pytest.mark.spark
def test_key_declared_personal_later_leaves_the_log(spark: SparkSession, tmp_path: Path) -> None:
    shop = pipeline(tmp_path)
    bronze = captured(spark, shop, tmp_path, events()[:2])
    merged(spark, shop, bronze)
    log = Path(shop.layout.silver(shop.name, "public.people")) / "_delta_log"
    before = {p.name for p in log.glob("*.json")}
    assert any("example.org" in p.read_text(encoding="utf-8") for p in log.glob("*.json"))
    shop = pipeline(tmp_path, tables={"public.people": {"personal": ["email"]}})
    merged(spark, shop, captured(spark, shop, tmp_path, events()))
    after = [p for p in log.glob("*.json") if p.name not in before]
    assert after
    added = [line for p in after for line in p.read_text(encoding="utf-8").splitlines() if '"add"' in line]
    assert added
    assert not any("example.org" in line for line in added)
