"""An object store that speaks S3: conditional writes, verified by hash; errors are mapped to those of
`ingest.errors`."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

import boto3
import botocore.exceptions
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, IncompleteReadError, ResponseStreamingError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from ingest.errors import ConfigError, Contended, SourceRefused, Unreachable
from ingest.names import bucket_and_prefix

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_ABSENT = ("404", "NoSuchKey", "NotFound")
_REFUSED = (
    *("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403", "NoSuchBucket", "PermanentRedirect"),
    *("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "AuthorizationHeaderMalformed", "RequestTimeTooSkewed"),
    # Errors of the client itself, before any request.
    *("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "NoRegionError", "InvalidRegionError"),
)
_NOT_OFFERED = ("NotImplemented", "MethodNotAllowed")
_EXISTS = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_EMPTY = ("InvalidRange", "416")
_BUSY = ("InternalError", "SlowDown", "ServiceUnavailable", "RequestTimeout", "Throttling", "RequestLimitExceeded")
_SERVER_ERROR, _TRY_LATER = 500, (408, 429)
_BROKEN_OFF = (
    *(botocore.exceptions.ConnectionError, botocore.exceptions.HTTPClientError, IncompleteReadError),
    *(ResponseStreamingError, botocore.exceptions.MetadataRetrievalError, botocore.exceptions.FlexibleChecksumError),
)
_GONE = ("NoSuchVersion", "NoSuchUpload")
_ATTEMPTS = 6
_BODIES = 3
_REMOVED_AT_ONCE = 1000
"""S3's limit for one DeleteObjects request."""


class ObjectMissing(Exception):
    """The object does not exist; the argument is its key."""


@dataclass(frozen=True)
class ObjectInfo:
    """An entry of a listing. `size`: bytes. `etag`: changes with the content."""

    key: str
    size: int
    etag: str


@dataclass(frozen=True)
class Version:
    """A version of an object, or a delete marker (`is_delete_marker`). In a bucket without versioning the object is its
    only version. `is_latest`: the version that a plain GET returns."""

    key: str
    id: str
    is_latest: bool
    is_delete_marker: bool


