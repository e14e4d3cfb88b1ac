"""An erasure reads only files that may contain its subject, remembers what it has searched, and misses nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.source_readers import SourceReader
from ingest.config import Pipeline
from ingest.delta.delta_table import Table
from ingest.erasure.erased_events import ErasedEvents
from ingest.erasure.places import BRONZE, TABLES
from ingest.erasure.removal import Removal, RemovalOutcome
from ingest.erasure.request import SubjectId, current_cutoff, plan_erasure, request_erasure
from ingest.erasure.subject_index import Span, SubjectIndex, merge_spans
from ingest.pipeline.composition import bronze_of
from ingest.testing import Event
from ingest.tuning import DEFAULT_TUNING
from tests.erasure import people
from tests.erasure.people import CLAIMS, MEMBERS, PHOTOS, TableEvent, insured
from tests.suppression.test_suppression import captured, merged, rows

pytestmark = pytest.mark.spark
ANNA, BEN, CARL = 481516, 481517, 481518
OTHERS = range(600, 640)
SHORT_SPANS = replace(DEFAULT_TUNING, subject_index_span_events=5)


def table_event(table: str, op: str, offset: int, lsn: int, key: int, **image: object) -> TableEvent:
    return TableEvent(table, Event(op, offset, lsn, key, image))  # type: ignore[arg-type]


HISTORY = [
    *(table_event(MEMBERS, "c", n, 10 + n, key, name="a name") for n, key in enumerate((ANNA, BEN, CARL))),
    *(table_event(MEMBERS, "c", 3 + n, 20 + n, key, name="another name") for n, key in enumerate(OTHERS)),
    table_event(CLAIMS, "c", 0, 100, 71, member_id=ANNA, text="t"),
    table_event(CLAIMS, "c", 1, 101, 72, member_id=BEN, text="t"),
    *(table_event(CLAIMS, "c", 2 + n, 110 + n, 900 + n, member_id=key, text="t") for n, key in enumerate(OTHERS)),
    table_event(PHOTOS, "c", 0, 200, 81, claim_id=71, text="p"),
    table_event(PHOTOS, "c", 1, 201, 82, claim_id=72, text="p"),
    table_event(CLAIMS, "d", 2 + len(OTHERS), 210, 71),
    TableEvent(CLAIMS, Event("null", 3 + len(OTHERS), 0, 71)),
]


class Watched:
    """Records the spans of batches that are indexed and those that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.indexed: list[Span] = []
        self.opened: list[Span] = []
        index, found = SubjectIndex._index, ErasedEvents._find_within

        def indexing(of: SubjectIndex, slices: object, span: Span, last: int) -> None:
            self.indexed.append(span)
            index(of, slices, span, last)  # type: ignore[arg-type]

        def opening(of: ErasedEvents, reader: SourceReader, span: Span) -> list[DataFrame]:
            self.opened.append(span)
            return found(of, reader, span)

        monkeypatch.setattr(SubjectIndex, "_index", indexing)
        monkeypatch.setattr(ErasedEvents, "_find_within", opening)

    def reset(self) -> None:
        self.indexed, self.opened = [], []


def erased(spark: SparkSession, pipeline: Pipeline, *members: int) -> RemovalOutcome:
    cutoff = current_cutoff(spark, pipeline, topics=False)
    planned = plan_erasure(spark, pipeline, [SubjectId("member", str(m)) for m in members], None, cutoff)
    if members:
        request_erasure(spark, pipeline, planned)
    return Removal(spark, pipeline).run()


def empty(spark: SparkSession, pipeline: Pipeline) -> set[tuple[str, int]]:
    """Returns topic and offset of the emptied events."""
    return {(row["topic"], row["offset"]) for row in bronze_of(spark, pipeline).emptied().collect()}


def at(table: str, *offsets: int) -> set[tuple[str, int]]:
    return {(people.topic(table), offset) for offset in offsets}


def read(spark: SparkSession, pipeline: Pipeline, folder: Path, story: Iterable[TableEvent]) -> None:
    merged(spark, pipeline, captured(spark, pipeline, folder, people.records([*story], 1), None, 5), 10)


