"""Objects in S3-compatible storage: every version of each, and unfinished multipart uploads."""

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
from ingest.proof.scan.places import OpenedFile, PlaceEntry, Unreadable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_ATTEMPTS = 6
_IN_MEMORY = 32 << 20
_CHUNK = 4 << 20
_METADATA = ("Metadata", "ContentType", "ContentDisposition", "ContentEncoding", "CacheControl")
_FAILURES = (BotoCoreError, ClientError, HTTPClientError)


@dataclass(frozen=True)
class Bucket:
    """The objects below `uri`, such as `s3://bucket/prefix`. `client_options`: keyword arguments of `boto3.client`."""

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
    def location(self) -> tuple[str, str]:
        """Returns the bucket, and the key prefix with a trailing slash, or an empty one."""
        return bucket_and_prefix(self.uri)

    def entries(self) -> Iterator[PlaceEntry]:
        yield from self._versions()
        yield from self._unfinished()

    def _versions(self) -> Iterator[PlaceEntry]:
        bucket, prefix = self.location
        try:
            for page in self.client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix):
                for version in page.get("Versions", ()):
                    yield self._object(version["Key"], version.get("VersionId"))
                for marker in page.get("DeleteMarkers", ()):
                    yield PlaceEntry(self._display_name(marker["Key"], marker.get("VersionId")))
        except _FAILURES as failure:
            raise Unreadable(f"its object versions can't be listed ({_code(failure)})") from failure

    def _unfinished(self) -> Iterator[PlaceEntry]:
        bucket, prefix = self.location
        try:
            for page in self.client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix):
                for upload in page.get("Uploads", ()):
                    # S3 has no request that reads a part.
                    yield PlaceEntry(
                        self._display_name(upload["Key"], upload["UploadId"]),
                        note="an upload that was not finished: its parts can't be read, abort it and they are gone",
                    )
        except _FAILURES as failure:
            raise Unreadable(f"its unfinished uploads can't be listed ({_code(failure)})") from failure

    def _object(self, key: str, version: str | None) -> PlaceEntry:
        return PlaceEntry(self._display_name(key, version), lambda: self._open(key, version))

    def _display_name(self, key: str, version: str | None) -> str:
        below = key.removeprefix(self.location[1])
        return below if version in (None, "null") else f"{below} (version {version})"

    def _open(self, key: str, version: str | None) -> OpenedFile:
        request: dict[str, Any] = {"Bucket": self.location[0], "Key": key}
        if version is not None:
            request["VersionId"] = version
        # Large objects are spooled to an unnamed file.
        file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        try:
            response = self.client.get_object(**request)
            metadata: dict[str, Any] = {k: v for k, v in response.items() if k in _METADATA and v}
            for piece in response["Body"].iter_chunks(_CHUNK):
                file.write(piece)
            if response.get("TagCount"):
                metadata["Tags"] = self.client.get_object_tagging(**request)["TagSet"]
        except _FAILURES as failure:
            file.close()
            raise Unreadable(f"the store does not hand it out ({_code(failure)})") from failure
        file.seek(0)
        return OpenedFile(cast(BinaryIO, file), json.dumps(metadata, ensure_ascii=False).encode() if metadata else b"")


def _code(failure: Exception) -> str:
    if isinstance(failure, ClientError):
        return str(failure.response.get("Error", {}).get("Code", "")) or "ClientError"
    return type(failure).__name__
