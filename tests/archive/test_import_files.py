"""Archived objects are imported as bronze data files without being read: bronze and its statistics are the same."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.archive import Manifest, ManifestArchive, ObjectStore, erase_records
from ingest.archive.manifest import manifest_key, manifests
from ingest.archive.manifest_archive import fetch_object
from ingest.backfill.backfill import Backfill, BackfillRequest
from ingest.backfill.proving import prove
from ingest.backfill.restoring import restore
from ingest.batches.group_stats import Group, groups_by_slice
from ingest.batches.rules import Rules
from ingest.changelog.envelope import BATCH, CAPTURED, RECORD
from ingest.changelog.envelope import events as read_as_events
from ingest.changelog.point import Point
from ingest.config import Pipeline, load
from ingest.evolution.inferred.inference import inferred_columns
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import Bronze, CaptureState
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from ingest.pipeline.archiving import archiving_of
from ingest.pipeline.composition import Progress, bronze_of
from ingest.sources.archive import ArchiveSource
from ingest.values.columns import Column
from tests import shop as history
from tests.archive.archived_shop import (
    SHOP,
    archived,
    captured,
    events,
    from_file,
    import_archive,
    overwrite_object,
    pipeline_file,
)
from tests.archive.archived_shop import silver as silver_in

pytestmark = [pytest.mark.integration, pytest.mark.long]


class Stop:
    """An event that is set before turn `turns`."""

    def __init__(self, turns: int) -> None:
        self._left = turns

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


def pipeline(folder: Path, store: ObjectStore, **more: Any) -> Pipeline:
    return load(str(pipeline_file(folder, store, **more)), {})


def restored(spark: SparkSession, made: Pipeline, *turns: int) -> list[Progress]:
    """Restores in steps: stops after each of these numbers of turns, then runs to the end."""
    steps: list[Progress] = []
    for most in (*turns, 1000):
        restore(spark, made, Stop(most), steps.append)  # type: ignore[arg-type]
    return steps


def rows(frame: DataFrame) -> list[Any]:
    return sorted(frame.select(*CAPTURED.names).collect(), key=lambda r: (r.topic, r.partition, r.offset))


def test_restored_bronze_equals_the_lost_one(spark: SparkSession, tmp_path: Path, store: ObjectStore) -> None:
    lost = from_file(spark, tmp_path, batch=3)
    found = archived(spark, lost, store)
    assert len(found) > 1
    bronze = import_archive(spark, store, tmp_path / "again" / "lakehouse", 10)
    assert rows(bronze.rows()) == rows(lost.rows())
    assert bronze.captured() == lost.captured()
    last = bronze.last_batch()
    assert [bronze.count_between(n, last) >= lost.count_between(n, last) for n in range(last)] == [True] * last
    files = {hashlib.sha256(f.read_bytes()).hexdigest() for f in Path(bronze.folder).glob("*.parquet")}
    assert files == {o.sha256 for m in found for o in m.objects}, "no file was rewritten"


def test_restored_silver_equals_the_lost_one(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after stops in between, and with captured batches that are not merged yet."""
    archived(spark, from_file(spark, tmp_path, batch=3), store)
    slow = tmp_path / "slow"
    bronze = captured(spark, ArchiveSource(ManifestArchive(store, SHOP)), slow / "lakehouse", 100)
    Merge(spark, SHOP, load(str(pipeline_file(slow, store)), {}).layout, Rules(), bronze).step()
    monkeypatch.setattr(ArchiveSource, "read", None)
    for turns in ((), (1,), (0, 2, 1)):
        again = tmp_path / f"again {turns}"
        restored(spark, pipeline(again, store, batch={"max_events": 9}), *turns)
        assert silver_in(spark, again) == silver_in(spark, slow), turns


