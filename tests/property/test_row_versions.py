"""The SCD 2 history of random changelogs equals the oracle's, for every delivery."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from pyspark.sql import Row, SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from ingest.batches.rules import DEFAULT_PLACEHOLDER
from ingest.lakehouse import page_index, silver
from ingest.names import Lakehouse
from ingest.testing import Event, RowVersion, fold_versions, format_events, shrink
from ingest.testing.changelogs import COLUMNS, as_debezium, random_changelog
from ingest.testing.strategies import changelogs, deliveries

pytestmark = pytest.mark.spark
CASES = int(os.environ.get("FUZZ_CASES", "120"))
SEED = int(os.environ.get("FUZZ_SEED", "4"))
DRAWS = settings(database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
TABLE = "fuzz.t"


def kept(spark: SparkSession, folder: Path, said: Sequence[list[Event]], batches: int) -> list[list[RowVersion]]:
    """The versions that each changelog comes to; each is a partition of one topic, and rows of its own."""
    folder.mkdir(parents=True)
    file, tables_file = folder / "events.jsonl", folder / "tables.json"
    tables_file.write_text(json.dumps({"tables": {TABLE: {"history": True}}}), encoding="utf-8")
    with file.open("w", encoding="utf-8") as lines:
        for case, events in enumerate(said):
            for record in as_debezium(events, TABLE, case, DEFAULT_PLACEHOLDER):
                lines.write(json.dumps(record) + "\n")
    size = sum(map(len, said)) // batches + 1
    list(replay(spark, [Case("fuzz", (file,), tables_file, folder / "out")], Delivery(size, SEED), "delta"))
    path = Lakehouse(str(folder / "out")).history("fuzz", TABLE)
    found: list[list[RowVersion]] = [[] for _ in said]
    if Path(path).exists():
        for row in spark.read.format("delta").load(path).collect():
            found[row["case"]].append(version(row))
    return [[v for v in mine if v.since != v.until] for mine in found]


def version(row: Row) -> RowVersion:
    until = None if row["_until"] is None else row["_until"]["major"]
    since = row["_position"]["major"]
    assert milliseconds(row["_valid_from"]) == since
    assert (row["_valid_to"] is None) == (until is None)
    # A null tombstone tells no time.
    assert until is None or milliseconds(row["_valid_to"]) in (since, until)
    return RowVersion(row["id"], since, until, {c: row[c] for c in COLUMNS})


def milliseconds(time: datetime) -> int:
    return round(time.astimezone(UTC).timestamp() * 1000)


def same(one: Sequence[RowVersion], other: Sequence[RowVersion]) -> bool:
    return sorted(map(repr, one)) == sorted(map(repr, other))


@pytest.mark.parametrize(("batches", "size"), [(1, "small"), pytest.param(7, "large", marks=pytest.mark.long)])
def test_the_versions_of_a_row_are_what_the_reference_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int, size: str
) -> None:
    if size == "large":
        monkeypatch.setattr(silver, "_REWRITABLE", 0)
        monkeypatch.setattr(page_index, "_SEARCHED", 0)
    folds = count()

    def differ(some: Sequence[list[Event]]) -> list[bool]:
        found = kept(spark, tmp_path / str(next(folds)), some, batches)
        return [not same(fold_versions(events, COLUMNS), mine) for events, mine in zip(some, found, strict=True)]

    said = sampled(Random(SEED), CASES)
    wrong = [events for events, differs in zip(said, differ(said), strict=True) if differs]
    if wrong:
        small = shrink(wrong[0], differ)
        found = kept(spark, tmp_path / "small", [small], batches)
        print(f"\n{format_events(small, COLUMNS)}\n  should be {fold_versions(small, COLUMNS)}\n  and is {found}")
    assert not wrong, f"{len(wrong)} of {len(said)} changelogs differ (FUZZ_SEED={SEED} FUZZ_CASES={CASES})"


def sampled(random: Random, size: int) -> list[list[Event]]:
    """Half of them such as a real table could have gone through."""
    consistent: list[list[Event]] = []

    @seed(SEED)
    @settings(DRAWS, max_examples=size // 2)
    @given(changelogs().flatmap(deliveries))
    def draw(events: list[Event]) -> None:
        consistent.append(events)

    draw()
    return [*consistent, *(random_changelog(random, 12, partial=case % 2 == 0) for case in range(size // 2))]


@pytest.mark.long
def test_a_truncate_ends_every_version(spark: SparkSession, tmp_path: Path) -> None:
    random = Random(SEED)
    for number in range(4):
        events = [replace(e, offset=n) for n, e in enumerate(random_changelog(random, 12, truncates=True))]
        (found,) = kept(spark, tmp_path / str(number), [events], 4)
        assert same(found, fold_versions(events, COLUMNS)), format_events(events, COLUMNS)
