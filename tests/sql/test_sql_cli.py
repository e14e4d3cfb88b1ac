"""`ingest sql` prints rows as they are, and for a failing query only the reason."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from ingest.cli import app
from ingest.errors import ConfigError

pytestmark = pytest.mark.spark


def run_sql(query: str, lakehouse: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *options: str) -> Result:
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    return CliRunner().invoke(app, ["sql", "--lakehouse", str(lakehouse), query, *options])


def test_values_are_printed_unchanged(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "[red]x :key:" in run_sql("SELECT '[red]x :key:' AS v", tmp_path, spark, monkeypatch).output


def test_failing_query_is_not_logged(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_records: list[logging.LogRecord] = []
    listener = logging.Handler()
    monkeypatch.setattr(listener, "emit", log_records.append)
    logging.getLogger("SQLQueryContextLogger").addHandler(listener)
    failed = run_sql("SELECT 'zora.quandt@example.org' FROM nowhere", tmp_path, spark, monkeypatch)
    logging.getLogger("SQLQueryContextLogger").removeHandler(listener)
    assert isinstance(failed.exception, ConfigError)
    assert "TABLE_OR_VIEW_NOT_FOUND" in str(failed.exception)
    assert "zora" not in str(failed.exception)
    assert log_records == []


def test_explain_shows_all_columns(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "spark.sql.debug.maxToStringFields"
    short = spark.conf.get(name)
    try:
        query = "EXPLAIN SELECT id + 1 AS next, id * 2 AS twice FROM range(3)"
        printed = run_sql(query, tmp_path, spark, monkeypatch, "--json").output
    finally:
        spark.conf.set(name, short or "0")
    assert "AS next" in printed and "AS twice" in printed
