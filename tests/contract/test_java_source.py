"""Java classes of this project in a JVM that several threads use."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.jvm.sources import define

pytestmark = pytest.mark.spark
_PACKAGE = "org.apache.spark.sql.api.java"
_AT_ONCE = 8


def test_who_asks_for_a_class_at_one_time_finds_one(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    source = f"package {_PACKAGE}; public final class AskedForAtOnce {{ public static int one() {{ return 1; }} }}"
    with ThreadPoolExecutor(_AT_ONCE) as several:
        asked = [several.submit(define, jvm, source, f"{_PACKAGE}.UDF4", ("AskedForAtOnce",)) for _ in range(_AT_ONCE)]
        assert [one.result() for one in asked] == [None] * _AT_ONCE
    assert jvm.java.lang.Class.forName(f"{_PACKAGE}.AskedForAtOnce").getMethods()[0].getName() == "one"