@dataclass(frozen=True)
class ObjectStore:
    """The objects below `uri`, such as `s3://bucket/prefix`. Serializable for Spark's tasks.

    `client_options`: arguments of `boto3.client` (`endpoint_url`, `region_name`, …); the others come from boto3's usual
    sources (environment, profile, instance role).

    Every method raises SourceRefused where the store refuses, Unreachable where it is away or overloaded, ConfigError
    for options that make no client."""

    uri: str
    client_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def bucket(self) -> str:
        return bucket_and_prefix(self.uri)[0]

    @property
    def _prefix(self) -> str:
        return bucket_and_prefix(self.uri)[1]

    @property
    def _client(self) -> S3Client:
        return _client_with(tuple(sorted(self.client_options.items())))

    def keys(self, below: str) -> Iterator[str]:
        """Returns the keys that begin with `below`, in lexical order."""
        return (entry.key for entry in self.listed(below))

    def listed(self, below: str = "") -> Iterator[ObjectInfo]:
        """Yields the objects whose keys begin with `below`, in lexical order."""
        try:
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket, Prefix=self._prefix + below):
                for entry in page.get("Contents", ()):
                    yield ObjectInfo(entry["Key"].removeprefix(self._prefix), entry["Size"], entry["ETag"])
        except (BotoCoreError, ClientError) as failure:
            self._refuse("list", below, failure)

    def versions(self, below: str) -> Iterator[Version]:
        """Yields all versions and delete markers of the objects whose keys begin with `below`."""
        try:
            pages = self._client.get_paginator("list_object_versions")
            for page in pages.paginate(Bucket=self.bucket, Prefix=self._prefix + below):
                for entry in page.get("Versions", ()):
                    yield self._version(entry, False)
                for mark in page.get("DeleteMarkers", ()):
                    yield self._version(mark, True)
        except (BotoCoreError, ClientError) as failure:
            self._refuse("list the versions of", below, failure)

    def _version(self, entry: Mapping[str, Any], is_delete_marker: bool) -> Version:
        key = entry["Key"].removeprefix(self._prefix)
        return Version(key, entry.get("VersionId", "null"), entry["IsLatest"], is_delete_marker)

    def put_once(self, key: str, body: bytes) -> bool:
        """Writes an object; returns False, and writes nothing, where the key exists. The store verifies its SHA-256."""
        return self._put(key, body, {"IfNoneMatch": "*"})

    def replace(self, key: str, body: bytes, etag: str) -> None:
        """Replaces the object that has this `etag`. Raises Contended where it has changed or is gone."""
        if self._put(key, body, {"IfMatch": etag}):
            return
        try:
            # A retry after a lost response finds our own write.
            ours = self.get(key) == body
        except ObjectMissing:
            ours = False
        if not ours:
            raise Contended(
                f"{key} in bucket {self.bucket} was changed by another process since it was read",
                "run the same command again",
            )

    def _put(self, key: str, body: bytes, condition: Mapping[str, Any]) -> bool:
        """Writes an object; returns False where `condition` does not hold."""
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        try:
            self._client.put_object(
                Bucket=self.bucket, Key=self._prefix + key, Body=body, ChecksumSHA256=digest, **condition
            )
        except ClientError as failure:
            if _code(failure) in _EXISTS or ("IfMatch" in condition and _code(failure) in _ABSENT):
                return False
            self._refuse("write", key, failure)
        except BotoCoreError as failure:
            self._refuse("write", key, failure)
        return True

    def remove(self, versions: Iterable[Version]) -> int:
        """Deletes these versions for good, without delete markers, and returns their number; absent ones count too."""
        left, removed = iter(versions), 0
        while chunk := list(islice(left, _REMOVED_AT_ONCE)):
            entries: Any = [{"Key": self._prefix + v.key, "VersionId": v.id} for v in chunk]
            try:
                answer = self._client.delete_objects(Bucket=self.bucket, Delete={"Objects": entries, "Quiet": True})
            except (BotoCoreError, ClientError) as failure:
                self._refuse("remove", chunk[0].key, failure)
            for refused in answer.get("Errors", ()):
                if refused.get("Code") not in (*_GONE, *_ABSENT):
                    self._refuse_removal(refused)
            removed += len(chunk)
        return removed

    def abort_uploads(self, below: str) -> int:
        """Aborts the unfinished multipart uploads of keys that begin with `below`; returns their number."""
        try:
            pages = self._client.get_paginator("list_multipart_uploads")
            listed = pages.paginate(Bucket=self.bucket, Prefix=self._prefix + below)
            uploads = [(one["Key"], one["UploadId"]) for page in listed for one in page.get("Uploads", ())]
        except (BotoCoreError, ClientError) as failure:
            self._refuse("list the unfinished uploads of", below, failure)
        for key, id_ in uploads:
            try:
                self._client.abort_multipart_upload(Bucket=self.bucket, Key=key, UploadId=id_)
            except (BotoCoreError, ClientError) as failure:
                if not (isinstance(failure, ClientError) and _code(failure) in _GONE):
                    self._refuse("abort an upload of", key.removeprefix(self._prefix), failure)
        return len(uploads)

    def get(self, key: str, etag: str | None = None) -> bytes:
        """Returns the object's bytes. Raises ObjectMissing where it does not exist, and Contended where its ETag isn't
        `etag`."""
        return self._read(key, {} if etag is None else {"IfMatch": etag})

    def tail(self, key: str, size: int) -> bytes:
        """Returns the last `size` bytes of the object, or all of a smaller one. Raises ObjectMissing where it does not
        exist."""
        return self._read(key, {"Range": f"bytes=-{size}"})

    def _read(self, key: str, how: Mapping[str, Any]) -> bytes:
        try:
            for attempt in _body_retries():
                with attempt:
                    body = self._client.get_object(Bucket=self.bucket, Key=self._prefix + key, **how)["Body"].read()
        except ClientError as failure:
            if _code(failure) in _ABSENT:
                raise ObjectMissing(key) from failure
            if "Range" in how and _code(failure) in _EMPTY:
                return b""
            if "IfMatch" in how and _code(failure) in _EXISTS:
                raise Contended(
                    f"{key} in bucket {self.bucket} was rewritten since it was listed",
                    "run the same command again",
                ) from failure
            self._refuse("read", key, failure)
        except BotoCoreError as failure:
            self._refuse("read", key, failure)
        return body

    def _refuse_removal(self, refused: Any) -> NoReturn:
        """Raises SourceRefused with the reason why a version was not deleted: a retention, a legal hold or a
        permission. `refused`: an entry of `Errors` in S3's response."""
        key, failure = refused["Key"], ClientError({"Error": refused}, "DeleteObjects")
        message = f"the object store would not remove {key.removeprefix(self._prefix)} in bucket {self.bucket}"
        try:
            head = self._client.head_object(Bucket=self.bucket, Key=key, VersionId=refused["VersionId"])
        except (BotoCoreError, ClientError, KeyError):
            head = None  # a delete marker, or a user without permission to read
        if head and (until := head.get("ObjectLockRetainUntilDate")):
            mode = str(head.get("ObjectLockMode", "")).lower()
            end = f"{until:%Y-%m-%dT%H:%M:%SZ}"
            raise SourceRefused(
                f"{message}, version {refused['VersionId']}: a {mode} retention locks it until {end}",
                "run the same command again after that, or let a user who may bypass governance retention shorten it; "
                "a bucket with such retentions can't erase in time",
            ) from failure
        if head and head.get("ObjectLockLegalHoldStatus") == "ON":
            raise SourceRefused(
                f"{message}, version {refused['VersionId']}: a legal hold locks it",
                "ask the owner of the hold to lift it, then run the same command again",
            ) from failure
        self._refuse("remove", key.removeprefix(self._prefix), failure)

    def _refuse(self, what: str, key: str, failure: Exception) -> NoReturn:
        code = _code(failure) if isinstance(failure, ClientError) else type(failure).__name__
        message = f"the object store would not {what} {key} in bucket {self.bucket} ({code})"
        if code in _REFUSED:
            raise SourceRefused(
                message, "check the bucket's name, the credentials and what they are allowed"
            ) from failure
        if code in _NOT_OFFERED:
            raise SourceRefused(
                message, "the store does not know such requests: keep the archive in one that does"
            ) from failure
        if _is_transient(failure):
            raise Unreachable(
                message, "see that the store runs and can be reached, then run the same command again"
            ) from failure
        raise SourceRefused(message, "look the code up in the store's documentation") from failure


