"""A prefix of its own in a bucket, for canaries alone: made for the time of a scan, and gone after it."""

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
_LATER = "see that the store runs and can be reached, then run the same again"


class Aviary:
    """`bucket` is the place of these objects. All of their versions are removed at the end."""

    def __init__(self, beside: Bucket) -> None:
        self._uri = f"{beside.uri.rstrip('/')}/.canaries-{secrets.token_hex(8)}"
        self.bucket = Bucket(self._uri, beside.client_options)

    def __enter__(self) -> Self:
        try:
            # Some stores make a bucket for whoever writes into one that is not there.
            self.bucket.client.head_bucket(Bucket=self.bucket.where[0])
        except (BotoCoreError, ClientError) as failure:
            self._refuse("written", failure)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        name, prefix = self.bucket.where
        try:
            pages = self.bucket.client.get_paginator("list_object_versions").paginate(Bucket=name, Prefix=prefix)
            for page in list(pages):
                for one in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
                    which: dict[str, Any] = {"Bucket": name, "Key": one["Key"], "VersionId": one["VersionId"]}
                    self.bucket.client.delete_object(**which)
        except (BotoCoreError, ClientError) as failure:
            self._refuse("removed", failure)

    def put(self, name: str, body: bytes, described: Mapping[str, str] | None = None) -> None:
        bucket, prefix = self.bucket.where
        try:
            self.bucket.client.put_object(Bucket=bucket, Key=prefix + name, Body=body, Metadata=dict(described or {}))
        except (BotoCoreError, ClientError) as failure:
            self._refuse("written", failure)

    def replaced(self, name: str, body: bytes) -> bool:
        """Puts an object and another in its place. False, and nothing is done, where the bucket keeps no versions."""
        try:
            kept = self.bucket.client.get_bucket_versioning(Bucket=self.bucket.where[0]).get("Status") == "Enabled"
        except (BotoCoreError, ClientError) as failure:
            self._refuse("written", failure)
        if kept:
            self.put(name, body)
            self.put(name, b"")
        return kept

    def _refuse(self, done: str, failure: Exception) -> NoReturn:
        if isinstance(failure, ClientError):
            code = failure.response.get("Error", {}).get("Code", "")
            if failure.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= _SERVER_ERROR:
                raise Unreachable(f"canaries can't be {done} at {self._uri} ({code})", _LATER) from failure
            raise ProofFailed(f"canaries can't be {done} at {self._uri} ({code})", _ALLOW) from failure
        raise Unreachable(f"canaries can't be {done} at {self._uri} ({type(failure).__name__})", _LATER) from failure
