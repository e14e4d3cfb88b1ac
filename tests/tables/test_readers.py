"""Tables say the same to readers without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import deltalake
import duckdb
import polars
import pytest
from duckdb_extensions import import_extension
from pyspark.sql import SparkSession

from ingest.prepared import asked
from ingest.tables.delta_log import Table

pytestmark = pytest.mark.spark
_NEVER = "9999-12-31 23:59:59.999999"
_BEFORE = "1650-01-01 00:00:00.000001"


@pytest.mark.parametrize("few", [False, True], ids=["many", "few"])
def test_times_beyond_the_reach_of_nanoseconds_are_what_they_are(
    spark: SparkSession, tmp_path: Path, few: bool
) -> None:
    """A source's "for ever" and its founding day, which 64 bits of nanoseconds don't hold."""
    import_extension("delta")
    frame = spark.sql(f"SELECT timestamp'{_NEVER}' AS until, timestamp'{_BEFORE}' AS since").coalesce(1)
    Table(spark, str(tmp_path)).commit(asked(lambda rows: rows.coalesce(1), (), frame) if few else frame, few=few)
    until, since = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (_NEVER, _BEFORE))
    assert polars.scan_delta(str(tmp_path)).collect().rows() == [(until, since)]
    assert deltalake.DeltaTable(tmp_path).to_pyarrow_table().to_pylist() == [{"until": until, "since": since}]
    scan = f"FROM delta_scan('{tmp_path}') SELECT until AT TIME ZONE 'UTC', since AT TIME ZONE 'UTC'"
    assert duckdb.sql(scan).fetchall() == [(until.replace(tzinfo=None), since.replace(tzinfo=None))]
