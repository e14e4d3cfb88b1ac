"""Changes of erased rows after the cutoff, for each op and setting: only a create begins a new life without a word."""

from __future__ import annotations

from pathlib import Path
from threading import Event as Stop

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.proving import prove
from ingest.backfill.refolding import Refolding
from ingest.config import Pipeline
from ingest.erasure.certifying import erasure_of
from ingest.errors import ProofFailed, SubjectHeld
from ingest.lakehouse.bronze import Bronze
from ingest.loop.merge import Merge
from ingest.pipeline.composition import rules_of
from ingest.pipeline.ledger_guard import LedgerGuard, require_not_held
from ingest.suppression.ledger import HELD, RELEASED, REQUESTED, LedgerEntry, held_requests
from ingest.testing import Event
from tests.changelogs import Record
from tests.erasure import people
from tests.erasure.people import CLAIMS, MEMBERS, TableEvent, cutoff, insured
from tests.erasure.test_removal import merge, table_event
from tests.suppression.test_suppression import captured, merged, rows, write_requests

CREATED, UPDATED, READ, DELETED, CHANGED, CLAIMING, OTHER = range(700001, 700008)
OLD = [table_event(MEMBERS, "c", n, 10 + n, CREATED + n, name="old") for n in range(7)]
OLD += [
    table_event(CLAIMS, "c", 0, 20, 50, member_id=CLAIMING, text="old"),
    table_event(CLAIMS, "c", 1, 21, 51, member_id=CLAIMING, text="old"),
]
LATER = [
    table_event(MEMBERS, "c", 7, 101, CREATED, name="new"),
    table_event(MEMBERS, "u", 8, 102, UPDATED, name="updated"),
    table_event(MEMBERS, "r", 9, 103, READ, name="read"),
    table_event(MEMBERS, "d", 10, 104, DELETED),
    table_event(MEMBERS, "c", 11, 105, CHANGED, name="new"),
    table_event(MEMBERS, "u", 12, 106, CHANGED, name="changed"),
    table_event(CLAIMS, "u", 2, 107, 50, member_id=CLAIMING, text="updated"),
    # It belongs to another member by now.
    table_event(CLAIMS, "u", 3, 108, 51, member_id=OTHER, text="moved"),
    table_event(CLAIMS, "c", 4, 109, 52, member_id=CLAIMING, text="new"),
]
GONE = [table_event(MEMBERS, "d", 13, 110, UPDATED)]


def erased(spark: SparkSession, folder: Path, what: str) -> Pipeline:
    """Returns a pipeline whose members but the last were erased before any event came, and that has merged all."""
    settings = {"key_file": str(folder / "ledger.key"), "snapshot_reads": what}
    pipeline = insured(folder, privacy=settings)
    write_requests(spark, pipeline, dict.fromkeys(range(CREATED, OTHER), cutoff(1, OLD)))
    merge(spark, pipeline, folder / "events", OLD)
    merge(spark, pipeline, folder / "later", [*OLD, *LATER])
    return pipeline


def captured_records(spark: SparkSession, pipeline: Pipeline, folder: Path, found: list[Record]) -> Bronze:
    return captured(spark, pipeline, folder, found, None, 20)


def held(spark: SparkSession, pipeline: Pipeline) -> set[str]:
    return {subject.request for subject in LedgerGuard(spark, pipeline).report().held}


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("what", ["suppress", "merge"])
def test_source_that_still_holds_an_erased_row_is_told_of(spark: SparkSession, tmp_path: Path, what: str) -> None:
    pipeline = erased(spark, tmp_path, what)
    members = {CREATED: {"name": "new"}, CHANGED: {"name": "changed"}, OTHER: {"name": "old"}}
    claims = {51: {"member_id": OTHER, "text": "moved"}, 52: {"member_id": CLAIMING, "text": "new"}}
    if what == "merge":
        members[READ] = {"name": "read"}
    assert rows(spark, pipeline, MEMBERS) == members
    assert rows(spark, pipeline, CLAIMS) == claims
    assert held(spark, pipeline) == {f"r{UPDATED}", f"r{READ}", f"r{CLAIMING}"}
    merge(spark, pipeline, tmp_path / "gone", [*OLD, *LATER, *GONE])
    assert held(spark, pipeline) == {f"r{READ}", f"r{CLAIMING}"}
    assert all(one.equal for one in prove(spark, pipeline, pipeline.layout.scratch("p"), (), lambda _: None))
    with pytest.raises(ProofFailed, match="the source still holds the subject"):
        erasure_of(spark, pipeline, f"r{READ}")
    with pytest.raises(SubjectHeld, match="still holds 2 erased subjects"):
        require_not_held(LedgerGuard(spark, pipeline).report().held)


