"""An erasure in the archive on a real S3 server keeps offsets, and removes the contents from every object version."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ingest.archive import ArchiveErasure, Manifest, ManifestArchive, ObjectStore, erase_records
from ingest.archive.manifest import manifest_key, manifests, objects_folder
from ingest.archive.writing import write_objects
from ingest.changelog.envelope import CONTROL, ERASED, RECORD
from ingest.config import load
from ingest.erasure.archive_erasing import erase_from_archive
from ingest.errors import ChangelogUnusable, ConfigError, Contended, SourceRefused
from ingest.failures.conversion import to_ingest_error
from ingest.pipeline.archiving import Archiving
from ingest.sources.archive import ArchiveSource
from ingest.stack import S3
from tests.archive import connector_shop
from tests.archive.archived_shop import SHOP, archived, captured, events, from_file, overwrite_object, pipeline_file
from tests.archive.connector_objects import aiven, confluent

pytestmark = [pytest.mark.integration, pytest.mark.long]

Place = tuple[str, int, int]
ORDERS: Sequence[Place] = [("shop.orders", 0, n) for n in (1, 3, 4, 9)]
ITEMS: Sequence[Place] = [("shop.items", 1, 70), ("shop.items", 0, 2)]
NOTHING = ArchiveErasure(0, 0, 0, 0, 0, 0)


@pytest.fixture(params=["plain", "versioned"])
def store(s3: S3, request: pytest.FixtureRequest) -> ObjectStore:
    bucket = f"erasing-{abs(hash(request.node.name)) % 10**8}"
    client = boto3.client("s3", **s3.client_options)
    client.create_bucket(Bucket=bucket)
    if request.param == "versioned":
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    return ObjectStore(f"s3://{bucket}/some/prefix", s3.client_options)


only_plain = pytest.mark.parametrize("store", ["plain"], indirect=True)
only_versioned = pytest.mark.parametrize("store", ["versioned"], indirect=True)


@pytest.fixture
def archived_manifests(spark: SparkSession, tmp_path: Path, store: ObjectStore) -> list[Manifest]:
    return archived(spark, from_file(spark, tmp_path), store)


def erasure_requests(spark: SparkSession, places: Sequence[Place], request: str = "r-1") -> DataFrame:
    rows = [(*place, request) for place in places]
    return spark.createDataFrame(rows, "topic string, partition int, offset bigint, request string")


def read(spark: SparkSession, store: ObjectStore) -> dict[Place, Any]:
    archive = ManifestArchive(store, SHOP)
    rows = archive.records(spark, archive.objects()).select(*RECORD.names).collect()
    return {(r["topic"], r["partition"], r["offset"]): r for r in rows}


def is_intact(spark: SparkSession, store: ObjectStore) -> bool:
    archive = ManifestArchive(store, SHOP)
    return archive.damages(spark, archive.objects()) == []


def bodies(store: ObjectStore) -> Iterator[tuple[str, bytes]]:
    """Returns every version of every object in the bucket, raw and decoded."""
    for version in store.versions(""):
        assert not version.is_delete_marker
        place: Any = {"Bucket": store.bucket, "Key": f"some/prefix/{version.key}", "VersionId": version.id}
        body = store._client.get_object(**place)["Body"].read()
        yield version.key, body
        if version.key.endswith(".parquet"):
            yield version.key, str(pq.read_table(pa.BufferReader(body)).to_pylist()).encode()


def objects_holding(store: ObjectStore, text: str) -> list[str]:
    return [key for key, body in bodies(store) if text.encode() in body]


def listing(store: ObjectStore) -> list[Any]:
    return sorted((v.key, v.id) for v in store.versions(""))


def test_erased_records_are_gone_and_others_unchanged(
    spark: SparkSession, store: ObjectStore, archived_manifests: list[Manifest]
) -> None:
    before = read(spark, store)
    assert objects_holding(store, "no json either"), "the planted value is there"
    gone = [*ORDERS, *ITEMS]
    done = erase_records(spark, store, SHOP, erasure_requests(spark, gone))
    after = read(spark, store)
    assert after.keys() == before.keys()
    for place, record in before.items():
        if place in gone:
            header = [(ERASED, bytearray(b"r-1"))]
            assert after[place].asDict() | {"headers": [tuple(h) for h in after[place]["headers"]]} == (
                record.asDict() | {"headers": header, "key": None, "value": None}
            )
        else:
            assert after[place] == record
    assert is_intact(spark, store)
    assert objects_holding(store, "no json either") == []
    now = list(manifests(store, SHOP))
    assert [m.records for m in now] == [m.records for m in archived_manifests]
    kept = ("topic", "partition", "first_offset", "last_offset", "records", "first_written", "last_written")
    ranges = [[[getattr(o, name) for name in kept] for o in m.objects] for m in (*archived_manifests, *now)]
    assert ranges[: len(archived_manifests)] == ranges[len(archived_manifests) :]
    old, new = ({o.key: o for m in several for o in m.objects} for several in (archived_manifests, now))
    holding = [o for o in old.values() for t, p, n in gone if (t, p) == (o.topic, o.partition)]
    touched = {o.key for o in holding if any(o.first_offset <= n <= o.last_offset for t, p, n in gone if t == o.topic)}
    assert old.keys() - new.keys() == touched
    assert (done.objects, done.records) == (len(touched), len(gone))
    assert done.bytes == sum(new[key].size for key in new.keys() - old.keys())
    assert {v.key for v in store.versions("")} == set(new) | {manifest_key(SHOP, m.after_batch) for m in now}
    assert all(v.is_latest for v in store.versions("")), "no old version stays"
    assert done.versions >= len(touched)


def test_repeated_erasure_changes_nothing(
    spark: SparkSession, store: ObjectStore, archived_manifests: list[Manifest]
) -> None:
    del archived_manifests
    first = erase_records(spark, store, SHOP, erasure_requests(spark, [*ORDERS, ORDERS[0]]))
    assert first.records == len(ORDERS)
    before = listing(store)
    assert erase_records(spark, store, SHOP, erasure_requests(spark, ORDERS, "another")) == NOTHING
    assert (
        erase_records(spark, store, SHOP, erasure_requests(spark, [("shop.orders", 7, 1), ("no topic", 0, 1)]))
        == NOTHING
    )
    assert (
        erase_records(spark, store, SHOP, erasure_requests(spark, [("shop.items", 1, 8), ("shop.orders", 0, 10**9)]))
        == NOTHING
    )
    assert listing(store) == before
    more = erase_records(spark, store, SHOP, erasure_requests(spark, [*ORDERS, ("shop.orders", 0, 2)], "r-0"))
    assert more.records == 1
    requests = {place: bytes(r["headers"][0]["value"]) for place, r in read(spark, store).items() if r["headers"]}
    assert [requests[place] for place in [*ORDERS, ("shop.orders", 0, 2)]] == [b"r-1"] * 4 + [b"r-0"]


@only_plain
def test_empty_archive_has_nothing_to_erase(spark: SparkSession, store: ObjectStore) -> None:
    assert erase_records(spark, store, SHOP, erasure_requests(spark, ORDERS)) == NOTHING


@only_plain
def test_restore_gives_empty_records_without_effect(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, archived_manifests: list[Manifest]
) -> None:
    before = captured(spark, ArchiveSource(ManifestArchive(store, SHOP)), tmp_path / "before", 100)
    erase_records(spark, store, SHOP, erasure_requests(spark, [*ORDERS, *ITEMS]))
    after = captured(spark, ArchiveSource(ManifestArchive(store, SHOP)), tmp_path / "after", 100)
    assert after.captured().offsets == before.captured().offsets
    rows = {(r["topic"], r["partition"], r["offset"]): r for r in after.rows().collect()}
    assert len(rows) == sum(m.records for m in archived_manifests)
    for place in (*ORDERS, *ITEMS):
        found = rows[place]
        assert (found["op"], found["key"], found["value"], found["problem"]) == (CONTROL, None, None, None)
        assert found["source_table"] is None
    assert sum(r["op"] == CONTROL for r in rows.values()) == len(ORDERS) + len(ITEMS)


class Died(Exception):
    pass


@pytest.mark.parametrize("step", ["versions", "replace", "remove", "abort_uploads"])
def test_erasure_that_died_anywhere_is_repeated(
    spark: SparkSession,
    store: ObjectStore,
    archived_manifests: list[Manifest],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    coordinates = erasure_requests(spark, [*ORDERS, *ITEMS])

    def dies(*_: Any, **__: Any) -> Any:
        raise Died

    with monkeypatch.context() as patched, pytest.raises(Died):
        patched.setattr(ObjectStore, step, dies)
        erase_records(spark, store, SHOP, coordinates)
    assert is_intact(spark, store), "readers in between see a whole archive"
    again = erase_records(spark, store, SHOP, coordinates)
    assert (again.records > 0) == (step in ("versions", "replace"))
    assert objects_holding(store, "no json either") == []
    assert is_intact(spark, store)
    objects = {o.key for m in manifests(store, SHOP) for o in m.objects}
    assert {v.key for v in store.versions(objects_folder(SHOP))} == objects
    assert all(v.is_latest for v in store.versions(""))
    assert sum(r["key"] is None and r["value"] is None for r in read(spark, store).values()) == 6
    assert erase_records(spark, store, SHOP, coordinates) == NOTHING


def test_erasure_that_died_between_manifests_is_repeated(
    spark: SparkSession, store: ObjectStore, archived_manifests: list[Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(archived_manifests) > 1
    renew = ObjectStore.replace
    renewed: list[str] = []

    def once(self: ObjectStore, key: str, body: bytes, etag: str) -> None:
        if renewed:
            raise Died
        renewed.append(key)
        renew(self, key, body, etag)

    with monkeypatch.context() as patched, pytest.raises(Died):
        patched.setattr(ObjectStore, "replace", once)
        erase_records(spark, store, SHOP, erasure_requests(spark, [*ORDERS, *ITEMS]))
    erase_records(spark, store, SHOP, erasure_requests(spark, [*ORDERS, *ITEMS]))
    assert objects_holding(store, "no json either") == []
    assert is_intact(spark, store)
    assert all(v.is_latest for v in store.versions(""))


def test_concurrently_replaced_manifest_is_contended(
    spark: SparkSession, store: ObjectStore, archived_manifests: list[Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run erases more after this one has written its objects: no manifest may name an object that the other run
    removed."""
    look = ObjectStore.versions
    others: list[ArchiveErasure] = []

    def meanwhile(self: ObjectStore, below: str) -> Any:
        monkeypatch.setattr(ObjectStore, "versions", look)
        others.append(erase_records(spark, store, SHOP, erasure_requests(spark, [("shop.items", 0, 2)])))
        return look(self, below)

    monkeypatch.setattr(ObjectStore, "versions", meanwhile)
    with pytest.raises(Contended, match="was changed by another process since it was read"):
        erase_records(spark, store, SHOP, erasure_requests(spark, ORDERS))
    assert others[0].records == 1
    assert others[0].versions > 1, "it must not remove the other run's objects"
    assert is_intact(spark, store)
    done = erase_records(spark, store, SHOP, erasure_requests(spark, ORDERS))
    assert done.records == len(ORDERS)
    assert is_intact(spark, store)
    assert sum(m.records for m in manifests(store, SHOP)) == sum(m.records for m in archived_manifests)