def _body_retries() -> Retrying:
    """Returns a retry for response bodies that break off; botocore itself retries only failed requests."""
    broken_off = retry_if_exception_type((IncompleteReadError, ResponseStreamingError))
    return Retrying(
        retry=broken_off, stop=stop_after_attempt(_BODIES), wait=wait_random_exponential(0.2, 2.0), reraise=True
    )


@lru_cache(maxsize=16)
def _client_with(options: tuple[tuple[str, Any], ...]) -> S3Client:
    """Returns a cached client: creating one takes longer than most requests, and each Spark task would create its
    own."""
    # Retries with exponential backoff, also after responses such as SlowDown.
    retries = Config(retries={"mode": "standard", "max_attempts": _ATTEMPTS}, connect_timeout=10, read_timeout=60)
    try:
        return boto3.client("s3", config=retries, **dict(options))
    except ValueError as failure:
        raise ConfigError(
            "the object store's options make no client, such as an endpoint_url that is no URL",
            "correct them in the pipeline's file (archive: {s3: ...})",
        ) from failure


def _is_transient(failure: Exception) -> bool:
    """Returns True for a store that is away, overloaded or broken; False for a refusal."""
    if isinstance(failure, ClientError):
        status = int(failure.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return status >= _SERVER_ERROR or status in _TRY_LATER or _code(failure) in _BUSY
    return isinstance(failure, _BROKEN_OFF)


def _code(failure: ClientError) -> str:
    return str(failure.response.get("Error", {}).get("Code", ""))
