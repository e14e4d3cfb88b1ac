"""The archive on a real S3 server holds every captured record once, and every damage is detected."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from typer.testing import CliRunner

from ingest.archive import Manifest, ManifestArchive, ObjectStore, writing
from ingest.archive.manifest import manifest_key, manifests, manifests_folder, objects_folder
from ingest.backfill.backfill import Backfill, BackfillRequest
from ingest.backfill.digests import table_digests
from ingest.backfill.source_readers import source_readers
from ingest.batches.rules import Rules
from ingest.changelog.envelope import RECORD
from ingest.changelog.point import Point
from ingest.cli import app, progress_bars
from ingest.cli.pipeline import archive as archive_command
from ingest.config import load
from ingest.erasure.archive_erasing import require_archive_read
from ingest.errors import ChangelogUnusable, ConfigError, Contended, SourceRefused, Unreachable
from ingest.failures.conversion import to_ingest_error
from ingest.lakehouse.bronze import Bronze
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from ingest.pipeline.archiving import Archiving
from ingest.sources.archive import ArchiveSource
from ingest.sources.files import FileSource, lines
from tests.archive.archived_shop import (
    SHOP,
    archived,
    captured,
    events,
    from_file,
    import_archive,
    names,
    overwrite_object,
    pipeline_file,
    silver,
)
from tests.changelogs import write

pytestmark = pytest.mark.integration


def rows(frame: DataFrame) -> list[Any]:
    return sorted(frame.select(*RECORD.names).collect(), key=lambda r: (r.topic, r.partition, r.offset))


@pytest.mark.long
def test_archive_holds_the_captured_records(spark: SparkSession, tmp_path: Path, store: ObjectStore) -> None:
    bronze = from_file(spark, tmp_path)
    found = archived(spark, bronze, store)
    assert len(found) > 1
    assert sum(m.records for m in found) == len(events())
    assert list(manifests(store, SHOP)) == found
    again = captured(spark, ArchiveSource(ManifestArchive(store, SHOP)), tmp_path / "again", 12)
    assert rows(again.rows()) == rows(bronze.rows())
    assert again.captured().offsets == bronze.captured().offsets


def test_silver_from_the_archive_equals_silver_from_the_stream(
    spark: SparkSession, tmp_path: Path, store: ObjectStore
) -> None:
    bronze = from_file(spark, tmp_path, batch=100)
    archived(spark, bronze, store)
    again = captured(spark, ArchiveSource(ManifestArchive(store, SHOP)), tmp_path / "again", 100)
    digests = []
    for folder, source in (("lakehouse", bronze), ("again", again)):
        layout = Lakehouse(str(tmp_path / folder))
        merge = Merge(spark, SHOP, layout, Rules(), source)
        while merge.step():
            pass
        digests.append(table_digests(spark, layout, SHOP))
    assert digests[0].keys() == {"public.items", "public.orders"}
    assert digests[0] == digests[1]


@pytest.mark.long
def test_backfill_from_the_archive_fills_a_later_lakehouse(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_command, "running", lambda *_: nullcontext(spark))
    archived(spark, from_file(spark, tmp_path, batch=100), store)
    folder = tmp_path / "whole"
    restore = ["archive", "restore", str(pipeline_file(folder, store)), "--json"]
    assert CliRunner().invoke(app, restore).exit_code == 0
    whole = silver(spark, folder)
    assert whole.keys() == {"public.items", "public.orders"}
    late = tmp_path / "late"
    file = pipeline_file(late, store)
    began = FileSource(list(lines([write(tmp_path / "end", events()[16:], None) / "events.jsonl"])))
    bronze = captured(spark, began, late / "lakehouse", 100)
    merge = Merge(spark, SHOP, Lakehouse(str(late / "lakehouse")), Rules(), bronze)
    merge.step()
    assert silver(spark, late) != whole
    refused = CliRunner().invoke(app, ["archive", "restore", str(file)])
    assert "bronze was not lost" in str(refused.exception)
    late_shop = load(str(file), {})
    with pytest.raises(ConfigError, match="partition 0, that no table has read"):
        require_archive_read(spark, late_shop, [bronze])
    backfill = Backfill(spark, late_shop, BackfillRequest("archive"))
    while not backfill.done:
        backfill.step()
    assert silver(spark, late) == whole
    require_archive_read(
        spark, late_shop, [reader.bronze(spark, Rules()) for reader in source_readers(spark, late_shop)]
    )
    window = BackfillRequest(
        "archive", Point.parse("1970-01-01T00:00:01.005Z"), Point.parse("1970-01-01T00:00:01.008Z")
    )
    short = Backfill(spark, load(str(file), {}), window)
    assert sum(a.read for a in short.step().accounts) == 3


def test_repeated_run_adds_nothing(spark: SparkSession, tmp_path: Path, store: ObjectStore) -> None:
    bronze = from_file(spark, tmp_path)
    archived(spark, bronze, store)
    before = names(store)
    assert archived(spark, bronze, store) == []
    assert names(store) == before


@pytest.mark.long
def test_run_that_died_before_its_manifest_is_repeated(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    def dies(manifest: Manifest) -> str:
        raise Died

    bronze = from_file(spark, tmp_path)
    with monkeypatch.context() as patched, pytest.raises(Died):
        patched.setattr(Manifest, "to_json", dies)
        archived(spark, bronze, store)
    left_behind = names(store)
    assert left_behind, "objects that no manifest names"
    assert ArchiveSource(ManifestArchive(store, SHOP)).pending({}, 100) is None
    found = archived(spark, bronze, store)
    assert sum(m.records for m in found) == len(events())
    assert set(left_behind) <= set(names(store))
    assert len(names(store)) == len(found) + sum(len(m.objects) for m in found), "no record is stored twice"


@pytest.mark.long
def test_two_runs_at_once_write_one_manifest(spark: SparkSession, tmp_path: Path, store: ObjectStore) -> None:
    bronze = from_file(spark, tmp_path)
    one, other = (Archiving(spark, bronze, store, SHOP) for _ in range(2))
    other._through_batch = 0  # It has read the manifests before the first one wrote.
    assert one.step() is not None
    with pytest.raises(Contended, match="another run archives Shop 1"):
        other.step()
    assert len(list(manifests(store, SHOP))) == 1


@pytest.mark.long
def test_topic_partition_is_split_into_objects(spark: SparkSession, tmp_path: Path, store: ObjectStore) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 3)
    try:
        bronze = from_file(spark, tmp_path, batch=100)
        found = writing.write_objects(bronze.rows(), 100, store, SHOP, object_bytes=1)
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


def read_again(spark: SparkSession, store: ObjectStore, folder: Path) -> Bronze:
    return captured(spark, ArchiveSource(ManifestArchive(store, SHOP)), folder, 100)


def read_as_they_are(spark: SparkSession, store: ObjectStore, folder: Path) -> Bronze:
    return import_archive(spark, store, folder, 100)


in_both_ways = pytest.mark.parametrize("reads", [read_again, read_as_they_are])


@pytest.mark.long
@in_both_ways
@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (lambda body: None, "is missing"),
        (lambda body: body[:-7], "is truncated"),
        (lambda body: body[:9] + bytes([body[9] ^ 1]) + body[10:], "was altered"),
    ],
    ids=["missing", "truncated", "altered"],
)
def test_damaged_object_is_detected(
    spark: SparkSession,
    tmp_path: Path,
    store: ObjectStore,
    whole: Sequence[Manifest],
    reads: Callable[..., object],
    harm: Any,
    problem: str,
) -> None:
    objects = [o for m in whole for o in m.objects]
    assert ManifestArchive(store, SHOP).damages(spark, objects) == []
    hit = objects[1]
    overwrite_object(store, hit.key, harm(store.get(hit.key)))
    (found,) = ManifestArchive(store, SHOP).damages(spark, objects)
    assert problem in found.what
    assert (found.key, found.events) == (hit.key, hit.description)
    with pytest.raises((PySparkException, Py4JError)) as failed:
        reads(spark, store, tmp_path / "again")
    ingest_error = to_ingest_error(failed.value, load(str(pipeline_file(tmp_path, store))))
    assert isinstance(ingest_error, ChangelogUnusable)
    assert (
        hit.key in ingest_error.problem,
        problem in ingest_error.problem,
        hit.description in ingest_error.problem,
    ) == (
        True,
        True,
        True,
    )
    assert ingest_error.remedy == "restore the object from a version or a copy of the bucket"
    assert Bronze(spark, Lakehouse(str(tmp_path / "again")).bronze(SHOP)).captured().batch == 0


@pytest.mark.long
@in_both_ways
@pytest.mark.parametrize(
    ("lie", "problem"),
    [
        (lambda o: {"records": o.records - 1}, "does not hold the offsets that its manifest tells of"),
        (lambda o: {"last_offset": o.last_offset + 1}, "does not hold the offsets that its manifest tells of"),
        (lambda o: {"first_offset": o.first_offset + 1}, "does not hold the offsets that its manifest tells of"),
        (lambda o: {"partition": 9}, "holds another topic partition than its manifest tells of"),
        (lambda o: {"sha256": "0" * 64}, "was altered: its hash is another one"),
        (lambda o: {"size": o.size + 1}, "is truncated"),
    ],
    ids=["count", "last offset", "first offset", "partition", "hash", "size"],
)
def test_forged_manifest_is_detected(
    spark: SparkSession,
    tmp_path: Path,
    store: ObjectStore,
    whole: Sequence[Manifest],
    reads: Callable[..., object],
    lie: Any,
    problem: str,
) -> None:
    """The manifest's own hash is correct: a forger would have updated it."""
    first, *others = whole[0].objects
    lying = replace(first, **lie(first))
    body = replace(whole[0], objects=(lying, *others)).to_json().encode()
    overwrite_object(store, manifest_key(SHOP, whole[0].after_batch), body)
    archive = ManifestArchive(store, SHOP)
    (found,) = archive.damages(spark, archive.objects())
    assert (found.key, problem in found.what, found.events) == (first.key, True, lying.description)
    with pytest.raises((PySparkException, Py4JError), match=f"{first.key} in the archive") as failed:
        reads(spark, store, tmp_path / "again")
    assert problem in str(failed.value)
    assert Bronze(spark, Lakehouse(str(tmp_path / "again")).bronze(SHOP)).captured().batch == 0


