"""A prefix of its own in a scanned bucket for canary objects, removed after the scan."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NoReturn, Self

from botocore.exceptions import BotoCoreError, ClientError

from ingest.errors import ProofFailed, Unreachable
from ingest.proof.scan import Bucket

_ALLOW = "let the credentials of the scan write, list and delete below this prefix, where it puts objects of its own"
_SERVER_ERROR = 500
_TRY_AGAIN = "see that the store runs and can be reached, then run the same command again"


class CanaryBucket:
    """`bucket` is the place of the canary objects. All versions of them are deleted on exit."""

    def __init__(self, scanned: Bucket) -> None:
        self._uri = f"{scanned.uri.rstrip('/')}/.canaries-{secrets.token_hex(8)}"
        self.bucket = Bucket(self._uri, scanned.client_options)

    def __enter__(self) -> Self:
        try:
            # Some stores create a missing bucket on the first write.
            self.bucket.client.head_bucket(Bucket=self.bucket.location[0])
        except (BotoCoreError, ClientError) as failure:
            self._refuse("written", failure)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        name, prefix = self.bucket.location
        try:
            pages = self.bucket.client.get_paginator("list_object_versions").paginate(Bucket=name, Prefix=prefix)
            for page in list(pages):
                for version in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
                    request: dict[str, Any] = {"Bucket": name, "Key": version["Key"], "VersionId": version["VersionId"]}
                    self.bucket.client.delete_object(**request)
        except (BotoCoreError, ClientError) as failure:
            self._refuse("removed", failure)

    def put(self, name: str, body: bytes, metadata: Mapping[str, str] | None = None) -> None:
        bucket, prefix = self.bucket.location
        try:
            self.bucket.client.put_object(Bucket=bucket, Key=prefix + name, Body=body, Metadata=dict(metadata or {}))
        except (BotoCoreError, ClientError) as failure:
            self._refuse("written", failure)

    def put_two_versions(self, name: str, body: bytes) -> bool:
        """Writes an object and overwrites it by an empty one. Returns False and does nothing if the bucket keeps no
        versions."""
        try:
            is_versioned = (
                self.bucket.client.get_bucket_versioning(Bucket=self.bucket.location[0]).get("Status") == "Enabled"
            )
        except (BotoCoreError, ClientError) as failure:
            self._refuse("written", failure)
        if is_versioned:
            self.put(name, body)
            self.put(name, b"")
        return is_versioned

    def _refuse(self, action: str, failure: Exception) -> NoReturn:
        if isinstance(failure, ClientError):
            code = failure.response.get("Error", {}).get("Code", "")
            if failure.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= _SERVER_ERROR:
                raise Unreachable(f"canaries can't be {action} at {self._uri} ({code})", _TRY_AGAIN) from failure
            raise ProofFailed(f"canaries can't be {action} at {self._uri} ({code})", _ALLOW) from failure
        raise Unreachable(
            f"canaries can't be {action} at {self._uri} ({type(failure).__name__})", _TRY_AGAIN
        ) from failure
