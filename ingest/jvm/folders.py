"""Folders of tables, in any file system that Hadoop reaches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from ingest.jvm.classes import java_class


def is_empty(spark: SparkSession, path: str) -> bool:
    """Returns True if `path` does not exist or is an empty folder."""
    system, place = _hadoop(spark, path)
    return not system.exists(place) or not len(system.listStatus(place))


@contextmanager
def deleted_afterwards(spark: SparkSession, path: str) -> Iterator[None]:
    """Deletes the folder `path` on exit."""
    try:
        yield
    finally:
        delete_folder(spark, path)


def delete_folder(spark: SparkSession, path: str) -> None:
    """Deletes the folder `path` with all it holds; none is there: does nothing."""
    system, place = _hadoop(spark, path)
    system.delete(place, True)


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm
    place = java_class(jvm, "org.apache.hadoop.fs.Path")(path)
    return place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), place
