"""Hadoop settings for scans and writes keep all values, with their provenance for a few."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
_OF_SPARK = "parquet.page.row.count.limit"


@pytest.fixture
def settings(spark: SparkSession) -> Any:
    """Returns the Hadoop settings of a scan."""
    return spark._jsparkSession.sessionState().newHadoopConf()


def test_provenance_of_hadoop_defaults_is_dropped(settings: Any) -> None:
    known = settings.getValByRegex(r"^(ipc|yarn|mapreduce)\.")
    assert known.size() > 500
    assert [name for name in known if settings.getPropertySources(name) is not None] == []


def test_provenance_of_spark_settings_is_kept(settings: Any) -> None:
    assert settings.get(_OF_SPARK) == "1000"
    assert list(settings.getPropertySources(_OF_SPARK)) == ["Set by Spark from keys starting with 'spark.hadoop'"]