@pytest.mark.long
def test_erasure_reads_only_batches_that_name_its_subject(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = insured(tmp_path).with_tuning(SHORT_SPANS)
    read(spark, pipeline, tmp_path / "events", HISTORY)
    batches = bronze_of(spark, pipeline).last_batch()
    assert batches > 15
    watched = Watched(monkeypatch)
    outcome = erased(spark, pipeline, ANNA)
    of_anna = at(MEMBERS, 0) | at(CLAIMS, 0, 2 + len(OTHERS), 3 + len(OTHERS)) | at(PHOTOS, 0)
    assert empty(spark, pipeline) == of_anna
    assert outcome.taken[BRONZE]["events"] == 5
    assert merge_spans(watched.indexed) == [(0, batches)]
    assert len(set(watched.opened)) < 7, "the batches of the subject, and one more by chance"

    watched.reset()
    touched = {*watched.indexed}
    outcome = erased(spark, pipeline, BEN)
    assert outcome.taken[BRONZE]["events"] == 3
    assert outcome.taken[TABLES]["rows"] == 3
    assert empty(spark, pipeline) == of_anna | at(MEMBERS, 1) | at(CLAIMS, 1) | at(PHOTOS, 1)
    assert len(watched.indexed) < 7, "only batches that the first erasure has changed"
    assert touched <= {*watched.indexed}
    assert len(set(watched.opened)) < 6
    assert {*rows(spark, pipeline, MEMBERS)} == {CARL, *OTHERS}

    watched.reset()
    assert erased(spark, pipeline).taken[BRONZE]["events"] == 0
    assert watched.opened == [], "no new events and no request"


@pytest.mark.long
def test_later_events_and_interrupted_searches_are_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = insured(tmp_path).with_tuning(SHORT_SPANS)
    read(spark, pipeline, tmp_path / "events", HISTORY)
    with monkeypatch.context() as killed:
        killed.setattr("ingest.lakehouse.bronze.Bronze.empty", None)
        with pytest.raises(TypeError):
            erased(spark, pipeline, ANNA)
    # Another event of the subject, and a photo of an unknown claim: captured and merged.
    read_on = [
        *HISTORY,
        table_event(CLAIMS, "c", 4 + len(OTHERS), 100, 71, member_id=ANNA, text="t"),
        table_event(PHOTOS, "c", 2, 202, 83, claim_id=73, text="p"),
    ]
    read(spark, pipeline, tmp_path / "again", read_on)
    # That claim belongs to the subject: only captured.
    captured_only = [
        *read_on,
        table_event(MEMBERS, "u", 3 + len(OTHERS), 10, ANNA, name="late"),
        table_event(CLAIMS, "c", 5 + len(OTHERS), 102, 73, member_id=ANNA, text="t"),
    ]
    captured(spark, pipeline, tmp_path / "last", people.records(captured_only, 1), None, 5)
    assert erased(spark, pipeline).taken[BRONZE]["events"] == 9
    of_anna = at(MEMBERS, 0, 3 + len(OTHERS)) | at(PHOTOS, 0, 2)
    assert empty(spark, pipeline) == of_anna | at(CLAIMS, 0, *(n + len(OTHERS) for n in (2, 3, 4, 5)))
    assert erased(spark, pipeline).taken[BRONZE]["events"] == 0


@pytest.mark.long
def test_index_holds_no_keys(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = insured(tmp_path).with_tuning(SHORT_SPANS)
    read(spark, pipeline, tmp_path / "events", HISTORY)
    erased(spark, pipeline, ANNA)
    index = Table(spark, pipeline.layout.subject_index).rows()
    kinds = {f.name: f.dataType.simpleString() for f in index.schema}
    assert kinds["digits"] == "int"
    assert index.where(F.col("digits") >= 1 << 28).count() == 0
    assert {"reader", "basis", "after_batch", "upto_batch", "key_version", "digits"} == {*kinds}
    texts = index.select("reader", "basis").distinct().collect()
    assert [row["reader"] for row in texts] == [pipeline.name]


@pytest.mark.long
def test_changed_settings_rebuild_the_index(spark: SparkSession, tmp_path: Path) -> None:
    """Photos are linked to claims now, so batches searched before are searched again for photos."""
    before = insured(tmp_path, tables={t: settings for t, settings in people.SETTINGS.items() if t != PHOTOS})
    read(spark, before, tmp_path / "events", HISTORY)
    assert erased(spark, before, ANNA).taken[BRONZE]["events"] == 4
    after = insured(tmp_path)
    assert erased(spark, after).taken[BRONZE]["events"] == 1
    assert at(PHOTOS, 0) <= empty(spark, after)
