"""Two concurrent runs of one pipeline capture and merge the same events: the tables are those of one run, and each
event is accounted for once."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ingest.batches.rules import DEFAULT_PLACEHOLDER, Rules
from ingest.batches.table_batch import TableBatch
from ingest.changelog.accounting import Account
from ingest.delta.conflict_retry import CONFLICTS, Overtaken
from ingest.errors import ConfigError
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.silver import Silver
from ingest.loop.capture import Capture
from ingest.loop.duplicate_delivery import DuplicateDeliveries
from ingest.loop.merge import Merge
from ingest.loop.table_merge import TableMerge
from ingest.names import Lakehouse
from ingest.quality.accounting import audit
from ingest.sources.files import FileSource, lines
from ingest.testing import fold, fold_bag
from ingest.testing.changelogs import COLUMNS, as_debezium, random_bag, random_changelog
from tests.changelogs import Topic

pytestmark = pytest.mark.spark
SEED, CASES, BATCHES = 7, 8, 4
PIPELINE = "twice"
BAG = "public.bag"


class Lake:
    """A lakehouse with one pipeline, whose source is a file."""

    def __init__(self, spark: SparkSession, folder: Path, records: Sequence[dict[str, Any]]) -> None:
        self._spark = spark
        self._file = folder / "events.jsonl"
        self._file.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
        self._layout = Lakehouse(str(folder / "lakehouse"))

    def capture(self, limit: int, bronze: Bronze | None = None) -> Capture:
        source = FileSource(list(lines([self._file])))
        return Capture(self._spark, source, bronze or self.bronze(), Rules().naming, limit, merges=True)

    def bronze(self) -> Bronze:
        return Bronze(self._spark, self._layout.bronze(PIPELINE))

    def merge(self, bronze: Bronze | None = None, slice_events: int = 1000) -> Merge:
        return Merge(self._spark, PIPELINE, self._layout, Rules(), bronze or self.bronze(), slice_events=slice_events)

    def rows(self, table: str) -> list[dict[str, Any]]:
        return [row.asDict() for row in Silver(self._spark, self._layout.silver(PIPELINE, table)).rows().collect()]

    def accounts(self) -> Accounts:
        return Accounts(self._spark, self._layout.accounts, PIPELINE)

    def check_accounts(self, records: int) -> None:
        found = audit(self.bronze().rows(), self.accounts().rows())
        assert (found.problems, found.merged, found.waiting) == ([], records, 0)

    def silver(self, table: str) -> str:
        return self._layout.silver(PIPELINE, table)


def run_until_merged(lake: Lake, limit: int, slice_events: int, failures: list[BaseException]) -> None:
    """Runs until all is merged, with new objects after each collision, as `ingest run` does."""
    try:
        while not run_once(lake, limit, slice_events):
            pass
    except BaseException as failure:  # noqa: BLE001 A thread's failure is the test's.
        failures.append(failure)


def run_once(lake: Lake, limit: int, slice_events: int) -> bool:
    bronze = lake.bronze()
    try:
        capture = lake.capture(limit, bronze)
        with closing(lake.merge(bronze, slice_events)) as merge:
            while capture.step() or merge.step(capture.captured.batch):
                pass
            while merge.step():
                pass
    except CONFLICTS:
        return False
    return True


def hold_first_slices(monkeypatch: pytest.MonkeyPatch, runs: int) -> list[Exception]:
    """Holds each run before its first slice until the others know of no slice either, and once it is merged until those
    of the others are, so that only one can be accounted for. Returns the errors of runs that were about to merge
    another slice."""
    begun, merged = threading.Barrier(runs, timeout=600), threading.Barrier(runs, timeout=600)
    overtaken_runs, held, waited = list[Exception](), set[int](), set[int]()
    accounts, begin = Merge._merge_tables, Accounts.begin_slice

    def waiting(merge: Merge, *arguments: Any) -> Any:
        found = accounts(merge, *arguments)
        if threading.get_ident() not in waited:
            waited.add(threading.get_ident())
            merged.wait()
        return found

    def overtaken(*arguments: Any) -> None:
        if threading.get_ident() not in held:
            held.add(threading.get_ident())
            begun.wait()
        try:
            begin(*arguments)
        except CONFLICTS as error:
            overtaken_runs.append(error)
            raise

    monkeypatch.setattr(Merge, "_merge_tables", waiting)
    monkeypatch.setattr(Accounts, "begin_slice", overtaken)
    return overtaken_runs


@pytest.mark.long
def test_two_runs_agree(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(SEED)
    changelogs = [random_changelog(random, 12) for _ in range(CASES)]
    bags = [random_bag(random, 12) for _ in range(CASES)]
    records = [r for n, events in enumerate(changelogs) for r in as_debezium(events, "f.keyed", n, DEFAULT_PLACEHOLDER)]
    records += [r for n, (_, sent) in enumerate(bags) for r in as_debezium(sent, "f.bag", n, DEFAULT_PLACEHOLDER)]
    records.sort(key=lambda r: r["offset"])
    lake = Lake(spark, tmp_path, records)
    size = len(records) // BATCHES + 1
    capture = lake.capture(size)
    for _ in range(BATCHES - 1):
        assert capture.step()
    overtaken_runs, failures = hold_first_slices(monkeypatch, 2), list[BaseException]()
    runs = [
        threading.Thread(target=run_until_merged, args=(lake, size, slice_events, failures))
        for slice_events in (1, 2 * size)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert failures == []
    assert overtaken_runs, "the runs never collided"
    keyed: dict[int, dict[Any, Any]] = {n: {} for n in range(CASES)}
    for row in lake.rows("f.keyed"):
        assert row["id"] not in keyed[row["case"]], "a key has two rows"
        keyed[row["case"]][row["id"]] = {c: row[c] for c in COLUMNS}
    assert keyed == {n: fold(events, COLUMNS) for n, events in enumerate(changelogs)}
    bag: dict[int, Counter[Any]] = {n: Counter() for n in range(CASES)}
    for row in lake.rows("f.bag"):
        bag[row["case"]][tuple(sorted((c, row[c]) for c in COLUMNS))] += 1
    assert bag == {n: fold_bag(events) for n, (events, _) in enumerate(bags)}
    lake.check_accounts(len(records))


class Died(Exception):
    """Raised in place of SIGKILL."""


@pytest.fixture
def bag(spark: SparkSession, tmp_path: Path) -> Lake:
    """A keyless table, captured in four batches of two events; the first is merged. Deletes come before the rows that
    they delete, and wait in the pending table."""
    topic = Topic("shop.public.bag", ("public", "bag"), key=())
    for n, (op, v) in enumerate([("c", 1), ("c", 2), ("d", 3), ("c", 4), ("c", 3), ("d", 6), ("c", 6), ("c", 5)]):
        image = {"v": v}
        topic.change(op, 10 + n, **{"before" if op == "d" else "after": image}, key=None)
    lake = Lake(spark, tmp_path, topic.records)
    capture = lake.capture(2)
    while capture.step():
        pass
    assert [a.applied for a in lake.merge().step(1)] == [2]
    return lake


def check_all_merged(lake: Lake) -> None:
    while lake.merge().step():
        pass
    assert Counter(row["v"] for row in lake.rows(BAG)) == Counter([1, 2, 4, 5])
    lake.check_accounts(8)


@pytest.fixture
def die_between_commits(bag: Lake, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Returns a function that merges up to a capture batch and dies after the commit of pending deletes, before that of
    silver."""

    def merge_upto(batch: int) -> None:
        apply = Silver.apply

        def die(table: Silver, *arguments: Any, **named: Any) -> None:
            if table.path == bag.silver(BAG):
                raise Died
            apply(table, *arguments, **named)

        with monkeypatch.context() as patched, pytest.raises(Died):
            patched.setattr(Silver, "apply", die)
            bag.merge().step(batch)

    return merge_upto