def test_imported_batches_are_not_counted_again(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived(spark, from_file(spark, tmp_path, batch=3), store)
    monkeypatch.setattr("ingest.loop.slices.groups_by_slice", None)
    steps = restored(spark, pipeline(tmp_path / "again", store))
    assert sum(a.read for s in steps for a in s.accounts) == len(events())


def test_import_that_dies_before_the_commit_leaves_only_files(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = from_file(spark, tmp_path, batch=3)
    archived(spark, lost, store)
    made = pipeline(tmp_path / "again", store)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Bronze, "import_files", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        restored(spark, made)
    assert list(Path(bronze_of(spark, made).folder).glob("*.parquet"))
    assert bronze_of(spark, made).captured() == CaptureState()
    restored(spark, made)
    assert rows(bronze_of(spark, made).rows()) == rows(lost.rows())


def test_changed_naming_parses_the_records_again(spark: SparkSession, tmp_path: Path, store: ObjectStore) -> None:
    archived(spark, from_file(spark, tmp_path, batch=3), store)
    source = {
        "kafka": {"bootstrap.servers": "127.0.0.1:9"},
        "topics": ["shop.items"],
        "topic_tables": {"shop.items": "my.own"},
    }
    restored(spark, pipeline(tmp_path / "again", store, source=source))
    assert silver_in(spark, tmp_path / "again").keys() == {"my.own", "public.orders"}


def test_archive_of_the_first_format_is_read(spark: SparkSession, tmp_path: Path, store: ObjectStore) -> None:
    """Also after an erasure, and with later manifests of the current format."""
    lost = from_file(spark, tmp_path, batch=3)
    found = archived(spark, lost, store)
    for manifest in found[:2]:
        rewrite_in_first_format(store, manifest)
    made = pipeline(tmp_path / "again", store, batch={"max_events": 9})
    restored(spark, made)
    names = [*RECORD.names, "source_table", "op", "position"]
    again = bronze_of(spark, made).rows().select(*names)
    assert sorted(again.collect(), key=str) == sorted(lost.rows().select(*names).collect(), key=str)
    orders = [(o.topic, o.partition, o.first_offset, "r-1") for o in found[0].objects[:1]]
    request = "topic string, partition int, offset bigint, request string"
    assert erase_records(spark, store, SHOP, spark.createDataFrame(orders, request)).records == 1
    archive = ManifestArchive(store, SHOP)
    assert archive.damages(spark, archive.objects()) == []
    assert archive.records(spark, archive.objects()).where("value is null").count() == 2


def rewrite_in_first_format(store: ObjectStore, manifest: Manifest) -> None:
    """Rewrites the archive as the first version did: objects with records only, and a manifest without parts."""
    objects = []
    for one in manifest.objects:
        body, _ = fetch_object(store, one)
        assert body is not None
        records = io.BytesIO()
        pq.write_table(pq.read_table(io.BytesIO(body)).select(RECORD.names), records)
        now = records.getvalue()
        digest = hashlib.sha256(now).hexdigest()
        key = f"{one.key.rsplit('-', 1)[0]}-{digest[:16]}.parquet"
        assert store.put_once(key, now)
        objects.append(replace(one, key=key, size=len(now), sha256=digest))
    document: dict[str, Any] = {"version": 1, **asdict(replace(manifest, objects=tuple(objects)))}
    del document["read_as"], document["parts"]
    whole = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    key = manifest_key(SHOP, manifest.after_batch)
    overwrite_object(store, key, json.dumps({**document, "sha256": whole}).encode())


def test_emptied_record_is_read_as_empty(spark: SparkSession, tmp_path: Path, store: ObjectStore) -> None:
    archived(spark, from_file(spark, tmp_path, batch=3), store, most=6)
    places = [("shop.orders", 0, 1, "r-1"), ("shop.orders", 0, 9, "r-2"), ("shop.items", 1, 70, "r-1")]
    request = "topic string, partition int, offset bigint, request string"
    assert erase_records(spark, store, SHOP, spark.createDataFrame(places, request)).records == 3
    changed = [not m.parts for m in manifests(store, SHOP)]
    assert any(changed)
    assert not all(changed), "statistics of untouched batches are kept"
    bronze = import_archive(spark, store, tmp_path / "again" / "lakehouse", 10)
    anew = read_as_events(bronze.rows().select(*RECORD.names, BATCH), Rules().naming, (BATCH,))
    assert rows(bronze.rows()) == rows(anew)
    assert bronze.emptied().count() == 3
    slow = tmp_path / "slow"
    source = captured(spark, ArchiveSource(ManifestArchive(store, SHOP)), slow / "lakehouse", 100)
    Merge(spark, SHOP, pipeline(slow, store).layout, Rules(), source).step()
    # Statistics of untouched batches are kept, those of others are computed again.
    for folder in ("again", "whole"):
        restored(spark, pipeline(tmp_path / folder, store))
        assert silver_in(spark, tmp_path / folder) == silver_in(spark, slow)


def test_statistics_of_parts_equal_those_of_the_whole(spark: SparkSession, tmp_path: Path, store: ObjectStore) -> None:
    """The statistics hold no values, only names of columns."""
    lost = from_file(spark, tmp_path, batch=2)
    found = archived(spark, lost, store, most=5)
    bronze = import_archive(spark, store, tmp_path / "again" / "lakehouse", 10)
    merge = Merge(spark, SHOP, pipeline(tmp_path / "again", store).layout, Rules(), bronze)
    last = bronze.last_batch()
    assert merge._slices.end(0, last) == last, "consecutive parts are one slice"
    together = merge._slices.group_stats(0, last, last)
    whole = groups_by_slice(lost.rows(), F.lit(0))[0]
    assert [_typed(g) for g in whole] == [_typed(g) for g in together]
    assert "ä" not in json.dumps([m.parts for m in found], ensure_ascii=False)


def _typed(group: Group) -> tuple[Group, tuple[Column, ...]]:
    """Returns the group with inferred columns in place of the kinds of values."""
    return replace(group, kinds=None, goes_back=None), inferred_columns(group.kinds)


@pytest.mark.parametrize("dies", [False, True])
def test_window_of_positions_from_the_archive_equals_bronze(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """Null tombstones have the position of the preceding change, inside or outside of the window."""
    begin, end = Point.parse("0/BB8"), Point.parse("0/1F40")
    archive = {"uri": store.uri, "s3": dict(store.client_options)}
    found = {}
    for name, source in (("here", "bronze"), ("there", "archive")):
        folder = tmp_path / name
        if source == "bronze":
            nothing = history.pipeline(folder, archive=archive, source={"include_tables": "none"})
            bronze = history.captured(spark, nothing, folder, history.events())
            history.merged(spark, nothing, bronze)
            while archiving_of(spark, nothing).step() is not None:
                pass
        shop = history.pipeline(folder, archive=archive)
        request = BackfillRequest(source, begin, end)  # type: ignore[arg-type]
        if dies:
            with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
                patched.setattr(Accounts, "add", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
                _run_to_the_end(Backfill(spark, shop, request))
        backfill = _run_to_the_end(Backfill(spark, shop, request))
        counted = Accounts(spark, shop.layout.accounts, backfill.run.writer).rows()
        sums = counted.groupBy("table").sum("read", "applied", "superseded").collect()
        found[name] = (history.digests(spark, shop), sorted(map(tuple, sums)))
    # Backfills skip keyless tables.
    proofs = [p for p in prove(spark, shop, shop.layout.scratch("proof")) if p.table != "public.notes"]
    assert [p.equal for p in proofs] == [True, True]
    assert found["there"] == found["here"]
    assert found["here"][0]


def _run_to_the_end(backfill: Backfill) -> Backfill:
    while not backfill.done:
        backfill.step()
    return backfill


def test_batch_numbers_may_have_gaps(spark: SparkSession, tmp_path: Path) -> None:
    """As in a lakehouse whose archive lacks the first batches."""
    bronze = Bronze(spark, str(tmp_path / "bronze"))
    lost = from_file(spark, tmp_path, batch=8)
    for number, batch in enumerate(batches(lost), start=1):
        bronze.append(batch, CaptureState(number * 5000, {}))
    merge = Merge(spark, SHOP, Lakehouse(str(tmp_path / "far")), Rules(), bronze)
    read = 0
    while accounts := merge.step():
        read += sum(a.read for a in accounts)
    assert read == len(events())


def batches(bronze: Bronze) -> Iterator[DataFrame]:
    for number in range(1, bronze.last_batch() + 1):
        yield bronze.between(number - 1, number).drop(BATCH)
