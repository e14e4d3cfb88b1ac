"""The embedded S3 server stores objects for holders of its keys, on this machine only."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import psutil
import pytest
from botocore.exceptions import ClientError

from ingest.errors import Unreachable
from ingest.stack import S3, Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = pytest.mark.integration


def client(s3: S3, secret: str | None = None) -> S3Client:
    return boto3.client("s3", **s3.client_options | ({"aws_secret_access_key": secret} if secret else {}))


def test_object_survives_a_crash(s3: S3) -> None:
    client(s3).create_bucket(Bucket="kept")
    put = client(s3).put_object(Bucket="kept", Key="a/b=1/ü", Body=b"x" * 100_000, ChecksumAlgorithm="SHA256")
    s3.kill()
    assert not s3.status().healthy
    s3.start()
    got = client(s3).get_object(Bucket="kept", Key="a/b=1/ü", ChecksumMode="ENABLED")
    assert (got["Body"].read(), got["ChecksumSHA256"]) == (b"x" * 100_000, put["ChecksumSHA256"])


def test_conditional_put_does_not_replace_an_object(s3: S3) -> None:
    client(s3).create_bucket(Bucket="once")
    client(s3).put_object(Bucket="once", Key="k", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client(s3).put_object(Bucket="once", Key="k", Body=b"second", IfNoneMatch="*")
    assert client(s3).get_object(Bucket="once", Key="k")["Body"].read() == b"first"


def test_replaced_object_stays_as_a_version(s3: S3) -> None:
    client(s3).create_bucket(Bucket="versions")
    client(s3).put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
    for body in (b"old", b"new"):
        client(s3).put_object(Bucket="versions", Key="k", Body=body)
    new, old = client(s3).list_object_versions(Bucket="versions")["Versions"]
    client(s3).delete_object(Bucket="versions", Key="k", VersionId=old["VersionId"])
    (left,) = client(s3).list_object_versions(Bucket="versions")["Versions"]
    assert left["VersionId"] == new["VersionId"]


def test_wrong_secret_key_is_refused(s3: S3) -> None:
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        client(s3, secret="guessed").list_buckets()
    assert stat.S_IMODE((s3.folder / "identities.json").stat().st_mode) == 0o600
    assert s3.credentials.secret_key not in repr(s3.credentials)


def test_server_listens_only_on_localhost(s3: S3) -> None:
    assert s3.running is not None
    listening = [c.laddr for c in s3.running.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert {address.ip for address in listening} == {"127.0.0.1"}
    assert {address.port for address in listening} == set(s3.ports.values())


def test_external_server_is_checked(tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_S3_ENDPOINT", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.credentials.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.credentials.secret_key)
    with Stack(tmp_path / "mine", parts=("s3",)) as stack:
        assert stack.status()[0].state == "external"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "guessed")
    with pytest.raises(Unreachable, match="credentials") as refused, Stack(tmp_path / "other", parts=("s3",)):
        pass
    assert "guessed" not in str(refused.value)
