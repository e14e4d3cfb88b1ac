"""The demo runs from the first service to the last comparison, and the comparison finds every difference."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from ingest.cli.demo import exit_code
from ingest.demo.summary import Summary
from ingest.errors import ConfigError
from ingest.quality import Comparison, compare_with_postgres
from ingest.stack import Stack

pytestmark = pytest.mark.integration

INGEST = [sys.executable, "-c", "from ingest.cli import main; main()"]
_MARK = "INGEST_DEMO_TEST"


def environment(mark: str, temporary: Path) -> dict[str, str]:
    """Every process that the demo starts inherits the mark."""
    return {**os.environ, _MARK: mark, "TMPDIR": str(temporary)}


@retry(retry=retry_if_result(bool), stop=stop_after_delay(120), wait=wait_fixed(0.5))
def marked_processes(mark: str) -> list[str]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {process.name()}")
    return found


def test_silver_equals_its_source_after_inserts_updates_and_deletes(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    command = [*INGEST, "demo", "--json", "--seconds", "8", "--seed", "3", "--history"]
    done = subprocess.run(
        command, env=environment(mark, tmp_path), capture_output=True, text=True, timeout=1500, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout)
    assert summary["equal"] is True
    assert summary["source_rows"] == summary["silver_rows"] > 1_000
    assert summary["snapshot_events"] == 1_000
    assert all(summary["changes"][op] > 0 for op in ("insert", "update", "delete"))
    accounts = summary["accounts"]
    assert accounts["read"] == summary["events"] == sum(n for name, n in accounts.items() if name != "read")
    # A deletion is a change event and, for the topic's compaction, a null tombstone.
    deletions = summary["changes"]["delete"]
    assert summary["events"] == 1_250 + sum(summary["changes"].values()) + deletions
    assert accounts["quarantined"] == 0
    assert 0 < summary["lag_seconds"]["p50"] <= summary["lag_seconds"]["p95"]
    assert summary["story"] == ["appears", "changes", "vanishes"]
    history = summary["history"]
    assert (history["restored"], history["archived"]) == (True, summary["events"])
    assert history["as_of"]["equal"] is True
    assert 1_000 <= history["as_of"]["rows"] != summary["silver_rows"]
    assert set(summary["tables"]) == {"claims.members", "claims.accident_claims"}
    assert marked_processes(mark) == []
    assert not list(tmp_path.glob("ingest-demo-*"))


@pytest.mark.long
def test_ctrl_c_while_services_start_leaves_nothing_behind(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    with subprocess.Popen(
        [*INGEST, "demo"],
        env=environment(mark, tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        assert "Postgres" in demo.stdout.readline()
        demo.send_signal(signal.SIGINT)
        output = demo.stdout.read()
        assert demo.wait(timeout=900) == 130, output
    assert "stopped" in output
    assert marked_processes(mark) == []
    assert not list(tmp_path.glob("ingest-demo-*"))


def test_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = subprocess.run(
        [*INGEST, "demo", "--folder", str(tmp_path)], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == ConfigError.exit_code
    assert "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


TABLE = "compared.readings"
_SOURCE = """
CREATE SCHEMA compared;
CREATE TYPE compared.mood AS ENUM ('calm', 'wild');
CREATE TABLE compared.readings (
    id bigint PRIMARY KEY, amount numeric(12, 2), exact numeric, day date, moment timestamp, instant timestamptz,
    flag boolean, tree jsonb, tag uuid, words text[], mood compared.mood, raw bytea, ratio double precision,
    padded char(4), clock time, amounts numeric(5, 1)[]
);
INSERT INTO compared.readings VALUES
    (1, 12.50, 100.00, '2024-02-29', '2024-01-01 10:00:00.123456', '2024-01-01 10:00:00.123456+02', true,
     '{"b": 1, "a": [1, 2]}', '6f1f9f8c-3a11-4f4e-9d0a-111111111111', ARRAY['x', NULL, 'z'], 'calm', '\\x00ff',
     'NaN', 'ab', '10:20:30.5', ARRAY[1.5, NULL]),
    (2, NULL, NULL, NULL, 'infinity', '-infinity', NULL, NULL, NULL, '{}', NULL, NULL, NULL, NULL, NULL, NULL),
    (3, -0.01, 1e30, '0044-03-15 BC', NULL, '9999-12-31 23:59:59.999999+00', false, 'null', NULL, NULL, 'wild',
     '\\x', '-Infinity', '', '24:00:00', '{}');
"""
_SILVER = """
SELECT CAST(id AS bigint) AS id, CAST(amount AS decimal(12, 2)) AS amount, exact,
       date_from_unix_date(day) AS day, CAST(timestamp_micros(moment) AS timestamp_ntz) AS moment,
       timestamp_micros(instant) AS instant, flag, tree, tag, words, mood, raw, CAST(ratio AS double) AS ratio,
       padded, clock, CAST(amounts AS array<decimal(5, 1)>) AS amounts
