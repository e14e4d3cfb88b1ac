"""Two concurrent writers of the same tables, such as a stream and a backfill, give the same tables as one."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.batches.rules import DEFAULT_PLACEHOLDER, Rules
from ingest.batches.schemas import Schemas
from ingest.batches.table_batch import TableBatch
from ingest.changelog.accounting import Account
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.silver import Silver
from ingest.loop.capture import Capture
from ingest.loop.merge import Merge
from ingest.loop.table_merge import TableMerge
from ingest.names import Lakehouse
from ingest.quality.accounting import audit
from ingest.sources.files import FileSource, lines
from ingest.testing import Event, fold
from ingest.testing.changelogs import COLUMNS, as_debezium, random_changelog
from ingest.tuning import DEFAULT_TUNING, Tuning
from tests.tunings import LARGE_FILES

pytestmark = pytest.mark.spark
SEED, CASES, BATCHES = 5, 60, 3
SHOP = "shop"


def changelog(random: Random) -> list[Event]:
    """Returns a changelog without events whose meaning depends on an earlier one of their partition (null tombstones,
    moves, two contents at one position): each writer reads only a part of the partition."""
    events = random_changelog(random, 12)
    first: dict[Any, Event] = {}
    for e in events:
        first.setdefault((e.key, e.lsn, e.op == "r"), e)
    return [
        e
        for e in events
        if e.op != "null"
        and e.old_key is None
        and e.new_key is None
        and replace(first[e.key, e.lsn, e.op == "r"], offset=e.offset) == e
    ]


def shared(random: Random, records: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Returns the records of two writers: each has some, and both have a fifth."""
    parts: list[list[dict[str, Any]]] = [[], []]
    for record in records:
        chance = random.random()
        for number, part in enumerate(parts):
            if chance < 0.2 or (chance < 0.6) == bool(number):
                part.append(record)
    return parts


def writer(spark: SparkSession, folder: Path, name: str, records: Sequence[dict[str, Any]], tuning: Tuning) -> Merge:
    layout = Lakehouse(str(folder / "lakehouse"))
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    bronze = Bronze(spark, layout.bronze(name), tuning=tuning)
    capture = Capture(spark, FileSource(list(lines([file]))), bronze, Rules().naming, len(records) // BATCHES + 1)
    while capture.step():
        pass
    return Merge(spark, SHOP, layout, Rules(tuning=tuning), bronze, slice_events=1, writer=name)


@pytest.mark.long
@pytest.mark.parametrize("tuning", [DEFAULT_TUNING, LARGE_FILES], ids=["small", "large"])
def test_two_writers_equal_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tuning: Tuning
) -> None:
    random = Random(SEED)
    changelogs = [changelog(random) for _ in range(CASES)]
    records = [r for n, events in enumerate(changelogs) for r in as_debezium(events, "s.t", n, DEFAULT_PLACEHOLDER)]
    records.sort(key=lambda r: r["offset"])
    names = ["stream", "backfill"]
    parts = shared(random, records)
    merges = [writer(spark, tmp_path, n, part, tuning) for n, part in zip(names, parts, strict=True)]
    attempts = count_attempts(monkeypatch)
    let_writers_collide(monkeypatch, len(merges))
    run_together(merges)
    layout = Lakehouse(str(tmp_path / "lakehouse"))
    found: dict[int, dict[Any, Any]] = defaultdict(dict)
    for row in Silver(spark, layout.silver(SHOP, "s.t")).rows().collect():
        assert row["id"] not in found[row["case"]], "a key has two rows"
        found[row["case"]][row["id"]] = {c: row[c] for c in COLUMNS}
    for number, events in enumerate(changelogs):
        assert found[number] == fold(events, COLUMNS), (number, SEED, events)
    for name, part in zip(names, parts, strict=True):
        report = audit(Bronze(spark, layout.bronze(name)).rows(), Accounts(spark, layout.accounts, name).rows())
        assert (report.problems, report.merged, report.waiting) == ([], len(part), 0)
    assert len(attempts) > len({id(batch) for batch in attempts}), "the writers never collided"


def count_attempts(monkeypatch: pytest.MonkeyPatch) -> list[TableBatch]:
    """Returns a list that collects each batch as often as it is reconciled."""
    found: list[TableBatch] = []
    merge = TableMerge.merge

    def counted(tables: TableMerge, batch: TableBatch, schemas: Schemas) -> Account:
        found.append(batch)
        return merge(tables, batch, schemas)

    monkeypatch.setattr(TableMerge, "merge", counted)
    return found


def let_writers_collide(monkeypatch: pytest.MonkeyPatch, writers: int) -> None:
    """Holds the second batch of each writer, once reconciled, until that of the other is too: on a busy machine one
    writer might finish before the other begins. One of the first batches creates the table."""
    reconciled, writes = threading.Barrier(writers, timeout=600), Counter[int]()
    write = TableMerge._commit

    def waiting(tables: TableMerge, *arguments: Any) -> None:
        writes[id(tables)] += 1
        if writes[id(tables)] == 2:
            reconciled.wait()
        write(tables, *arguments)

    monkeypatch.setattr(TableMerge, "_commit", waiting)


def run_together(merges: Sequence[Merge]) -> None:
    failures: list[BaseException] = []

    def drive(merge: Merge) -> None:
        try:
            while merge.step():
                pass
        except Exception as failure:  # noqa: BLE001 A thread's failure is the test's.
            failures.append(failure)

    threads = [threading.Thread(target=drive, args=(merge,)) for merge in merges]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