@pytest.mark.long
def test_manifest_with_a_repeated_object_is_refused(store: ObjectStore, whole: Sequence[Manifest]) -> None:
    first = whole[0].objects[0]
    body = replace(whole[0], objects=(*whole[0].objects, first)).to_json().encode()
    overwrite_object(store, manifest_key(SHOP, whole[0].after_batch), body)
    with pytest.raises(ChangelogUnusable, match=f"names {first.key} again: {first.description}"):
        ArchiveSource(ManifestArchive(store, SHOP)).pending({}, 100)


@pytest.mark.long
def test_changed_or_missing_manifest_is_refused(store: ObjectStore, whole: Sequence[Manifest]) -> None:
    key = manifest_key(SHOP, whole[0].after_batch)
    text = store.get(key)
    document = json.loads(text)
    document["objects"] = document["objects"][:-1]
    overwrite_object(store, key, json.dumps(document).encode())
    with pytest.raises(ChangelogUnusable, match="was changed after it was written"):
        ArchiveSource(ManifestArchive(store, SHOP)).pending({}, 100)
    overwrite_object(store, key, b"{")
    with pytest.raises(ChangelogUnusable, match="is no manifest"):
        ArchiveSource(ManifestArchive(store, SHOP)).pending({}, 100)
    overwrite_object(store, key, None)
    with pytest.raises(ChangelogUnusable, match=f"no manifest of capture batches 1 to {whole[0].upto_batch}"):
        ArchiveSource(ManifestArchive(store, SHOP)).pending({}, 100)
    overwrite_object(store, key, text)
    assert ArchiveSource(ManifestArchive(store, SHOP)).pending({}, 100) is not None


