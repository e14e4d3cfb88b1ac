"""Fixtures of the archive's tests."""

from __future__ import annotations

import boto3
import pytest

from ingest.archive import ObjectStore
from ingest.stack import S3


@pytest.fixture
def store(s3: S3, request: pytest.FixtureRequest) -> ObjectStore:
    """Returns a store in a bucket of its own."""
    bucket = f"archive-{abs(hash(request.node.nodeid)) % 10**8}"
    boto3.client("s3", **s3.client_options).create_bucket(Bucket=bucket)
    return ObjectStore(f"s3://{bucket}/some/prefix", s3.client_options)
