"""The table of failures: maps exception classes and error conditions to an error with a remedy.

The class of the error decides whether the failure is retried (`IngestError.retried`). Messages are never parsed. The
first line that applies is taken, so specific lines come before general ones.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ingest.config import Pipeline
from ingest.delta.conflict_retry import DELTA_CONFLICTS
from ingest.errors import (
    ConfigError,
    Contended,
    EngineOverloaded,
    IngestError,
    LakehouseDamaged,
    PrerequisiteMissing,
    SourceRefused,
    StorageRefused,
    Unreachable,
)
from ingest.jvm.causes import Cause, python_names

_NEARLY_FULL_BYTES = 64 << 20
_CHECK_SERVICE = "check that it runs and can be reached; the same command continues where it stopped"


@dataclass(frozen=True)
class Failure:
    """One line of the table. It applies to a cause that matches any of `classes`, `conditions` or `errnos` (if any are
    given) and was raised in one of the Java packages or classes `raised_in` (if any are given). A condition includes
    its subconditions. `innermost`: only the last cause is examined. `holds`: a condition on the pipeline that has to be
    true as well. `problem` may contain `{kafka}`, `{lakehouse}` and `{file}`."""

    kind: type[IngestError]
    problem: str
    remedy: str
    classes: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    errnos: tuple[int, ...] = ()
    raised_in: tuple[str, ...] = ()
    innermost: bool = False
    holds: Callable[[Pipeline], bool] = lambda _: True

    def applies(self, chain: Sequence[Cause], pipeline: Pipeline) -> bool:
        """Returns True if the line matches this chain of causes, the outermost first, and `holds` for the pipeline."""
        return self.matches(chain) and self.holds(pipeline)

    def matches(self, chain: Sequence[Cause]) -> bool:
        """Returns True if the line matches this chain of causes, whatever the pipeline."""
        examined = chain[-1:] if self.innermost else chain
        return any(self._is_kind(c) and self._is_place(c) for c in examined)

    def _is_kind(self, cause: Cause) -> bool:
        return (
            not (self.classes or self.conditions or self.errnos)
            or any(name in self.classes for name in cause.classes)
            or any(_is_or_below(cause.condition, condition) for condition in self.conditions)
            or cause.errno in self.errnos
        )

    def _is_place(self, cause: Cause) -> bool:
        return not self.raised_in or any(place.startswith(self.raised_in) for place in cause.raised_in)


def _is_or_below(condition: str | None, parent: str) -> bool:
    return condition is not None and (condition == parent or condition.startswith(f"{parent}."))


def _folders(pipeline: Pipeline) -> list[Path]:
    """Returns the local folders to which a run of the pipeline writes; for one that doesn't exist, its nearest existing
    parent."""
    folders = [Path(tempfile.gettempdir())]
    uri = pipeline.lakehouse.removeprefix("file://")
    if "://" not in uri:
        folders.append(Path(uri))
    return [next(f for f in (folder.absolute(), *folder.absolute().parents) if f.is_dir()) for folder in folders]


def _is_full(pipeline: Pipeline) -> bool:
    """Returns True if one of the disks is nearly full: Java has no exception class for that."""
    return any(shutil.disk_usage(folder).free < _NEARLY_FULL_BYTES for folder in _folders(pipeline))


def _is_read_only(pipeline: Pipeline) -> bool:
    """Returns True if one of the folders isn't writable: Java reports that as a missing file."""
    return not all(os.access(folder, os.W_OK) for folder in _folders(pipeline))


_S3A = "org.apache.hadoop.fs.s3a."
_SDK = "software.amazon.awssdk."
_KAFKA = "org.apache.kafka.common."

