"""Objects in S3-compatible storage: written once and whole, or not at all."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ingest.errors import ConfigError, SourceRefused, Unreachable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_ABSENT = ("404", "NoSuchKey", "NotFound")
_REFUSED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403", "NoSuchBucket")
_EXISTS = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_ATTEMPTS = 6


class Absent(Exception):
    """There is no such object."""


@dataclass(frozen=True)
class ObjectStore:
    """The objects below `uri`, such as `s3://bucket/prefix`. `client_options`: of `boto3.client`, under its own names
    (`endpoint_url`, `region_name`, …); what they leave out boto3 takes from where it always does. May be sent to
    Spark's workers."""

    uri: str
    client_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.uri)
        if parts.scheme != "s3" or not parts.hostname or parts.username or parts.query:
            raise ConfigError("the archive's uri is no s3://bucket/prefix", "write it like s3://bucket/changelogs")

    @cached_property
    def bucket(self) -> str:
        return urlsplit(self.uri).netloc

    @cached_property
    def _prefix(self) -> str:
        prefix = urlsplit(self.uri).path.strip("/")
        return f"{prefix}/" if prefix else ""

    @property
    def _client(self) -> S3Client:
        return _client_with(tuple(sorted(self.client_options.items())))

    def keys(self, below: str) -> Iterator[str]:
        """The names that begin with `below`, in order."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self._prefix + below)
        try:
            for page in pages:
                yield from (found["Key"].removeprefix(self._prefix) for found in page.get("Contents", ()))
        except (BotoCoreError, ClientError) as failure:
            self._refuse("list", below, failure)

    def put_once(self, key: str, body: bytes) -> bool:
        """Writes an object, unless there is one of that name: False then. The store checks its hash on arrival."""
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        try:
            self._client.put_object(
                Bucket=self.bucket, Key=self._prefix + key, Body=body, ChecksumSHA256=digest, IfNoneMatch="*"
            )
        except ClientError as failure:
            if _code(failure) in _EXISTS:
                return False
            self._refuse("write", key, failure)
        except BotoCoreError as failure:
            self._refuse("write", key, failure)
        return True

    def get(self, key: str) -> bytes:
        """Raises Absent where there is none."""
        try:
            return self._client.get_object(Bucket=self.bucket, Key=self._prefix + key)["Body"].read()
        except ClientError as failure:
            if _code(failure) in _ABSENT:
                raise Absent(key) from failure
            self._refuse("read", key, failure)
        except BotoCoreError as failure:
            self._refuse("read", key, failure)

    def _refuse(self, what: str, key: str, failure: Exception) -> NoReturn:
        code = _code(failure) if isinstance(failure, ClientError) else type(failure).__name__
        told = f"the object store would not {what} {key} in bucket {self.bucket} ({code})"
        if code in _REFUSED:
            raise SourceRefused(told, "check the bucket's name, the credentials and what they are allowed") from failure
        raise Unreachable(told, "see that the store runs and can be reached, then run the same again") from failure


@lru_cache(maxsize=16)
def _client_with(options: tuple[tuple[str, Any], ...]) -> S3Client:
    """Kept: making one takes longer than most requests, and Spark's workers would make one for every task."""
    # A store that is overwhelmed says so, and is asked again: ever more slowly, and not for ever.
    retries = Config(retries={"mode": "standard", "max_attempts": _ATTEMPTS}, connect_timeout=10, read_timeout=60)
    return boto3.client("s3", config=retries, **dict(options))


def _code(failure: ClientError) -> str:
    return str(failure.response.get("Error", {}).get("Code", ""))
