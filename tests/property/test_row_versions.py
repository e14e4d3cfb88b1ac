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
from ingest.names import Lakehouse
from ingest.testing import Event, RowVersion, fold_versions, format_events, shrink, strategies
from ingest.testing.changelogs import COLUMNS, as_debezium, random_changelog
from ingest.tuning import DEFAULT_TUNING, Tuning
from tests.tunings import LARGE_TABLES

pytestmark = pytest.mark.spark
CASES = int(os.environ.get("FUZZ_CASES", "120"))
SEED = int(os.environ.get("FUZZ_SEED", "4"))
DRAWS = settings(database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
TABLE = "fuzz.t"


def stored_versions(
    spark: SparkSession, folder: Path, changelogs: Sequence[list[Event]], batches: int, tuning: Tuning = DEFAULT_TUNING
) -> list[list[RowVersion]]:
    """Returns the row versions of each changelog. Each is a partition of one topic, and has rows of its own."""
    folder.mkdir(parents=True)
    file, tables_file = folder / "events.jsonl", folder / "tables.json"
    tables_file.write_text(json.dumps({"tables": {TABLE: {"history": True}}}), encoding="utf-8")
    with file.open("w", encoding="utf-8") as lines:
        for case, events in enumerate(changelogs):
            for record in as_debezium(events, TABLE, case, DEFAULT_PLACEHOLDER):
                lines.write(json.dumps(record) + "\n")
    size = sum(map(len, changelogs)) // batches + 1
    list(replay(spark, [Case("fuzz", (file,), tables_file, folder / "out")], Delivery(size, SEED), "delta", tuning))
    path = Lakehouse(str(folder / "out")).history("fuzz", TABLE)
    found: list[list[RowVersion]] = [[] for _ in changelogs]
    if Path(path).exists():
        for row in spark.read.format("delta").load(path).collect():
            found[row["case"]].append(version(row))
    return [[v for v in versions if v.since != v.until] for versions in found]


def version(row: Row) -> RowVersion:
    until = None if row["_until"] is None else row["_until"]["major"]
    since = row["_position"]["major"]
    assert milliseconds(row["_valid_from"]) == since
    assert (row["_valid_to"] is None) == (until is None)
    # A null tombstone has no time.
    assert until is None or milliseconds(row["_valid_to"]) in (since, until)
    return RowVersion(row["id"], since, until, {c: row[c] for c in COLUMNS})


def milliseconds(time: datetime) -> int:
    return round(time.astimezone(UTC).timestamp() * 1000)


def same(one: Sequence[RowVersion], other: Sequence[RowVersion]) -> bool:
    return sorted(map(repr, one)) == sorted(map(repr, other))


@pytest.mark.parametrize(
    ("batches", "tuning"),
    [
        pytest.param(1, DEFAULT_TUNING, id="small"),
        pytest.param(7, LARGE_TABLES, marks=pytest.mark.long, id="large"),
    ],
)
def test_row_versions_equal_the_oracle(spark: SparkSession, tmp_path: Path, batches: int, tuning: Tuning) -> None:
    folds = count()

    def differ(some: Sequence[list[Event]]) -> list[bool]:
        found = stored_versions(spark, tmp_path / str(next(folds)), some, batches, tuning)
        return [not same(fold_versions(e, COLUMNS), versions) for e, versions in zip(some, found, strict=True)]

    changelogs = sampled(Random(SEED), CASES)
    wrong = [events for events, differs in zip(changelogs, differ(changelogs), strict=True) if differs]
    if wrong:
        small = shrink(wrong[0], differ)
        found = stored_versions(spark, tmp_path / "small", [small], batches, tuning)
        print(f"\n{format_events(small, COLUMNS)}\n  should be {fold_versions(small, COLUMNS)}\n  and is {found}")
    assert not wrong, f"{len(wrong)} of {len(changelogs)} changelogs differ (FUZZ_SEED={SEED} FUZZ_CASES={CASES})"


def sampled(random: Random, size: int) -> list[list[Event]]:
    """Returns `size` changelogs; half of them are histories that a source could have written."""
    consistent: list[list[Event]] = []

    @seed(SEED)
    @settings(DRAWS, max_examples=size // 2)
    @given(strategies.changelogs().flatmap(strategies.deliveries))
    def draw(events: list[Event]) -> None:
        consistent.append(events)

    draw()
    return [*consistent, *(random_changelog(random, 12, partial=case % 2 == 0) for case in range(size // 2))]


@pytest.mark.long
def test_truncate_ends_every_version(spark: SparkSession, tmp_path: Path) -> None:
    random = Random(SEED)
    for number in range(4):
        events = [replace(e, offset=n) for n, e in enumerate(random_changelog(random, 12, truncates=True))]
        (found,) = stored_versions(spark, tmp_path / str(number), [events], 4)
        assert same(found, fold_versions(events, COLUMNS)), format_events(events, COLUMNS)