@pytest.mark.spark
def test_erased_row_that_moves_to_another_key_stays_erased(spark: SparkSession, tmp_path: Path) -> None:
    """Debezium tells it by a delete that names the new key and a create at the same position, other forms by an update
    that has both keys."""
    pipeline = insured(tmp_path)
    old = [table_event(MEMBERS, "c", n, 10 + n, CREATED + n, name="old") for n in range(2)]
    write_requests(spark, pipeline, dict.fromkeys((CREATED, UPDATED), cutoff(1, old)))
    story = [
        *old,
        table_event(MEMBERS, "d", 2, 101, CREATED),
        table_event(MEMBERS, "c", 3, 101, READ, name="moved"),
        TableEvent(MEMBERS, Event("u", 4, 102, DELETED, {"name": "moved"}, old_key=UPDATED)),
        table_event(MEMBERS, "u", 5, 103, READ, name="moved and changed"),
        table_event(MEMBERS, "u", 6, 104, DELETED, name="moved and changed"),
        table_event(MEMBERS, "c", 7, 105, OTHER, name="another member"),
    ]
    moved = people.records(story, 1)
    moved[2]["headers"] = [{"key": "__debezium.newkey", "value": {"id": READ}}]
    merged(spark, pipeline, captured_records(spark, pipeline, tmp_path / "events", moved), 20)
    assert rows(spark, pipeline, MEMBERS) == {OTHER: {"name": "another member"}}
    assert held(spark, pipeline) == {f"r{CREATED}", f"r{UPDATED}"}


@pytest.mark.spark
def test_table_is_folded_anew_if_a_create_comes_after_the_updates_that_follow_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = insured(tmp_path)
    old = [table_event(MEMBERS, "c", 0, 10, CREATED, name="old")]
    write_requests(spark, pipeline, {CREATED: cutoff(1, old)})
    updated = [*old, table_event(MEMBERS, "u", 1, 120, CREATED, name="changed")]
    merge(spark, pipeline, tmp_path / "updated", updated)
    assert rows(spark, pipeline, MEMBERS) == {}
    created = [*updated, table_event(MEMBERS, "c", 2, 110, CREATED, name="new")]
    bronze = captured_records(spark, pipeline, tmp_path / "created", people.records(created, 1))
    merging = Merge(spark, pipeline.name, pipeline.layout, rules_of(pipeline), bronze, 20)
    while merging.step():
        pass
    assert Refolding(spark, pipeline, Stop()).run(merging) == [MEMBERS]
    assert rows(spark, pipeline, MEMBERS) == {CREATED: {"name": "changed"}}
    assert Refolding(spark, pipeline, Stop()).run(merging) == []


@pytest.mark.spark
def test_life_of_before_this_was_recorded_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """An older version recorded no begin of a life: the row itself tells."""
    pipeline = insured(tmp_path)
    story: list[TableEvent] = [table_event(MEMBERS, "c", 0, 10, CREATED, name="old")]
    again = [*story, table_event(MEMBERS, "c", 1, 90, CREATED, name="new")]
    merge(spark, pipeline, tmp_path / "events", again)
    write_requests(spark, pipeline, {CREATED: cutoff(1, story)})
    changed = [*again, table_event(MEMBERS, "u", 2, 95, CREATED, name="changed")]
    merge(spark, pipeline, tmp_path / "changed", changed)
    assert rows(spark, pipeline, MEMBERS) == {CREATED: {"name": "changed"}}
    assert held(spark, pipeline) == set()


def entry(kind: str, request: str, key_hash: str) -> LedgerEntry:
    return LedgerEntry(kind, request, table=MEMBERS, key_hash=key_hash)


@pytest.mark.parametrize(
    ("later", "subjects"),
    [
        ([], ["a"]),
        ([entry(HELD, "a", "child")], ["a"]),
        ([entry(RELEASED, "a", "k")], []),
        ([entry(HELD, "a", "child"), entry(RELEASED, "a", "k")], ["a"]),
        ([entry(REQUESTED, "c", "k")], []),
        ([entry(REQUESTED, "c", "k"), entry(HELD, "c", "k")], ["c"]),
        ([entry(HELD, "b", "l")], ["a", "b"]),
    ],
)
def test_subject_is_held_until_its_rows_are_deleted_or_it_is_erased_again(
    later: list[LedgerEntry], subjects: list[str]
) -> None:
    entries = [entry(REQUESTED, "a", "k"), entry(REQUESTED, "b", "l"), entry(HELD, "a", "k"), *later]
    assert [request.request for request in held_requests(entries)] == subjects
