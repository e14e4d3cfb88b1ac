"""Fixtures that several suites share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from ingest.session import SMALL, spark_session
from ingest.stack import Stack


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session with Delta, for many plans over a handful of rows."""
    session = spark_session("ingest tests", SMALL)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Postgres, Kafka and Kafka Connect. Tests share them: choose table, topic, slot and connector names."""
    with Stack() as running:
        yield running
