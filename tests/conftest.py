"""Fixtures that several suites share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from ingest.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A small local session: cases are a handful of rows, and tasks would cost more than the work."""
    session = spark_session(
        "ingest tests",
        {
            "spark.sql.shuffle.partitions": "1",
            "spark.default.parallelism": "1",
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.sql.adaptive.enabled": "false",
            # Compiling a plan costs more than interpreting it over ten rows.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        },
    )
    yield session
    session.stop()
