"""Events of a keyless table count once per delivery, whether the stream or a backfill captured them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill import backfill
from ingest.backfill.backfill import Backfill, BackfillRequest
from ingest.backfill.proving import Proof, prove
from ingest.backfill.rebuilding import Rebuild
from ingest.config import Pipeline
from ingest.loop.capture import Capture
from ingest.pipeline.composition import bronze_of, rules_of
from ingest.sources.contract import OffsetRange, Offsets
from ingest.sources.files import FileSource, lines
from tests.changelogs import Record, Topic, write
from tests.shop import merged, pipeline

pytestmark = pytest.mark.spark
NOTES, LOG, ORDERS = "public.notes", "public.log", "public.orders"
SETTINGS = {"tables": {LOG: {"append_only": True}}}


class Delivered(FileSource):
    """A source of records whose topics have these ids."""

    def __init__(self, file: Path, topic_ids: dict[str, str]) -> None:
        super().__init__(list(lines([file])))
        self._ids = topic_ids

    def pending(self, captured: Offsets, limit: int) -> OffsetRange | None:
        span = super().pending(captured, limit)
        return None if span is None else replace(span, topic_ids=self._ids)


def changelog() -> list[Record]:
    """Returns events of a keyless table, an append-only one, and one with a key. Some notes are delivered again."""
    records: list[Record] = []
    notes = Topic("shop.notes", ("public", "notes"), key=(), records=records)
    log = Topic("shop.log", ("public", "log"), key=(), records=records)
    orders = Topic("shop.orders", records=records)
    for lsn in (10, 11):
        notes.change("c", lsn, {"v": "twice the same"})
    notes.change("c", 12, {"v": "b"})
    notes.change("d", 13, before={"v": "b"})
    for lsn in (11, 12, 13):
        notes.change("c" if lsn < 13 else "d", lsn, *note(lsn))
    notes.change("c", 20, {"v": "later"})
    for lsn in (30, 31, 32):
        log.change("c", lsn, {"v": "line"})
        orders.change("c", lsn, {"id": lsn, "v": "x"})
    return records


def note(lsn: int) -> tuple[Any, Any]:
    after, before = {11: "twice the same", 12: "b"}.get(lsn), {13: "b"}.get(lsn)
    return after and {"v": after}, before and {"v": before}


class Shop:
    def __init__(self, spark: SparkSession, folder: Path, patched: pytest.MonkeyPatch) -> None:
        self._spark, self._folder, self._patched = spark, folder, patched
        self.pipeline: Pipeline = pipeline(folder, **SETTINGS)
        self._files = 0

    def _source(self, records: Sequence[Record], life: str) -> Delivered:
        self._files += 1
        folder = write(self._folder / f"events {self._files}", list(records), None)
        return Delivered(folder / "events.jsonl", {r["topic"]: f"{life} {r['topic']}" for r in records if life})

    def stream(self, records: Sequence[Record], life: str = "first") -> None:
        bronze = bronze_of(self._spark, self.pipeline)
        capture = Capture(self._spark, self._source(records, life), bronze, rules_of(self.pipeline).naming, 4)
        while capture.step():
            pass
        merged(self._spark, self.pipeline, bronze)

    def backfill(self, records: Sequence[Record], life: str = "first") -> None:
        source = self._source(records, life)
        self._patched.setattr(backfill, "_source", lambda *_: source)
        work = Backfill(self._spark, self.pipeline, BackfillRequest("kafka"))
        while not work.done:
            work.step()

    def rebuild(self) -> None:
        Rebuild(self._spark, self.pipeline).run()

    def rows(self, table: str) -> list[str]:
        silver = self._spark.read.format("delta").load(self.pipeline.layout.silver("shop", table))
        return sorted(r["v"] for r in silver.collect())

    def proof(self, table: str) -> Proof:
        name = f"proof {self._files} {len(list(self._folder.rglob('*')))}"
        return next(
            p for p in prove(self._spark, self.pipeline, self.pipeline.layout.scratch(name)) if p.table == table
        )


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(spark, tmp_path, monkeypatch)


RIGHT = {NOTES: ["later", "twice the same", "twice the same"], LOG: ["line"] * 3, ORDERS: ["x"] * 3}


@pytest.mark.long
def test_records_captured_by_several_writers_count_once(shop: Shop) -> None:
    shop.stream(changelog())
    shop.backfill(changelog())
    shop.backfill(changelog(), life="")
    assert {t: shop.rows(t) for t in RIGHT} == RIGHT
    shop.rebuild()
    assert {t: shop.rows(t) for t in RIGHT} == RIGHT
    proof = shop.proof(NOTES)
    assert proof.equal
    assert proof.deliveries == sum(r["topic"] == "shop.notes" and r["value"]["op"] == "c" for r in changelog())


@pytest.mark.long
def test_rebuild_counts_records_before_the_stream_but_not_later_ones(shop: Shop) -> None:
    """The stream begins at offset 2, the beginning of the topic at that time, and has reached offset 4."""
    notes = [r for r in changelog() if r["topic"] == "shop.notes"]
    shop.stream(notes[2:5])
    shop.backfill(notes)
    shop.backfill(notes)
    shop.rebuild()
    assert shop.rows(NOTES) == ["twice the same"] * 2, "offsets 0 to 4; the last is a repetition"
    assert shop.proof(NOTES).equal
    shop.stream(notes[2:])
    assert shop.rows(NOTES) == RIGHT[NOTES]
    assert shop.proof(NOTES).equal


@pytest.mark.long
def test_recreated_topic_delivers_other_records(shop: Shop) -> None:
    anew = Topic("shop.log", ("public", "log"), key=())
    anew.change("c", 30, {"v": "line"})
    anew.change("c", 90, {"v": "of another life"})
    shop.stream([r for r in changelog() if r["topic"] == "shop.log"])
    for _ in range(2):
        shop.backfill(anew.records, life="second")
    shop.rebuild()
    assert shop.rows(LOG) == ["line"] * 4 + ["of another life"]
    assert shop.proof(LOG).deliveries == 5


@pytest.mark.long
def test_prove_detects_rows_that_count_twice(shop: Shop, spark: SparkSession) -> None:
    shop.stream(changelog())
    path = shop.pipeline.layout.silver("shop", LOG)
    spark.read.format("delta").load(path).write.format("delta").mode("append").save(path)
    proof = shop.proof(LOG)
    assert not proof.equal
    assert proof.counted_twice
    assert (proof.live and proof.live.rows, proof.deliveries) == (6, 3)
