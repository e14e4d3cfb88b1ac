"""Erased values are removed from every file, after a crash at any step; other rows stay."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.backfill import Backfill, BackfillRequest
from ingest.backfill.proving import prove
from ingest.changelog.point import Point
from ingest.config import Pipeline
from ingest.erasure.certifying import erasure_of
from ingest.erasure.places import BRONZE, OLD_FILES, old_files
from ingest.erasure.places.register import delta_places
from ingest.erasure.removal import Removal, RemovalOutcome
from ingest.errors import EXIT_USER, ProofFailed
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.quarantine import Quarantine
from ingest.lakehouse.silver import Silver
from ingest.names import Lakehouse
from ingest.pipeline.composition import bronze_of
from ingest.proof.certificate import Certificate, issue_certificate
from ingest.proof.certificate.keys import make_key_pair, signing_key
from ingest.proof.scan import SearchTerm
from ingest.proof.search import places_of, scan_with_canaries
from ingest.quality.accounting import audit
from ingest.sources.dump import Dump
from ingest.suppression.ledger import STATE, Ledger
from ingest.testing import Event
from tests.erasure import people
from tests.erasure.people import CLAIMS, MEMBERS, PHOTOS, SETTINGS, TABLES, TableEvent, cutoff, insured
from tests.proof.subject import scan
from tests.suppression.test_suppression import captured, merged, rows, write_requests

pytestmark = pytest.mark.spark
ANNA, BEN = 481516, 481517
NAME, TEXT = "Änne Übelhör", "broke her left wrist in Vaduz"
PERSONAL = {"bronze", "silver", "system", "history", "changes"}
"""Parts of the lakehouse that hold values of the subject; tombstones hold only hashes."""
NEEDLES = (
    SearchTerm("name", NAME),
    SearchTerm("text", TEXT),
    SearchTerm("member", str(ANNA), ("id", "member_id")),
    SearchTerm("claim", "99150", ("id", "claim_id")),
)


def table_event(table: str, op: str, offset: int, lsn: int, key: int, /, **image: Any) -> TableEvent:
    return TableEvent(table, Event(op, offset, lsn, key, image))  # type: ignore[arg-type]


STORY = [
    table_event(MEMBERS, "c", 0, 10, ANNA, name="a name before"),
    table_event(MEMBERS, "c", 1, 11, BEN, name="Ben"),
    table_event(MEMBERS, "u", 2, 12, ANNA, name=NAME),
    table_event(CLAIMS, "c", 0, 20, 99150, member_id=ANNA, text=TEXT),
    table_event(CLAIMS, "c", 1, 21, 61, member_id=BEN, text="theft"),
    table_event(CLAIMS, "c", 2, 22, 62, member_id=BEN, text="hail"),
    table_event(CLAIMS, "d", 3, 23, 62),
    table_event(PHOTOS, "c", 0, 30, 70, claim_id=99150, text=TEXT),
    table_event(PHOTOS, "c", 1, 31, 71, claim_id=61, text="a door"),
    table_event(CLAIMS, "d", 4, 40, 99150),
    TableEvent(CLAIMS, Event("null", 5, 0, 99150)),
]
SENT_AGAIN = [*STORY, table_event(CLAIMS, "c", 6, 20, 99150, member_id=ANNA, text=TEXT)]
NEW_LIFE = [*SENT_AGAIN, table_event(MEMBERS, "c", 3, 90, ANNA, name="Anna again")]


class Died(Exception):
    """Stands for SIGKILL."""


def with_personal_ids() -> dict[str, Any]:
    """Returns the tables' settings, by which no statistics of members' and claims' keys are written."""
    members = SETTINGS[MEMBERS] | {"personal": ["id", "name"]}
    return SETTINGS | {MEMBERS: members, CLAIMS: SETTINGS[CLAIMS] | {"personal": ["id", "text"], "history": True}}


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    """Returns a pipeline with everything merged, an erasure requested, and a record in quarantine."""
    made = insured(tmp_path, tables=with_personal_ids())
    merge(spark, made, tmp_path / "events", STORY)
    events = bronze_of(spark, made).rows().where(f"source_table = '{CLAIMS}' and offset = 0")
    quarantined = events.selectExpr("*", "source_table as table", "'x' as code", "'for the test' as reason")
    Quarantine(spark, made.layout.quarantine, made.name).add(quarantined)
    write_requests(spark, made, {ANNA: cutoff(1, STORY)})
    return made


def merge(spark: SparkSession, pipeline: Pipeline, folder: Path, story: list[TableEvent]) -> None:
    merged(spark, pipeline, captured(spark, pipeline, folder, people.records(story, 1), None, 20), 20)


def residues(pipeline: Pipeline) -> set[tuple[str, str]]:
    """Returns label and part of the lakehouse for each residue."""
    folder = Path(pipeline.lakehouse)
    return {(f.needle, f.file.split("/")[0]) for f in scan(folder, NEEDLES).findings.values()}


