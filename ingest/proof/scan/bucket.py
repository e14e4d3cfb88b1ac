"""Objects in S3-compatible storage: every version of each, and what is left of uploads that nobody finished."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from ingest.names import bucket_and_prefix
from ingest.proof.scan.places import Entry, Opened, Unreadable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_ATTEMPTS = 6
_IN_MEMORY = 32 << 20
_PIECE = 4 << 20
_DESCRIBED = ("Metadata", "ContentType", "ContentDisposition", "ContentEncoding", "CacheControl")
_FAILURES = (BotoCoreError, ClientError, HTTPClientError)


@dataclass(frozen=True)
class Bucket:
    """The objects below `uri`, such as `s3://bucket/prefix`. `client_options`: of `boto3.client`, by its own names."""

    uri: str
    client_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.uri

    @cached_property
    def client(self) -> S3Client:
        retries = Config(retries={"mode": "standard", "max_attempts": _ATTEMPTS}, connect_timeout=10, read_timeout=60)
        return boto3.client("s3", config=retries, **self.client_options)

    @cached_property
    def where(self) -> tuple[str, str]:
        """The bucket, and the prefix of all keys with a slash at its end, or nothing."""
        return bucket_and_prefix(self.uri)

    def entries(self) -> Iterator[Entry]:
        yield from self._versions()
        yield from self._unfinished()

    def _versions(self) -> Iterator[Entry]:
        bucket, prefix = self.where
        try:
            for page in self.client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix):
                for one in page.get("Versions", ()):
                    yield self._object(one["Key"], one.get("VersionId"))
                for marker in page.get("DeleteMarkers", ()):
                    yield Entry(self._shown(marker["Key"], marker.get("VersionId")))
        except _FAILURES as failure:
            raise Unreadable(f"its object versions can't be listed ({_code(failure)})") from failure

    def _unfinished(self) -> Iterator[Entry]:
        bucket, prefix = self.where
        try:
            for page in self.client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix):
                for one in page.get("Uploads", ()):
                    # S3 has no request by which a part could be read.
                    yield Entry(
                        self._shown(one["Key"], one["UploadId"]),
                        note="an upload that was not finished: its parts can't be read, abort it and they are gone",
                    )
        except _FAILURES as failure:
            raise Unreadable(f"its unfinished uploads can't be listed ({_code(failure)})") from failure

    def _object(self, key: str, version: str | None) -> Entry:
        return Entry(self._shown(key, version), lambda: self._opened(key, version))

    def _shown(self, key: str, version: str | None) -> str:
        below = key.removeprefix(self.where[1])
        return below if version in (None, "null") else f"{below} (version {version})"

    def _opened(self, key: str, version: str | None) -> Opened:
        which: dict[str, Any] = {"Bucket": self.where[0], "Key": key}
        if version is not None:
            which["VersionId"] = version
        # A large one lies in a file without a name while it is read.
        file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        try:
            answer = self.client.get_object(**which)
            beside: dict[str, Any] = {k: v for k, v in answer.items() if k in _DESCRIBED and v}
            for piece in answer["Body"].iter_chunks(_PIECE):
                file.write(piece)
            if answer.get("TagCount"):
                beside["Tags"] = self.client.get_object_tagging(**which)["TagSet"]
        except _FAILURES as failure:
            file.close()
            raise Unreadable(f"the store does not hand it out ({_code(failure)})") from failure
        file.seek(0)
        return Opened(cast(BinaryIO, file), json.dumps(beside, ensure_ascii=False).encode() if beside else b"")


def _code(failure: Exception) -> str:
    if isinstance(failure, ClientError):
        return str(failure.response.get("Error", {}).get("Code", "")) or "ClientError"
    return type(failure).__name__