def resumed_run(lake: Lake) -> Merge:
    """Returns a run that has merged as far as the others and has not read what they did since."""
    merge = lake.merge()
    assert merge.step(1) == []
    merge._has_resumed = True
    return merge


@pytest.mark.parametrize("last_batch", [2, pytest.param(4, marks=pytest.mark.long)])
def test_slice_merged_by_another_run_is_not_merged_again(bag: Lake, last_batch: int) -> None:
    other = resumed_run(bag)
    assert bag.merge().step(3)
    with pytest.raises(Overtaken):
        other.step(last_batch)
    check_all_merged(bag)


@pytest.mark.long
def test_begun_slice_keeps_its_end(bag: Lake) -> None:
    """No run has written any of it yet."""
    other = resumed_run(bag)
    bag.accounts().begin_slice(1, 3)
    with pytest.raises(Overtaken):
        other.step(4)
    check_all_merged(bag)
    assert {r["upto_batch"] for r in bag.accounts().rows().collect()} == {1, 3, 4}


@pytest.mark.long
@pytest.mark.parametrize("last_batch", [3, 4])
def test_half_written_slice_is_finished(bag: Lake, die_between_commits: Callable[[int], None], last_batch: int) -> None:
    """It ends where the dead run would have ended it; a run with other slices starts again."""
    other = resumed_run(bag)
    die_between_commits(3)
    if last_batch == 3:
        assert sum(a.read for a in other.step(3)) == 4
    else:
        with pytest.raises(Overtaken):
            other.step(last_batch)
    check_all_merged(bag)


@pytest.mark.long
def test_set_aside_table_catches_up_by_the_same_slices(bag: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def unusable(*_: Any) -> Account:
        raise ConfigError("a setting does not fit", "change it")

    with monkeypatch.context() as patched:
        patched.setattr(TableMerge, "_merge", unusable)
        for through_batch in (2, 3):
            assert bag.merge(slice_events=1).step(through_batch)
    one, other = bag.merge(slice_events=1), bag.merge()
    both = other._set_aside_tables.slice_of(BAG, max_events=4, unfinished=None)
    assert [share.through_batch for share in both] == [2, 3]
    assert sum(a.applied for a in one.step(3)) == 2
    with pytest.raises(Overtaken):
        other._set_aside_tables.begin_slice(BAG, both)
    assert sum(a.applied for a in other.step(3)) == 2
    check_all_merged(bag)


@pytest.mark.long
def test_pending_delete_is_applied_once(
    bag: Lake, die_between_commits: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run applies a pending delete after another has begun the same slice and before it reads pending deletes."""
    assert bag.merge().step(3)
    other, once, reconciled = bag.merge(), DuplicateDeliveries.without_duplicates, list[int]()

    def overtaken(deliveries: DuplicateDeliveries, batch: TableBatch) -> DataFrame:
        reconciled.append(batch.through_batch)
        if reconciled == [4]:
            die_between_commits(4)
        return once(deliveries, batch)

    monkeypatch.setattr(DuplicateDeliveries, "without_duplicates", overtaken)
    assert [a.applied for a in other.step(4)] == [2]
    assert reconciled == [4, 4, 4], "it was not reconciled again"
    check_all_merged(bag)