def check_certificate(spark: SparkSession, pipeline: Pipeline, keys: Path, before: Path) -> None:
    """Checks that the request is certified, and no longer once an old file is put back into any place."""
    keys.mkdir()
    make_key_pair(keys / "sign.pem")
    signer = signing_key(keys / "sign.pem", [Path(pipeline.lakehouse)])
    erasure = erasure_of(spark, pipeline, f"r{ANNA}")

    def issue() -> Certificate:
        places, left_out = places_of(pipeline)
        return issue_certificate(erasure, scan_with_canaries(places, NEEDLES, left_out), signer, datetime.now(UTC))

    assert issue().content["residues"] == []
    files = {f.file.split("/")[0]: f.file for f in scan(before, NEEDLES).findings.values()}
    assert files.keys() >= PERSONAL
    for place, name in files.items():
        left = Path(pipeline.lakehouse, name)
        left.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(before / name, left)
        assert {p for _, p in residues(pipeline)} == {place}
        with pytest.raises(ProofFailed):
            issue()
        left.unlink()


@contextmanager
def dying_after(owner: Any, method: str) -> Iterator[None]:
    """Makes calls of the method raise `Died` after they are done."""
    whole: Callable[..., Any] = getattr(owner, method)

    def dying(*arguments: Any, **named: Any) -> Any:
        whole(*arguments, **named)
        raise Died

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Died):
        patch.setattr(owner, method, dying)
        yield


def remove(spark: SparkSession, pipeline: Pipeline) -> RemovalOutcome:
    return Removal(spark, pipeline, keep_hours=0).run()


