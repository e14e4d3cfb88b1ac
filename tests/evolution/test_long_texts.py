"""Strings and numbers beyond Jackson's default limits."""

from __future__ import annotations

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.evolution.inferred.inference import are_parsed, parsed_images
from ingest.jvm.plain_json import CORRUPT, opened, parsed

pytestmark = [pytest.mark.spark, pytest.mark.long]
_LONG = 21_000_000
_IMAGE = T.StructType([T.StructField("v", T.StringType()), T.StructField("n", T.StringType())])
_INTO = T.StructType([T.StructField("after", _IMAGE), T.StructField(CORRUPT, T.StringType())])


def _value() -> Column:
    text, number = F.repeat(F.lit("x"), F.lit(_LONG)), F.repeat(F.lit("1"), F.lit(2000))
    return F.concat(F.lit('{"after":{"v":"'), text, F.lit('","n":'), number, F.lit("}}"))


def test_text_of_21_million_characters_is_read(spark: SparkSession) -> None:
    value = spark.range(1).select(_value().alias("value"))
    for found in (opened(F.col("value").cast("binary"), _INTO), parsed(F.col("value"), _INTO)):
        read = value.select(found.alias("found")).select(
            F.length("found.after.v").alias("text"), F.length("found.after.n").alias("number"), f"found.{CORRUPT}"
        )
        assert read.collect() == [(_LONG, 2000, None)]


def test_image_with_a_long_text_is_parsed(spark: SparkSession) -> None:
    value = spark.range(1).select(parsed_images(_value()).alias("images"))
    assert value.select(are_parsed(F.col("images"))).collect() == [(True,)]
