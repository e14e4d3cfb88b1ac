"""The scanner reads every version of objects on a real S3 server, and lists what it can't read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from typer.testing import CliRunner

from ingest.cli import app
from ingest.errors import IngestError, ProofFailed
from ingest.proof.canaries import check_canaries
from ingest.proof.scan import Bucket, scan_places
from ingest.proof.scan.report import PlaceScan
from ingest.stack import S3
from tests.proof.subject import EMAIL, NEEDLES, unread

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def client(s3: S3) -> S3Client:
    made = boto3.client("s3", **s3.client_options)
    made.create_bucket(Bucket="scanned")
    made.put_bucket_versioning(Bucket="scanned", VersioningConfiguration={"Status": "Enabled"})
    made.create_bucket(Bucket="plain")
    return made


@pytest.fixture
def place(s3: S3, client: S3Client, request: pytest.FixtureRequest) -> Bucket:
    del client
    return Bucket(f"s3://scanned/{request.node.name}", s3.client_options)


def put(client: S3Client, place: Bucket, name: str, body: bytes, **more: Any) -> None:
    bucket, prefix = place.location
    client.put_object(Bucket=bucket, Key=prefix + name, Body=body, **more)


def scan(place: Bucket) -> PlaceScan:
    (found,) = scan_places([place], NEEDLES)
    return found


def test_object_is_read_and_decoded(client: S3Client, place: Bucket) -> None:
    put(client, place, "a.json.gz", gzip.compress(EMAIL.encode()))
    put(client, place, "clean.json", b"{}")
    put(client, place, "large", b" " * (40 << 20) + EMAIL.encode())
    found = scan(place)
    assert {f.file.split(" ")[0] for f in found.findings.values()} == {"a.json.gz", "large"}
    assert {k.kind: k.files for k in found.read()} == {"gzip": 1, "text": 2, "name": 3}
    assert unread(found) == []


def test_all_versions_of_objects_are_read(client: S3Client, place: Bucket) -> None:
    put(client, place, "replaced", EMAIL.encode())
    put(client, place, "replaced", b"{}")
    put(client, place, "deleted", EMAIL.encode())
    bucket, prefix = place.location
    client.delete_object(Bucket=bucket, Key=f"{prefix}deleted")
    found = scan(place)
    assert {f.file.split(" ")[0] for f in found.findings.values()} == {"replaced", "deleted"}
    for one in client.list_object_versions(Bucket=bucket, Prefix=prefix)["Versions"]:
        client.delete_object(Bucket=bucket, Key=one["Key"], VersionId=one["VersionId"])
    assert scan(place).findings == {}


def test_metadata_tags_and_names_are_read(client: S3Client, place: Bucket) -> None:
    shown = EMAIL.encode().hex()
    put(client, place, "described", b"{}", Metadata={"about": shown})
    put(client, place, "tagged", b"{}", Tagging=f"about={shown}")
    put(client, place, f"by/{shown}", b"{}")
    found = {(f.file.split(" ")[0], f.part) for f in scan(place).findings.values()}
    assert ("described", "the store's metadata") in found
    assert ("by/‹email›", "its name") in found
    assert ("tagged", "the store's metadata") in found


def test_unfinished_upload_is_listed(client: S3Client, place: Bucket) -> None:
    bucket, prefix = place.location
    upload = client.create_multipart_upload(Bucket=bucket, Key=f"{prefix}half")["UploadId"]
    part = EMAIL.encode() * 200_000
    client.upload_part(Bucket=bucket, Key=f"{prefix}half", UploadId=upload, PartNumber=1, Body=part)
    ((file, why),) = unread(scan(place))
    assert file.startswith("half")
    assert "an upload that was not finished" in why
    client.abort_multipart_upload(Bucket=bucket, Key=f"{prefix}half", UploadId=upload)
    assert unread(scan(place)) == []


def test_absent_bucket_is_listed(s3: S3) -> None:
    ((file, why),) = unread(scan(Bucket("s3://absent", s3.client_options)))
    assert (file, why) == ("", "its object versions can't be listed (NoSuchBucket)")


@pytest.mark.parametrize("bucket", ["scanned", "plain"])
def test_canaries_in_a_bucket_are_found_and_removed(bucket: str, s3: S3, client: S3Client) -> None:
    place = Bucket(f"s3://{bucket}/canaries", s3.client_options)
    seen = [s for s in check_canaries([place]) if s.place == place.name]
    assert {s.format: s.missed for s in seen if s.missed} == {}
    assert ("older versions" in {s.format for s in seen}) == (bucket == "scanned")
    listed = client.list_object_versions(Bucket=bucket, Prefix="canaries/")
    assert listed.get("Versions", []) == []
    assert listed.get("DeleteMarkers", []) == []


@pytest.mark.long
def test_bucket_without_write_access_proves_nothing(s3: S3, client: S3Client) -> None:
    del client
    guessed = s3.client_options | {"aws_secret_access_key": "guessed"}
    for place in (Bucket("s3://absent", s3.client_options), Bucket("s3://plain", guessed)):
        with pytest.raises(ProofFailed, match="canaries can't be written"):
            check_canaries([place])
    away = s3.client_options | {"endpoint_url": "http://127.0.0.1:9"}
    with pytest.raises(IngestError) as refused:
        check_canaries([Bucket("s3://absent", away)])
    assert refused.value.retried


def test_archive_of_a_pipeline_is_scanned(client: S3Client, place: Bucket, s3: S3, tmp_path: Path) -> None:
    put(client, place, "shop/objects/a.json", EMAIL.encode())
    (tmp_path / "lakehouse").mkdir()
    said = {
        "source": {"kafka": {"bootstrap.servers": "broker:9092"}, "topics": ["shop.orders"]},
        "lakehouse": str(tmp_path / "lakehouse"),
        "archive": {"uri": place.uri, "s3": dict(s3.client_options)},
    }
    (tmp_path / "shop.yaml").write_text(json.dumps(said))
    needles = json.dumps({"email": EMAIL})
    shown = CliRunner().invoke(
        app, ["scan", str(tmp_path / "shop.yaml"), "--needle-file", "-", "--json"], input=needles
    )
    assert shown.exit_code == 1, shown.output
    assert {f["place"] for f in json.loads(shown.stdout)["findings"]} == {place.uri}