FROM VALUES
    (1, 12.50, '100', 19782, 1704103200123456, 1704096000123456, true, '{"a": [1, 2], "b": 1}',
     '6f1f9f8c-3a11-4f4e-9d0a-111111111111', array('x', NULL, 'z'), 'calm', X'00FF', 'NaN', 'ab  ', '10:20:30.5',
     array(1.5, NULL)),
    (2, NULL, NULL, NULL, 253402300799999999, -62135424000000000, NULL, NULL, NULL, array(), NULL, NULL, NULL,
     NULL, NULL, NULL),
    (3, -0.01, '1000000000000000000000000000000', -719162, NULL, 253402300799999999, false, 'null', NULL, NULL,
     'wild', X'', '-Infinity', '    ', '24:00:00', array())
AS t(id, amount, exact, day, moment, instant, flag, tree, tag, words, mood, raw, ratio, padded, clock, amounts)
"""


@pytest.fixture(scope="module")
def source_dsn(stack: Stack) -> str:
    with psycopg.connect(stack.postgres.dsn) as connection:
        connection.execute(_SOURCE)
    return stack.postgres.dsn


@pytest.fixture(scope="module")
def silver(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataFrame]:
    path = str(tmp_path_factory.mktemp("silver") / "readings")
    spark.sql(_SILVER).write.format("delta").save(path)
    yield spark.read.format("delta").load(path)


def summary_of(comparison: Comparison) -> Summary:
    return Summary(1, [comparison], 0, 0, {}, {}, None, [], 0.0)


def test_equal_rows_of_different_types_are_equal(spark: SparkSession, source_dsn: str, silver: DataFrame) -> None:
    found = compare_with_postgres(spark, source_dsn, TABLE, silver)
    assert found == Comparison(TABLE, source_rows=3, silver_rows=3)
    assert found.equal
    assert exit_code(summary_of(found)) == 0


_CHANGED = {
    "amount": "CAST(amount + 0.01 AS decimal(12, 2))",
    "exact": "'100.000000000000000000000000000000001'",
    "day": "date_add(day, 1)",
    "moment": "timestamp_ntz'2024-01-01 10:00:00.123457'",
    "instant": "timestamp'2024-01-01 08:00:00.123455Z'",
    "flag": "NOT flag",
    "tree": "'{}'",
    "words": "array('x', 'z', NULL)",
    "mood": "CAST(NULL AS string)",
    "raw": "X'00FE'",
    "ratio": "CAST('Infinity' AS double)",
    "padded": "'ab'",
    "amounts": "CAST(array(1.5) AS array<decimal(5, 1)>)",
}


def test_difference_in_any_column_is_found(spark: SparkSession, source_dsn: str, silver: DataFrame) -> None:
    changed = {c: F.when(F.col("id") == 1, F.expr(sql)).otherwise(F.col(c)) for c, sql in _CHANGED.items()}
    found = compare_with_postgres(spark, source_dsn, TABLE, silver.withColumns(changed))
    assert found.columns == dict.fromkeys(_CHANGED, 1)
    assert (found.changed, found.differing, found.equal) == (1, 1, False)
    assert exit_code(summary_of(found)) == 1


def test_missing_extra_and_repeated_rows_are_found(spark: SparkSession, source_dsn: str, silver: DataFrame) -> None:
    other = silver.where("id = 1").withColumn("id", F.lit(4).cast("bigint"))
    rows = silver.where("id <> 2").unionByName(silver.where("id = 3")).unionByName(other)
    found = compare_with_postgres(spark, source_dsn, TABLE, rows)
    assert (found.missing, found.extra, found.repeated, found.changed) == (1, 1, 1, 0)
    assert (found.source_rows, found.silver_rows, found.equal) == (3, 4, False)


def test_absent_or_retyped_column_is_found(spark: SparkSession, source_dsn: str, silver: DataFrame) -> None:
    rows = silver.drop("raw").withColumn("amount", F.col("amount").cast("double"))
    found = compare_with_postgres(spark, source_dsn, TABLE, rows)
    assert set(found.mistyped) == {"raw", "amount"}
    assert (found.differing, found.equal) == (0, False)


def test_columns_that_silver_adds_are_not_compared(spark: SparkSession, source_dsn: str, silver: DataFrame) -> None:
    assert compare_with_postgres(spark, source_dsn, TABLE, silver.withColumn("_position", F.lit(1))).equal


@pytest.mark.parametrize("table", ["compared.absent", "compared.keyless", "compared.spans"])
def test_table_that_cannot_be_compared_is_refused(
    spark: SparkSession, source_dsn: str, silver: DataFrame, table: str
) -> None:
    with psycopg.connect(source_dsn) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS compared.keyless (id bigint)")
        connection.execute("CREATE TABLE IF NOT EXISTS compared.spans (id bigint PRIMARY KEY, span interval)")
    with pytest.raises(ConfigError, match=table):
        compare_with_postgres(spark, source_dsn, table, silver)