def test_object_names_are_in_the_archive_layout(store: ObjectStore, whole: Sequence[Manifest]) -> None:
    for name in names(store):
        assert name.startswith((manifests_folder(SHOP), objects_folder(SHOP)))
        assert name.isascii()
        assert " " not in name


@pytest.mark.long
def test_refused_or_unreachable_store_is_reported(store: ObjectStore) -> None:
    guessed = ObjectStore(store.uri, {**store.client_options, "aws_secret_access_key": "guessed"})
    with pytest.raises(SourceRefused, match="SignatureDoesNotMatch") as refused:
        list(guessed.keys(""))
    assert "guessed" not in f"{refused.value} {guessed!r}"
    gone = ObjectStore(store.uri, {**store.client_options, "endpoint_url": "http://127.0.0.1:9"})
    with pytest.raises(Unreachable, match="would not read"):
        gone.get("x")
    with pytest.raises(SourceRefused, match="NoSuchBucket"):
        list(ObjectStore("s3://no-such-bucket-here", store.client_options).keys(""))
    with pytest.raises(ConfigError, match="an endpoint_url that is no URL"):
        ObjectStore(store.uri, {**store.client_options, "endpoint_url": "nowhere"}).get("x")


def test_commands_archive_and_verify(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bronze = from_file(spark, tmp_path)
    file = pipeline_file(tmp_path, store)
    monkeypatch.setattr(archive_command, "running", lambda *_: nullcontext(spark))

    def run_command(command: str, code: int = 0) -> dict[str, Any]:
        result = CliRunner().invoke(app, ["archive", command, str(file), "--json"])
        assert result.exit_code == code, result.output
        assert store.client_options["aws_secret_access_key"] not in result.output
        found: dict[str, Any] = json.loads(result.output)
        return found

    first = run_command("run")
    assert (first["records"], first["upto_batch"]) == (len(events()), bronze.captured().batch)
    assert run_command("run")["records"] == 0
    assert run_command("verify")["damaged"] == []
    (one, *_) = (o for m in manifests(store, SHOP) for o in m.objects)
    overwrite_object(store, one.key, None)
    (damaged,) = run_command("verify", code=1)["damaged"]
    assert damaged == {"key": one.key, "what": "is missing", "events": one.description}


@pytest.mark.long
def test_terminal_shows_the_progress_of_run_and_verify(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_file(spark, tmp_path)
    file = str(pipeline_file(tmp_path, store))
    monkeypatch.setattr(archive_command, "running", lambda *_: nullcontext(spark))
    terminal = StringIO()
    with monkeypatch.context() as patched:
        watched = Console(file=terminal, force_terminal=True, no_color=True, width=80)
        patched.setattr(progress_bars, "plain_console", lambda **_: watched)
        assert CliRunner().invoke(app, ["archive", "run", file]).exit_code == 0
        assert CliRunner().invoke(app, ["archive", "verify", file]).exit_code == 0
    objects = sum(len(m.objects) for m in manifests(store, SHOP))
    for shown in (f"records [^\n]* {len(events())}/{len(events())} ", f"objects [^\n]* {objects}/{objects} "):
        assert re.search(shown, terminal.getvalue()), terminal.getvalue()
    quiet = CliRunner().invoke(app, ["archive", "verify", file])
    assert (quiet.exit_code, quiet.stderr) == (0, "")