@only_plain
def test_object_removed_by_another_run_is_not_the_new_one(
    spark: SparkSession, store: ObjectStore, archived_manifests: list[Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run died and left its object, the second is about to remove it, and the third writes the same
    object."""
    del archived_manifests
    coordinates = erasure_requests(spark, ORDERS[:1])

    def dies(*_: Any, **__: Any) -> Any:
        raise Died

    with monkeypatch.context() as patched, pytest.raises(Died):
        patched.setattr(ObjectStore, "replace", dies)
        erase_records(spark, store, SHOP, coordinates)
    remove = ObjectStore.remove
    third: list[ArchiveErasure] = []

    def late(self: ObjectStore, versions: Any) -> int:
        going = list(versions)
        if not third:
            monkeypatch.setattr(ObjectStore, "remove", remove)
            third.append(erase_records(spark, store, SHOP, coordinates))
        return remove(self, going)

    monkeypatch.setattr(ObjectStore, "remove", late)
    erase_records(spark, store, SHOP, erasure_requests(spark, []))
    assert third[0].records == 1
    assert is_intact(spark, store)
    assert erase_records(spark, store, SHOP, coordinates) == NOTHING


def test_objects_of_a_running_archive_run_stay(spark: SparkSession, tmp_path: Path, store: ObjectStore) -> None:
    bronze = from_file(spark, tmp_path)
    archiving = Archiving(spark, bronze, store, SHOP, 10)
    first = archiving.step()
    assert first is not None
    rest = bronze.between(first.upto_batch, bronze.last_batch())
    unnamed = write_objects(rest, 100, store, SHOP)
    # Objects of a run that died, whose records another run has archived since in other objects.
    left = write_objects(bronze.between(0, first.upto_batch).where("offset > 1"), 100, store, SHOP)
    done = erase_records(spark, store, SHOP, erasure_requests(spark, ORDERS[:1]))
    assert (done.records, done.unnamed) == (1, len(unnamed))
    names = set(store.keys(""))
    assert {o.key for o in unnamed} <= names
    assert not {o.key for o in left} & names
    while archiving.step() is not None:
        pass
    assert is_intact(spark, store)
    assert sum(m.records for m in manifests(store, SHOP)) == len(events())
    assert erase_records(spark, store, SHOP, erasure_requests(spark, ORDERS[:1])).unnamed == 0


def test_unfinished_upload_is_removed(
    spark: SparkSession, store: ObjectStore, archived_manifests: list[Manifest]
) -> None:
    own, other = archived_manifests[0].objects[0].key, "another/objects/x"
    for key in (own, other):
        place: Any = {"Bucket": store.bucket, "Key": f"some/prefix/{key}"}
        upload = store._client.create_multipart_upload(**place)["UploadId"]
        store._client.upload_part(**place, UploadId=upload, PartNumber=1, Body=b"no json either")
    assert erase_records(spark, store, SHOP, erasure_requests(spark, [])) == replace(NOTHING, uploads=1)
    left = store._client.list_multipart_uploads(Bucket=store.bucket)["Uploads"]
    assert [u["Key"] for u in left] == [f"some/prefix/{other}"]


@only_versioned
def test_deleted_versions_are_removed(
    spark: SparkSession, store: ObjectStore, archived_manifests: list[Manifest]
) -> None:
    """The objects have delete markers, so that only older versions hold values."""
    gone = replace(archived_manifests[0].objects[0])
    key = gone.key.replace(gone.sha256[:16], "0" * 16)
    overwrite_object(store, key, b"no json either")
    overwrite_object(store, key, None)
    assert [v.is_delete_marker for v in store.versions(key)].count(True) == 1
    assert erase_records(spark, store, SHOP, erasure_requests(spark, [])).versions == 3, (
        "two, and the manifest's old one"
    )
    assert list(store.versions(key)) == []
    assert is_intact(spark, store)


@only_plain
def test_damaged_object_stops_the_erasure_before_any_removal(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, archived_manifests: list[Manifest]
) -> None:
    hit = next(o for m in archived_manifests for o in m.objects if o.topic == "shop.orders")
    overwrite_object(store, hit.key, store.get(hit.key)[:-1] + b"?")
    before = {o.key for m in archived_manifests for o in m.objects}
    with pytest.raises((PySparkException, Py4JError)) as failed:
        erase_records(spark, store, SHOP, erasure_requests(spark, [*ORDERS, *ITEMS]))
    ingest_error = to_ingest_error(failed.value, load(str(pipeline_file(tmp_path, store))))
    assert isinstance(ingest_error, ChangelogUnusable)
    assert f"{hit.key} in the archive was altered" in ingest_error.problem
    assert before <= set(store.keys(""))
    assert list(manifests(store, SHOP)) == archived_manifests


def locked(s3: S3, name: str) -> ObjectStore:
    client = boto3.client("s3", **s3.client_options)
    client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    return ObjectStore(f"s3://{name}/some/prefix", s3.client_options)


@pytest.mark.parametrize("lock", ["retention", "hold"])
def test_locked_object_is_named_with_a_remedy(spark: SparkSession, tmp_path: Path, s3: S3, lock: str) -> None:
    store = locked(s3, f"locked-{lock}")
    archived(spark, from_file(spark, tmp_path), store)
    versions = list(store.versions(objects_folder(SHOP)))
    until = datetime.now(UTC) + timedelta(hours=1)
    for one in versions:
        place: Any = {"Bucket": store.bucket, "Key": f"some/prefix/{one.key}", "VersionId": one.id}
        if lock == "hold":
            store._client.put_object_legal_hold(**place, LegalHold={"Status": "ON"})
        else:
            store._client.put_object_retention(**place, Retention={"Mode": "GOVERNANCE", "RetainUntilDate": until})
    problem = "a legal hold locks it" if lock == "hold" else f"a governance retention locks it until {until:%Y-%m-%dT}"
    with pytest.raises(SourceRefused, match=problem) as refused:
        erase_records(spark, store, SHOP, erasure_requests(spark, ORDERS))
    assert (
        "then run the same command again" in refused.value.remedy
        or "run the same command again after that" in refused.value.remedy
    )
    assert is_intact(spark, store)
    if lock == "hold":
        for one in versions:
            place = {"Bucket": store.bucket, "Key": f"some/prefix/{one.key}", "VersionId": one.id}
            store._client.put_object_legal_hold(**place, LegalHold={"Status": "OFF"})
        assert erase_records(spark, store, SHOP, erasure_requests(spark, ORDERS)).records == 0
        assert all(v.is_latest for v in store.versions(""))


@only_plain
@pytest.mark.parametrize("layout", ["confluent", "aiven"])
def test_archive_of_a_connector_is_not_erased(
    spark: SparkSession, tmp_path: Path, s3: S3, store: ObjectStore, layout: str
) -> None:
    sunk = ObjectStore(f"s3://{store.bucket}/topics", s3.client_options)
    pipeline = connector_shop.pipeline(tmp_path, sunk, layout)
    assert erase_from_archive(spark, pipeline, erasure_requests(spark, ORDERS)) is None
    records = connector_shop.events(tombstones=False)
    connector_shop.stored(sunk, (aiven if layout == "aiven" else confluent)(records, 4))
    with pytest.raises(ConfigError, match=f"^3 objects in {sunk.uri} .*the sink connector of {layout}"):
        erase_from_archive(spark, pipeline, erasure_requests(spark, ORDERS))
    assert erase_from_archive(spark, pipeline, erasure_requests(spark, [("another", 0, 1)])) is None


@only_plain
def test_pipeline_without_an_archive_has_nothing_to_erase(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, archived_manifests: list[Manifest]
) -> None:
    del archived_manifests
    pipeline = load(str(pipeline_file(tmp_path, store)))
    assert (
        erase_from_archive(spark, pipeline.model_copy(update={"archive": None}), erasure_requests(spark, ORDERS))
        is None
    )
    done = erase_from_archive(spark, pipeline, erasure_requests(spark, ORDERS))
    assert done is not None
    assert done.records == len(ORDERS)


@only_plain
def test_erasure_writes_no_statistics(
    spark: SparkSession, store: ObjectStore, archived_manifests: list[Manifest]
) -> None:
    before = {o.key for m in archived_manifests for o in m.objects}
    erase_records(spark, store, SHOP, erasure_requests(spark, ORDERS))
    new = [o.key for m in manifests(store, SHOP) for o in m.objects if o.key not in before]
    assert new
    for key in new:
        footer = pq.read_metadata(io.BytesIO(store.get(key)))
        groups = [footer.row_group(g) for g in range(footer.num_row_groups)]
        assert {g.column(c).is_stats_set for g in groups for c in range(g.num_columns)} == {False}
        assert {g.column(c).compression for g in groups for c in range(g.num_columns)} == {"ZSTD"}
