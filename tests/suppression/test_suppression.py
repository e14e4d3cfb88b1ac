"""Events from before an erased subject's cutoff stay suppressed, in any batches and any order, also when delivered
again. Events of a new life pass."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.backfill.rebuilding import Rebuild
from ingest.changelog.change import EVENT_ID
from ingest.changelog.envelope import RECORD, events
from ingest.changelog.naming import Naming
from ingest.config import Pipeline
from ingest.erasure import request as asking
from ingest.erasure.request import SubjectId
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.quarantine import Quarantine
from ingest.loop.capture import Capture
from ingest.loop.merge import Merge
from ingest.loop.suppression.late_children import LateChildren
from ingest.loop.suppression.suppress import Suppression
from ingest.pipeline.composition import bronze_of, rules_of
from ingest.pipeline.shredding import sealing_of
from ingest.sources.files import FileSource, lines, shuffled
from ingest.spark.local_rows import local_rows
from ingest.suppression.before_cutoff import BEFORE_CUTOFF, UNDECIDED, with_cutoff_flags
from ingest.suppression.cutoff import WHOLE_SOURCE, Cutoff
from ingest.suppression.key_file import read_keys
from ingest.suppression.ledger import KEYS, REQUESTED, Ledger, LedgerEntry
from ingest.testing import Event
from tests.changelogs import Record, Topic, write
from tests.erasure import people
from tests.erasure.people import CLAIMS, COLUMNS, MEMBERS, PHOTOS, STRIDE, TABLES, TableEvent, insured

pytestmark = pytest.mark.spark
CASES, LENGTH, BATCHES = 25, 14, 6


def write_requests(spark: SparkSession, pipeline: Pipeline, cutoffs: dict[int, Cutoff]) -> Ledger:
    """Writes requests for these members with their cutoffs. The ledger knows no other keys of theirs."""
    assert pipeline.privacy is not None
    keys = read_keys(pipeline.privacy.key_file)
    entries = [
        LedgerEntry(
            REQUESTED, f"r{m}", "member", MEMBERS, keys.hash(MEMBERS, str(m)), 1, keys.check(1), None, cutoff.to_json()
        )
        for m, cutoff in cutoffs.items()
    ]
    ledger = Ledger(spark, pipeline.layout.ledger, pipeline.name)
    ledger.append(entries, local_rows(spark, [{n: getattr(e, n) for n in KEYS.names} for e in entries], KEYS))
    return ledger


def captured(
    spark: SparkSession,
    pipeline: Pipeline,
    folder: Path,
    records: list[Record],
    seed: int | None,
    batch: int,
    first: int = 0,
) -> Bronze:
    """Captures the records and returns the bronze. `seed`: shuffles them, the `first` ones before the others."""
    file = write(folder, records, None) / "events.jsonl"
    given = list(lines([file]))
    bronze = bronze_of(spark, pipeline)
    if seed is not None:
        given = [r for part in (given[:first], given[first:]) for r in shuffled(part, seed, any_order=False)]
    source = FileSource(given)
    capture = Capture(spark, source, bronze, rules_of(pipeline).naming, batch, seal=sealing_of(pipeline))
    while capture.step():
        pass
    return bronze


def merged(spark: SparkSession, pipeline: Pipeline, bronze: Bronze, most: int) -> dict[str, int]:
    """Merges the batches and returns the sums of the accounts."""
    merge = Merge(spark, pipeline.name, pipeline.layout, rules_of(pipeline), bronze, most)
    sums: dict[str, int] = {}
    while accounts := merge.step():
        for account in accounts:
            for outcome in ("read", "suppressed", "quarantined"):
                sums[outcome] = sums.get(outcome, 0) + getattr(account, outcome)
    return sums


def rows(spark: SparkSession, pipeline: Pipeline, table: str) -> dict[int, dict[str, Any]]:
    path = pipeline.layout.silver(pipeline.name, table)
    if not Path(path).exists():
        return {}
    found = spark.read.format("delta").load(path).collect()
    assert len(found) == len({r.id for r in found})
    return {r.id: {c: r.asDict().get(c) for c in COLUMNS[table]} for r in found}


def rows_of_case(found: dict[int, dict[str, Any]], case: int) -> dict[int, dict[str, Any]]:
    return {key: row for key, row in found.items() if key // STRIDE == case}


def compare(
    spark: SparkSession, pipeline: Pipeline, lives: dict[int, list[TableEvent]], points: dict[int, int]
) -> dict[str, dict[int, dict[str, Any]]]:
    """Returns the rows of each table after comparing them with the oracle's."""
    found = {table: rows(spark, pipeline, table) for table in TABLES}
    for case, said in lives.items():
        expected = people.remaining_rows(said, points[case], STRIDE * case)
        assert {t: rows_of_case(found[t], case) for t in TABLES} == expected, (case, points[case], said)
    return found


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2)])
def test_silver_equals_the_changelog_without_suppressed_events(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """The requests come first, so only the events show which rows belong to the subjects, in any order of the
    tables."""
    random = Random(seed)
    lives = {case: people.random_history(random, case, LENGTH, settled=True) for case in range(1, CASES + 1)}
    points = {case: random.randrange(len(said) + 1) for case, said in lives.items()}
    pipeline = insured(tmp_path)
    ledger = write_requests(
        spark, pipeline, {STRIDE * c: people.cutoff(c, said[: points[c]]) for c, said in lives.items()}
    )
    records = [record for case, said in lives.items() for record in people.records(said, case)]
    size = len(records) // BATCHES + 1
    bronze = captured(spark, pipeline, tmp_path / "events", records, seed, size)
    sums = merged(spark, pipeline, bronze, size)
    assert sums["read"] == len(records)
    assert sums["suppressed"] > CASES
    assert sums["quarantined"] == 0
    compare(spark, pipeline, lives, points)
    assert list(ledger.verify()) == []


@pytest.mark.long
def test_rebuilt_tables_hold_no_suppressed_event(spark: SparkSession, tmp_path: Path) -> None:
    """Rows were merged before the request; some have moved, or belonged to a subject earlier."""
    random = Random(3)
    lives = {case: people.random_history(random, case, LENGTH, settled=False) for case in range(1, CASES // 2)}
    points = {case: random.randrange(len(said) + 1) for case, said in lives.items()}
    lives = {case: people.moved_later(said, points[case]) for case, said in lives.items()}
    pipeline = insured(tmp_path)
    before = [record for case, said in lives.items() for record in people.records(said[: points[case]], case)]
    after = [record for case, said in lives.items() for record in people.records(said, case)[points[case] :]]
    whole = before + after
    size = len(whole) // BATCHES + 1
    merged(spark, pipeline, captured(spark, pipeline, tmp_path / "before", before, 3, size), size)
    subjects = [SubjectId("member", str(STRIDE * case)) for case in lives]
    asking.request_erasure(
        spark,
        pipeline,
        asking.plan_erasure(spark, pipeline, subjects, None, asking.current_cutoff(spark, pipeline, False)),
    )
    merged(spark, pipeline, captured(spark, pipeline, tmp_path / "whole", whole, 3, size, len(before)), size)
    Rebuild(spark, pipeline).run()
    compare(spark, pipeline, lives, points)


def story() -> list[TableEvent]:
    """Returns events of a member, a claim, and a photo of it, which arrives before the claim."""
    member, claim = {"name": "x"}, {"member_id": STRIDE, "text": "x"}
    return [
        TableEvent(MEMBERS, Event("c", 0, 10, STRIDE, member)),
        TableEvent(MEMBERS, Event("c", 1, 20, STRIDE + 1, member)),
        TableEvent(PHOTOS, Event("c", 0, 40, 7, {"claim_id": 5, "text": "x"})),
        TableEvent(CLAIMS, Event("c", 0, 30, 5, claim)),
        TableEvent(MEMBERS, Event("c", 2, 50, STRIDE, {"name": "anew"})),
    ]


@pytest.mark.long
def test_late_children_are_removed_and_a_new_life_stays(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = insured(tmp_path)
    ledger = write_requests(spark, pipeline, {STRIDE: people.cutoff(1, story()[:4])})
    bronze = captured(spark, pipeline, tmp_path / "events", people.records(story(), 1), None, 1)
    sums = merged(spark, pipeline, bronze, 1)
    assert rows(spark, pipeline, MEMBERS) == {STRIDE + 1: {"name": "x"}, STRIDE: {"name": "anew"}}
    assert rows(spark, pipeline, CLAIMS) == rows(spark, pipeline, PHOTOS) == {}
    assert sums == {"read": 5, "suppressed": 2, "quarantined": 0}
    assert {r.table for r in ledger.keys().collect()} == set(TABLES)


class Died(Exception):
    pass


@pytest.mark.long
@pytest.mark.parametrize(
    "place", [(LateChildren, "remove"), (LateChildren, "_remove_from_table"), (Suppression, "_without_events")]
)
def test_merge_that_dies_after_the_ledger_commit_is_completed_by_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: tuple[type, str]
) -> None:
    pipeline = insured(tmp_path)
    write_requests(spark, pipeline, {STRIDE: people.cutoff(1, story()[:4])})
    bronze = captured(spark, pipeline, tmp_path / "events", people.records(story(), 1), None, 1)

    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(*place, die)
        with pytest.raises(Died):
            merged(spark, pipeline, bronze, 1)
    merged(spark, pipeline, bronze, 1)
    assert rows(spark, pipeline, MEMBERS) == {STRIDE + 1: {"name": "x"}, STRIDE: {"name": "anew"}}
    assert rows(spark, pipeline, CLAIMS) == rows(spark, pipeline, PHOTOS) == {}


def test_event_of_unknown_age_is_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    """The event has no position and is in a partition without a cutoff."""
    pipeline = insured(tmp_path)
    write_requests(
        spark, pipeline, {STRIDE: Cutoff({"insured.members": {1: 9}}, {WHOLE_SOURCE: (0, 50, 0, 0, 1, 0, 0)})}
    )
    said = [TableEvent(MEMBERS, Event("c", n, 0, STRIDE + n, {"name": "x"})) for n in range(2)]
    bronze = captured(spark, pipeline, tmp_path / "events", people.records(said, 2), None, 5)
    assert merged(spark, pipeline, bronze, 5) == {"read": 2, "suppressed": 0, "quarantined": 1}
    assert rows(spark, pipeline, MEMBERS) == {STRIDE + 1: {"name": "x"}}
    held = Quarantine(spark, pipeline.layout.quarantine, pipeline.name).rows().collect()
    assert [(r.code, r["table"], r.offset) for r in held] == [("old-or-new-life", MEMBERS, 0)]


def test_no_event_is_examined_without_a_request(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: Sequence[object] = []
    monkeypatch.setattr(Suppression, "_without_suppressed", lambda *_: looked)
    pipeline = insured(tmp_path)
    bronze = captured(spark, pipeline, tmp_path / "events", people.records(story(), 1), None, 5)
    merged(spark, pipeline, bronze, 5)
    assert len(rows(spark, pipeline, MEMBERS)) == 2


def test_snapshot_read_belongs_to_the_life_of_its_position(spark: SparkSession) -> None:
    """Reads of incremental snapshots, and a transaction that was open at the time of the request."""
    topic = Topic("t")

    def sent(partition: int, offset: int, lsn: int | None, sequence: str | None) -> None:
        topic.partition = partition
        op = "u" if lsn else "r"
        source = topic.change(op, lsn or 0, {"id": 1}, offset=offset)["value"]["source"]
        source |= {"lsn": lsn, "sequence": sequence, "snapshot": "false" if lsn else "incremental"}

    right = {
        (0, 3): (None, '["250","250"]', "old"),
        (0, 12): (None, '["250","250"]', None),
        (0, 13): (None, None, None),
        (0, 14): (120, '["260","120"]', None),
        (0, 15): (120, '["92","120"]', "old"),
        (1, 0): (None, '["250","250"]', None),
        (1, 1): (None, '["150","150"]', "old"),
        (1, 2): (None, None, "unknown"),
    }
    for (partition, offset), (lsn, sequence, _) in right.items():
        sent(partition, offset, lsn, sequence)
    said = [
        {c: r[c] for c in ("topic", "partition", "offset")} | {"value": json.dumps(r["value"])} for r in topic.records
    ]
    records = spark.createDataFrame(said, "topic string, partition int, offset bigint, value string").selectExpr(
        *(
            f"CAST({f.name if f.name in said[0] else 'NULL'} AS {f.dataType.simpleString()}) AS `{f.name}`"
            for f in RECORD
        )
    )
    hits = events(records, Naming()).select(
        F.struct("topic", "partition", "offset").alias(EVENT_ID), "op", "position", F.lit("r").alias("request")
    )
    cutoff = Cutoff({"t": {0: 10}}, {WHOLE_SOURCE: (0, 200, 0, 0, 1, 5, 0)})
    found = {
        (r[EVENT_ID]["partition"], r[EVENT_ID]["offset"]): "old"
        if r[BEFORE_CUTOFF]
        else "unknown"
        if r[UNDECIDED]
        else None
        for r in with_cutoff_flags(hits, {"r": cutoff}, "public.orders").collect()
    }
    assert found == {place: life for place, (_, _, life) in right.items()}
