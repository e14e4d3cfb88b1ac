"""The archive on a real S3 server: all that was captured, once, and whatever happens to it is seen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from ingest.archive import Manifest, ObjectStore, writing
from ingest.archive.manifest import manifest_key, manifests, manifests_folder, objects_folder
from ingest.archive.reading import damages
from ingest.changelog.envelope import RECORD
from ingest.cli import app
from ingest.cli import archive as archive_command
from ingest.config import load
from ingest.errors import ChangelogUnusable, Contended, SourceRefused, Unreachable
from ingest.names import Lakehouse
from ingest.quality.digest import digest_of
from ingest.run.archiving import Archiving
from ingest.run.capture import Capture
from ingest.run.failures import explained
from ingest.run.merge import Merge
from ingest.run.rules import Rules
from ingest.sources.archive import ArchiveSource
from ingest.sources.contract import Source
from ingest.sources.files import FileSource, lines
from ingest.stack import S3
from ingest.tables.bronze import Bronze
from tests.replay.changelogs import Record, Topic, write

pytestmark = pytest.mark.integration
SHOP = "Shop 1"


def events() -> list[Record]:
    """Two tables; one of their topics has two partitions, between which offsets jump."""
    records: list[Record] = []
    orders = Topic("shop.orders", ("public", "orders"), records=records)
    for i in range(12):
        orders.change("c", 10 + i, {"id": i, "v": "ä" * i}, timestamp=1000 + i)
    orders.change("d", 40, before={"id": 3}, timestamp=1040)
    orders.change("u", 50, {"id": 4, "v": "new"}, timestamp=1050)
    items = Topic("shop.items", ("public", "items"), records=records)
    for i in range(6):
        items.change("c", 100 + i, {"id": i, "v": None}, timestamp=1100 + i)
    records.append({"topic": "shop.items", "partition": 1, "offset": 7, "key_bytes": "no json", "value": None})
    records.append(
        {
            "topic": "shop.items",
            "partition": 1,
            "offset": 70,
            "timestamp": 5,
            "headers": [{"key": "h", "value": "x"}, {"key": "n", "value": None}],
            "key": None,
            "value_bytes": "no json either",
        }
    )
    return records


@pytest.fixture
def store(s3: S3, request: pytest.FixtureRequest) -> ObjectStore:
    options = {
        "endpoint_url": s3.endpoint,
        "region_name": s3.region,
        "aws_access_key_id": s3.credentials.access_key,
        "aws_secret_access_key": s3.credentials.secret_key,
    }
    bucket = f"archive-{abs(hash(request.node.name)) % 10**8}"
    boto3.client("s3", **options).create_bucket(Bucket=bucket)
    return ObjectStore(f"s3://{bucket}/some/prefix", options)


def captured(spark: SparkSession, source: Source, path: Path, batch: int) -> Bronze:
    bronze = Bronze(spark, Lakehouse(str(path)).bronze(SHOP))
    capture = Capture(spark, source, bronze, Rules().naming, batch)
    while capture.step():
        pass
    return bronze


def from_file(spark: SparkSession, tmp_path: Path, batch: int = 8) -> Bronze:
    folder = write(tmp_path / "events", events(), None)
    return captured(spark, FileSource(list(lines([folder / "events.jsonl"]))), tmp_path / "lakehouse", batch)


def archived(spark: SparkSession, bronze: Bronze, store: ObjectStore, most: int = 10) -> list[Manifest]:
    archiving = Archiving(spark, bronze, store, SHOP, most)
    found = []
    while (manifest := archiving.step()) is not None:
        found.append(manifest)
    return found


def pipeline_file(tmp_path: Path, store: ObjectStore) -> Path:
    written = {
        "name": SHOP,
        "source": {"kafka": {"bootstrap.servers": "127.0.0.1:9"}, "topics": ["shop.orders"]},
        "lakehouse": str(tmp_path / "lakehouse"),
        "archive": {"uri": store.uri, "s3": dict(store.client_options)},
    }
    file = tmp_path / "shop.yaml"
    file.write_text(json.dumps(written), encoding="utf-8")
    return file


def rows(frame: DataFrame) -> list[Any]:
    return sorted(frame.select(*RECORD.names).collect(), key=lambda r: (r.topic, r.partition, r.offset))


def names(store: ObjectStore) -> list[str]:
    return list(store.keys(""))


def test_what_is_read_from_the_archive_is_what_was_captured(
    spark: SparkSession, tmp_path: Path, store: ObjectStore
) -> None:
    bronze = from_file(spark, tmp_path)
    found = archived(spark, bronze, store)
    assert len(found) > 1
    assert sum(m.records for m in found) == len(events())
    assert list(manifests(store, SHOP)) == found
    again = captured(spark, ArchiveSource(store, SHOP), tmp_path / "again", 12)
    assert rows(again.rows()) == rows(bronze.rows())
    assert again.captured().offsets == bronze.captured().offsets


def test_silver_out_of_the_archive_is_silver_out_of_the_stream(
    spark: SparkSession, tmp_path: Path, store: ObjectStore
) -> None:
    bronze = from_file(spark, tmp_path, batch=100)
    archived(spark, bronze, store)
    again = captured(spark, ArchiveSource(store, SHOP), tmp_path / "again", 100)
    digests = []
    for folder, source in (("lakehouse", bronze), ("again", again)):
        layout = Lakehouse(str(tmp_path / folder))
        merge = Merge(spark, SHOP, layout, Rules(), source)
        while merge.step():
            pass
        tables = {e.shape.table: e for e in merge.tables.entries}
        types = {t: {c.name: c.type for c in e.shape.columns} for t, e in tables.items()}
        digests.append({t: digest_of(spark.read.format("delta").load(tables[t].path), types[t]) for t in tables})
    assert digests[0].keys() == {"public.items", "public.orders"}
    assert digests[0] == digests[1]


def test_a_run_that_is_repeated_adds_nothing(spark: SparkSession, tmp_path: Path, store: ObjectStore) -> None:
    bronze = from_file(spark, tmp_path)
    archived(spark, bronze, store)
    before = names(store)
    assert archived(spark, bronze, store) == []
    assert names(store) == before


def test_a_run_that_died_before_its_manifest_is_repeated(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    def dies(manifest: Manifest) -> str:
        raise Died

    bronze = from_file(spark, tmp_path)
    with monkeypatch.context() as patched, pytest.raises(Died):
        patched.setattr(Manifest, "text", dies)
        archived(spark, bronze, store)
    left_behind = names(store)
    assert left_behind, "objects of which nobody knows yet"
    assert ArchiveSource(store, SHOP).pending({}, 100) is None
    found = archived(spark, bronze, store)
    assert sum(m.records for m in found) == len(events())
    assert set(left_behind) <= set(names(store))
    assert len(names(store)) == len(found) + sum(len(m.objects) for m in found), "nothing is there twice"


def test_two_runs_at_once_write_one_manifest(spark: SparkSession, tmp_path: Path, store: ObjectStore) -> None:
    bronze = from_file(spark, tmp_path)
    one, other = (Archiving(spark, bronze, store, SHOP) for _ in range(2))
    other._upto = 0  # It has looked before the first one wrote.
    assert one.step() is not None
    with pytest.raises(Contended, match="another run archives Shop 1"):
        other.step()
    assert len(list(manifests(store, SHOP))) == 1


def test_a_topic_partition_is_cut_into_objects(spark: SparkSession, tmp_path: Path, store: ObjectStore) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 3)
    try:
        bronze = from_file(spark, tmp_path, batch=100)
        found = writing.written(bronze.rows().select(*RECORD.names), 100, store, SHOP, object_bytes=1)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    orders = [o for o in found if o.topic == "shop.orders"]
    assert len(orders) > 2
    ends = [(o.first_offset, o.last_offset) for o in orders]
    assert ends == sorted(ends)
    assert all(one[1] < two[0] for one, two in pairwise(ends))


@pytest.fixture
def whole(spark: SparkSession, tmp_path: Path, store: ObjectStore) -> Sequence[Manifest]:
    return archived(spark, from_file(spark, tmp_path), store)


def overwritten(store: ObjectStore, key: str, body: bytes | None) -> None:
    place = {"Bucket": store.bucket, "Key": f"some/prefix/{key}"}
    if body is None:
        store._client.delete_object(**place)
    else:
        store._client.put_object(**place, Body=body)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda body: None, "is missing"),
        (lambda body: body[:-7], "is truncated"),
        (lambda body: body[:9] + bytes([body[9] ^ 1]) + body[10:], "was altered"),
    ],
    ids=["missing", "truncated", "altered"],
)
def test_an_object_that_is_harmed_is_found_and_never_read_as_less(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, whole: Sequence[Manifest], harm: Any, said: str
) -> None:
    objects = [o for m in whole for o in m.objects]
    assert damages(spark, store, objects) == []
    hit = objects[1]
    overwritten(store, hit.key, harm(store.get(hit.key)))
    (found,) = damages(spark, store, objects)
    assert said in found.what
    assert (found.key, found.events) == (hit.key, hit.told)
    with pytest.raises((PySparkException, Py4JError)) as failed:
        captured(spark, ArchiveSource(store, SHOP), tmp_path / "again", 100)
    told = explained(failed.value, load(str(pipeline_file(tmp_path, store))))
    assert isinstance(told, ChangelogUnusable)
    assert (hit.key in told.problem, said in told.problem, hit.told in told.problem) == (True, True, True)
    assert told.remedy == "restore the object from a version or a copy of the bucket"
    assert Bronze(spark, Lakehouse(str(tmp_path / "again")).bronze(SHOP)).captured().batch == 0


def test_a_manifest_that_lies_is_found(spark: SparkSession, store: ObjectStore, whole: Sequence[Manifest]) -> None:
    objects = list(whole[0].objects)
    lying = replace(objects[0], records=objects[0].records - 1)
    (found,) = damages(spark, store, [lying, *objects[1:]])
    assert "does not hold the offsets" in found.what


def test_a_manifest_that_was_changed_or_is_missing_stops_the_reading(
    store: ObjectStore, whole: Sequence[Manifest]
) -> None:
    key = manifest_key(SHOP, whole[0].after_batch)
    text = store.get(key)
    said = json.loads(text)
    said["objects"] = said["objects"][:-1]
    overwritten(store, key, json.dumps(said).encode())
    with pytest.raises(ChangelogUnusable, match="was changed after it was written"):
        ArchiveSource(store, SHOP).pending({}, 100)
    overwritten(store, key, b"{")
    with pytest.raises(ChangelogUnusable, match="is no manifest"):
        ArchiveSource(store, SHOP).pending({}, 100)
    overwritten(store, key, None)
    with pytest.raises(ChangelogUnusable, match=f"no manifest of capture batches 1 to {whole[0].upto_batch}"):
        ArchiveSource(store, SHOP).pending({}, 100)
    overwritten(store, key, text)
    assert ArchiveSource(store, SHOP).pending({}, 100) is not None


def test_names_in_the_store_are_ours(store: ObjectStore, whole: Sequence[Manifest]) -> None:
    for name in names(store):
        assert name.startswith((manifests_folder(SHOP), objects_folder(SHOP)))
        assert name.isascii()
        assert " " not in name


def test_a_store_that_refuses_or_is_gone_says_so(store: ObjectStore) -> None:
    guessed = ObjectStore(store.uri, {**store.client_options, "aws_secret_access_key": "guessed"})
    with pytest.raises(SourceRefused, match="SignatureDoesNotMatch") as refused:
        list(guessed.keys(""))
    assert "guessed" not in f"{refused.value} {guessed!r}"
    gone = ObjectStore(store.uri, {**store.client_options, "endpoint_url": "http://127.0.0.1:9"})
    with pytest.raises(Unreachable, match="would not read"):
        gone.get("x")
    with pytest.raises(SourceRefused, match="NoSuchBucket"):
        list(ObjectStore("s3://no-such-bucket-here", store.client_options).keys(""))


def test_the_commands_archive_and_verify(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bronze = from_file(spark, tmp_path)
    file = pipeline_file(tmp_path, store)
    monkeypatch.setattr(archive_command, "running", lambda *_: nullcontext(spark))

    def said(command: str, code: int = 0) -> dict[str, Any]:
        result = CliRunner().invoke(app, ["archive", command, str(file), "--json"])
        assert result.exit_code == code, result.output
        assert store.client_options["aws_secret_access_key"] not in result.output
        found: dict[str, Any] = json.loads(result.output)
        return found

    first = said("run")
    assert (first["records"], first["upto_batch"]) == (len(events()), bronze.captured().batch)
    assert said("run")["records"] == 0
    assert said("verify")["damaged"] == []
    (one, *_) = (o for m in manifests(store, SHOP) for o in m.objects)
    overwritten(store, one.key, None)
    (damaged,) = said("verify", code=1)["damaged"]
    assert damaged == {"key": one.key, "what": "is missing", "events": one.told}