_FULL = "the disk of {lakehouse}, or of this machine's temporary files, is full"
_FREE_SPACE = "free space, or move the lakehouse or spark.local.dir; the same command continues where it stopped"
_REFUSED = "the storage of {lakehouse} refuses this user to read or write"
_GRANT_ACCESS = "give this user its permissions, or correct the credentials (spark: {spark.hadoop.fs.s3a.…})"
_MISSING = "{file} is missing from the lakehouse, or can't be read"
_RESTORE_OR_REBUILD = (
    "restore the file from a copy, or rebuild the table from bronze: ingest backfill PIPELINE --rebuild --table TABLE"
)
_MEMORY = "give Spark more memory (spark: {spark.driver.memory: 4g}), or merge less at once (batch: {max_events: …})"

FAILURES: tuple[Failure, ...] = (
    # Kafka
    Failure(
        SourceRefused,
        "Kafka at {kafka} no longer holds offsets that bronze has not captured",
        "lengthen the topic's retention, then capture from a fresh snapshot or an archive under a new name",
        classes=("org.apache.kafka.clients.consumer.OffsetOutOfRangeException",),
        conditions=("KAFKA_DATA_LOSS",),
    ),
    Failure(
        SourceRefused,
        "Kafka at {kafka} refuses the user",
        "correct sasl.jaas.config, sasl.mechanism, security.protocol or ssl.* in source.kafka, or grant Describe and "
        "Read on the topics",
        classes=(
            f"{_KAFKA}errors.AuthenticationException",
            f"{_KAFKA}errors.AuthorizationException",
        ),
    ),
    Failure(
        ConfigError,
        "source.kafka holds a value that Kafka's client rejects",
        "correct it; the values are those of Kafka's documentation",
        classes=(f"{_KAFKA}config.ConfigException",),
    ),
    Failure(
        Unreachable,
        "Kafka at {kafka} does not answer",
        _CHECK_SERVICE,
        classes=(f"{_KAFKA}errors.RetriableException", "cimpl.KafkaException"),
    ),
    Failure(
        Unreachable,
        "Kafka at {kafka} returned no record before the timeout",
        _CHECK_SERVICE,
        classes=("java.util.concurrent.TimeoutException",),
        raised_in=("org.apache.spark.sql.kafka010.",),
    ),
    # Two writers
    Failure(
        Contended,
        "another writer commits to the same tables of {lakehouse}",
        "run the same command again: it continues where it stopped. If this recurs, run fewer writers of the pipeline "
        "at once",
        classes=(
            *python_names(*DELTA_CONFLICTS),
            *(f"io.delta.exceptions.{k.__name__}" for k in DELTA_CONFLICTS),
        ),
    ),
    # Storage
    Failure(
        StorageRefused,
        _REFUSED,
        _GRANT_ACCESS,
        classes=(
            *("java.nio.file.AccessDeniedException", "java.nio.file.ReadOnlyFileSystemException"),
            "org.apache.hadoop.security.AccessControlException",
            *(f"{_S3A}auth.NoAuthWithAWSException", f"{_S3A}CredentialInitializationException"),
        ),
        errnos=(errno.EACCES, errno.EPERM, errno.EROFS),
    ),
    Failure(
        StorageRefused,
        "the bucket of {lakehouse} does not exist",
        "create it, or correct lakehouse in the pipeline's file",
        classes=(f"{_S3A}UnknownStoreException", f"{_SDK}services.s3.model.NoSuchBucketException"),
    ),
    Failure(
        StorageRefused,
        _REFUSED,
        _GRANT_ACCESS,
        classes=("java.io.IOException", "org.apache.hadoop.fs.FSError"),
        conditions=("DELTA_CANNOT_CREATE_LOG_PATH",),
        holds=_is_read_only,
    ),
    Failure(StorageRefused, _FULL, _FREE_SPACE, errnos=(errno.ENOSPC, errno.EDQUOT)),
    Failure(
        StorageRefused,
        _FULL,
        _FREE_SPACE,
        classes=("java.io.IOException", "org.apache.hadoop.fs.FSError"),
        holds=_is_full,
    ),
    # The network
    Failure(
        Unreachable,
        "the storage of {lakehouse} does not answer",
        _CHECK_SERVICE,
        classes=(
            *("java.net.SocketException", "java.net.SocketTimeoutException", "java.net.UnknownHostException"),
            *("java.nio.channels.UnresolvedAddressException", "javax.net.ssl.SSLException"),
            *(f"{_S3A}AWSServiceThrottledException", f"{_S3A}AWSStatus500Exception", f"{_S3A}AWSNoResponseException"),
            *(f"{_S3A}AWSClientIOException", f"{_SDK}core.exception.SdkClientException"),
            *("requests.exceptions.ConnectionError", "requests.exceptions.Timeout"),
            *("botocore.exceptions.ConnectionError", "botocore.exceptions.HTTPClientError"),
            *python_names(ConnectionError, TimeoutError, socket.gaierror),
        ),
    ),
    Failure(
        Unreachable,
        "a database that the pipeline uses does not answer",
        _CHECK_SERVICE,
        classes=("psycopg.OperationalError", "sqlalchemy.exc.OperationalError", "sqlalchemy.exc.TimeoutError"),
    ),
    # The engine
    Failure(
        EngineOverloaded,
        "a broadcast of Spark timed out",
        "check whether the machine is overloaded; if not, raise spark.sql.broadcastTimeout (spark: {…: …})",
        conditions=("_LEGACY_ERROR_TEMP_2097",),
    ),
    Failure(
        EngineOverloaded,
        "Spark ran out of memory",
        _MEMORY,
        classes=("java.lang.OutOfMemoryError", *python_names(MemoryError)),
        conditions=("UNABLE_TO_ACQUIRE_MEMORY", "CANNOT_ALLOCATE_MEMORY"),
    ),
    Failure(
        EngineOverloaded,
        "a Python worker of Spark died, usually because the machine ran out of memory",
        "check the machine's free memory; the same command continues where it stopped",
        raised_in=("org.apache.spark.api.python.BasePythonRunner$ReaderIterator$",),
    ),
    Failure(
        PrerequisiteMissing,
        "a class that the storage of {lakehouse} or a setting needs is missing on Spark's class path",
        "add its jar to the class path, such as hadoop-aws for s3a (spark: {spark.driver.extraClassPath: …})",
        classes=("java.lang.ClassNotFoundException", "java.lang.NoClassDefFoundError"),
        conditions=("DATA_SOURCE_NOT_FOUND",),
    ),
    # Damage: a file that can't be read for none of the reasons above
    Failure(
        LakehouseDamaged,
        _MISSING,
        _RESTORE_OR_REBUILD,
        classes=("java.io.FileNotFoundException", *python_names(FileNotFoundError)),
        conditions=(
            *("FAILED_READ_FILE", "DELTA_TRUNCATED_TRANSACTION_LOG", "DELTA_LOG_FILE_NOT_FOUND", "PATH_NOT_FOUND"),
            *("DELTA_MISSING_FILES_UNEXPECTED_VERSION", "DELTA_STATE_RECOVER_ERROR", "DELTA_PATH_DOES_NOT_EXIST"),
            *("DELTA_CHANGE_DATA_FILE_NOT_FOUND", "DELTA_LOG_FILE_MALFORMED", "DELTA_TABLE_NOT_FOUND"),
        ),
    ),
    Failure(
        LakehouseDamaged,
        "a table of {lakehouse} uses Delta features that this version of Delta doesn't support",
        "use the Delta version that wrote the table, or drop the feature there: ALTER TABLE … DROP FEATURE",
        conditions=(
            *("DELTA_UNSUPPORTED_FEATURES_FOR_READ", "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"),
            *("DELTA_INVALID_PROTOCOL_VERSION", "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG"),
        ),
    ),
    Failure(
        EngineOverloaded,
        "Spark aborted a job after losing executors",
        "check whether executors ran out of memory or were removed; the same command continues where it stopped",
        classes=("org.apache.spark.SparkException",),
        raised_in=("org.apache.spark.scheduler.DAGScheduler",),
        innermost=True,
    ),
)