def check_accounts_and_silver(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> None:
    """Checks that every event is accounted for, and that silver equals bronze."""
    bronze = bronze_of(spark, pipeline)
    assert audit(bronze.rows(), Accounts(spark, pipeline.layout.accounts, pipeline.name).rows()).problems == []
    assert [p.table for p in prove(spark, pipeline, Lakehouse(str(tmp_path))) if not p.equal] == []


@pytest.mark.long
def test_removal_killed_after_each_step_is_completed(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> None:
    assert {place for _, place in residues(pipeline)} >= PERSONAL
    whole = shutil.copytree(pipeline.lakehouse, tmp_path / "before")
    others = {t: {k: r for k, r in rows(spark, pipeline, t).items() if k not in (ANNA, 70)} for t in TABLES}
    steps: list[tuple[Any, str]] = [
        (Quarantine, "remove"),
        (Silver, "remove"),
        (Bronze, "empty"),
        (old_files, "remove_old_files"),
    ]
    for owner, method in steps:
        with dying_after(owner, method):
            remove(spark, pipeline)
    outcome = remove(spark, pipeline)
    assert (outcome.requests, outcome.remain_until) == (1, None)
    assert residues(pipeline) == set()
    assert {t: rows(spark, pipeline, t) for t in TABLES} == others
    assert others[MEMBERS].keys() == {BEN}
    ledger = Ledger(spark, pipeline.layout.ledger, pipeline.name)
    assert list(ledger.verify()) == []
    assert {e.place for e in ledger.entries() if e.kind == STATE} == {*delta_places(), OLD_FILES}
    entry_count = len(list(ledger.entries()))
    remove(spark, pipeline)
    assert len(list(ledger.entries())) == entry_count, "removed values are gone"
    check_accounts_and_silver(spark, pipeline, tmp_path / "beside")
    check_certificate(spark, pipeline, tmp_path / "keys", whole)


@pytest.mark.long
def test_a_table_that_can_not_be_read_leaves_subjects_in_no_other_table(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    photos = Path(pipeline.layout.silver(pipeline.name, PHOTOS))
    (file,) = (file for file in photos.glob("**/*.parquet") if file.parent.name != "_delta_log")
    moved = file.rename(tmp_path / "moved")
    left = remove(spark, pipeline).left
    assert left is not None
    assert (PHOTOS in left.problem, left.exit_code) == (True, EXIT_USER)
    assert set(rows(spark, pipeline, MEMBERS)) == {BEN}
    assert set(rows(spark, pipeline, CLAIMS)) == {61}
    assert residues(pipeline) == {("text", "bronze"), ("claim", "bronze")}, "events of the table that is left"
    with pytest.raises(ProofFailed, match="not done"):
        erasure_of(spark, pipeline, f"r{ANNA}")
    moved.rename(file)
    assert remove(spark, pipeline).left is None
    assert (set(rows(spark, pipeline, PHOTOS)), residues(pipeline)) == ({71}, set())
    assert erasure_of(spark, pipeline, f"r{ANNA}").request == f"r{ANNA}"


@pytest.mark.long
def test_waiting_events_keep_a_removal_open(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> None:
    """The subjects of waiting events are unknown until the table is merged again."""
    alike = [*STORY, table_event(CLAIMS, "c", 6, 95, 63, member_id=BEN, text="a wall", Text="a wall")]
    merge(spark, pipeline, tmp_path / "alike", alike)
    late = [*alike, table_event(CLAIMS, "c", 7, 20, 99150, member_id=ANNA, text=TEXT)]
    merge(spark, pipeline, tmp_path / "late", late)
    left = remove(spark, pipeline).left
    assert left is not None
    assert f"{CLAIMS} is set aside" in left.problem
    assert set(rows(spark, pipeline, MEMBERS)) == {BEN}
    assert {place for _, place in residues(pipeline)}.isdisjoint({"silver", "history", "changes"})
    with pytest.raises(ProofFailed, match=CLAIMS):
        erasure_of(spark, pipeline, f"r{ANNA}")
    claims = SETTINGS[CLAIMS] | {"personal": ["id", "text"], "history": True, "rename": {"Text": "other_text"}}
    mended = insured(tmp_path, tables=SETTINGS | {CLAIMS: claims})
    merge(spark, mended, tmp_path / "again", late)
    remove(spark, mended)
    assert residues(mended) == set()
    assert erasure_of(spark, mended, f"r{ANNA}").request == f"r{ANNA}"
    check_accounts_and_silver(spark, mended, tmp_path / "beside")


@pytest.mark.long
def test_events_of_backfills_are_stored_without_content(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    """A backfill has a bronze of its own."""
    remove(spark, pipeline)
    dump, columns = str(tmp_path / "dump"), "id bigint, name string"
    spark.createDataFrame([(ANNA, NAME), (BEN, "Ben"), (481518, "Cem")], columns).write.parquet(dump)
    request = BackfillRequest("dump", tables=(MEMBERS,), dump=Dump(dump, MEMBERS, Point.parse("0/5")))
    backfill = Backfill(spark, pipeline, request)
    while not backfill.done:
        backfill.step()
    assert rows(spark, pipeline, MEMBERS) == {BEN: {"name": "Ben"}, 481518: {"name": "Cem"}}
    assert residues(pipeline) == set(), "its event is stored without its content"
    assert remove(spark, pipeline).taken[BRONZE] == {"events": 0, "files": 0}
    assert rows(spark, pipeline, MEMBERS) == {BEN: {"name": "Ben"}, 481518: {"name": "Cem"}}
    assert [p.table for p in prove(spark, pipeline, Lakehouse(str(tmp_path / "beside"))) if not p.equal] == []


@pytest.mark.long
def test_repeated_events_are_removed_again_and_a_new_life_stays(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    remove(spark, pipeline)
    merge(spark, pipeline, tmp_path / "again", SENT_AGAIN)
    assert residues(pipeline) == {("text", "bronze"), ("member", "bronze"), ("claim", "bronze")}
    remove(spark, pipeline)
    assert residues(pipeline) == set()
    merge(spark, pipeline, tmp_path / "new", NEW_LIFE)
    assert rows(spark, pipeline, MEMBERS)[ANNA] == {"name": "Anna again"}
    outcome = remove(spark, pipeline)
    assert all(not sum(taken.values()) for taken in outcome.taken.values())
    assert rows(spark, pipeline, MEMBERS)[ANNA] == {"name": "Anna again"}
    check_accounts_and_silver(spark, pipeline, tmp_path / "beside")


@pytest.mark.long
def test_old_files_are_deleted_after_their_time(spark: SparkSession, pipeline: Pipeline) -> None:
    outcome = Removal(spark, pipeline).run()
    assert outcome.remain_until is not None
    assert rows(spark, pipeline, MEMBERS).keys() == {BEN}
    assert ("name", "silver") in residues(pipeline)
    assert remove(spark, pipeline).remain_until is None
    assert residues(pipeline) == set()


@pytest.mark.long
def test_tables_with_columns_named_as_those_of_a_search_are_erased(spark: SparkSession, tmp_path: Path) -> None:
    names = ("request", "position", "op", "table", "key_hash", "topic", "offset", "place", "item")
    others = {name: f"{name} of somebody" for name in names}
    story = [
        table_event(MEMBERS, "c", 0, 10, ANNA, name=NAME, **others),
        table_event(MEMBERS, "c", 1, 11, BEN, name="Ben", **others),
        table_event(CLAIMS, "c", 0, 20, 99150, member_id=ANNA, text=TEXT, **others),
        table_event(CLAIMS, "u", 1, 21, 99150, member_id=ANNA, text="fire", **others),
        table_event(CLAIMS, "c", 2, 22, 61, member_id=BEN, text="theft", **others),
    ]
    pipeline = insured(tmp_path, tables=with_personal_ids())
    merge(spark, pipeline, tmp_path / "events", story)
    write_requests(spark, pipeline, {ANNA: cutoff(1, story)})
    assert remove(spark, pipeline).left is None
    assert (set(rows(spark, pipeline, MEMBERS)), set(rows(spark, pipeline, CLAIMS))) == ({BEN}, {61})
    assert residues(pipeline) == set()
    check_accounts_and_silver(spark, pipeline, tmp_path / "beside")
