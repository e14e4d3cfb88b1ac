"""What the catalog of a real Postgres tells of rows from before a column is what they read there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from ingest.backfill.rebuilding import Rebuild
from ingest.config import Pipeline
from ingest.errors import Unreachable
from ingest.evolution.definition import NULL, UNKNOWN
from ingest.lakehouse.silver import Silver
from ingest.pipeline.definition_changes import table_changes
from ingest.pipeline.status import status
from ingest.sources.source_catalog import SourceCatalog
from ingest.stack import Stack
from tests.changelogs import Topic, schema
from tests.shop import captured, merged, pipeline

pytestmark = [pytest.mark.spark, pytest.mark.integration]
NUMBERS = {"field": "s", "type": "array", "items": {"type": "int32", "optional": True}, "optional": True}
AT = {"field": "at", "type": "string", "name": "io.debezium.time.ZonedTimestamp", "default": "1970-01-01T00:00:00Z"}


@pytest.fixture(scope="module")
def dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Stack(tmp_path_factory.mktemp("postgres") / "stack", parts=("postgres",)) as running:
        yield running.postgres.dsn


def altered(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def test_catalog_tells_constants_and_results_of_functions(dsn: str) -> None:
    altered(
        dsn,
        "CREATE DOMAIN percent AS int",
        "CREATE TYPE mood AS ENUM ('on', 'off')",
        "CREATE TABLE facts (id int PRIMARY KEY)",
        "INSERT INTO facts VALUES (1)",
        "ALTER TABLE facts ADD a int[] DEFAULT '{1,NULL}', ADD n numeric DEFAULT 1.50, ADD b bytea DEFAULT '\\x00ff', "
        "ADD d percent DEFAULT 50, ADD m mood DEFAULT 'on', ADD t timestamptz DEFAULT '2026-01-01 00:00+02', "
        "ADD p point DEFAULT '(1,2)', ADD none text, ADD later int",
        "ALTER TABLE facts ALTER later SET DEFAULT 5, ALTER a SET DEFAULT '{2}'",
    )
    found = SourceCatalog(dsn).columns("public.facts", "postgres")
    fills = {name: one.fill for name, one in found.items()}
    defaults = {name: fill.column.default for name, fill in fills.items() if fill and fill.column}
    assert defaults == {
        "a": "[1,null]",
        "n": '"1.50"',
        "b": '"AP8="',
        "d": "50",
        "m": '"on"',
        "t": '"2025-12-31T22:00:00+00:00"',
    }
    assert fills["p"] == UNKNOWN, "its form in events is another one"
    assert fills["none"] == fills["later"] == NULL
    assert found["a"].number < found["n"].number

    altered(dsn, "ALTER TABLE facts ADD r float8 DEFAULT random()")
    after = {name: one.fill for name, one in SourceCatalog(dsn).columns("public.facts").items()}
    assert after["r"] == UNKNOWN
    assert after["none"] is None, "the rewrite has removed what the catalog knew"
    assert SourceCatalog(dsn).columns("public.facts", "other") == SourceCatalog(dsn).columns("public.none") == {}


def test_catalog_tells_values_of_partitions(dsn: str) -> None:
    altered(
        dsn,
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (9)",
        "INSERT INTO parts VALUES (1)",
        "ALTER TABLE parts ADD v int DEFAULT 7",
    )
    fill = SourceCatalog(dsn).columns("public.parts")["v"].fill
    assert fill is not None
    assert fill.column is not None
    assert fill.column.default == "7"


def test_database_that_does_not_answer_is_no_secret() -> None:
    with pytest.raises(Unreachable) as raised:
        SourceCatalog("host=127.0.0.1 port=1 password=geheim").columns("public.facts")
    assert "geheim" not in str(raised.value) + repr(SourceCatalog("password=geheim"))


def merged_orders(spark: SparkSession, tmp_path: Path, dsn: str) -> Pipeline:
    """Returns a shop whose orders got `s` and `at` after the first one."""
    shop, topic = pipeline(tmp_path, source={"database": dsn}), Topic("shop.orders")
    topic.change("c", 10, {"id": 1}, schema=schema(("id", "int32")))
    topic.change("c", 20, {"id": 2, "s": [2], "at": None}, schema=schema(("id", "int32"), NUMBERS, AT))
    merged(spark, shop, captured(spark, shop, tmp_path, topic.records))
    return shop


def test_rows_from_before_read_what_the_catalog_tells(spark: SparkSession, tmp_path: Path, dsn: str) -> None:
    altered(
        dsn,
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "INSERT INTO orders VALUES (1)",
        "ALTER TABLE orders ADD s int[] DEFAULT '{1}', ADD at timestamptz DEFAULT now()",
    )
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT (extract(epoch FROM at) * 1000000)::bigint FROM orders").fetchone()
        assert row is not None
    shop = merged_orders(spark, tmp_path, dsn)

    def rows() -> dict[int, tuple[list[int], int | None]]:
        found = Silver(spark, shop.layout.silver("shop", "public.orders")).rows()
        return {r["id"]: (r["s"], r["at"]) for r in found.selectExpr("id", "s", "unix_micros(at) at").collect()}

    assert rows() == {1: ([1], row[0]), 2: ([2], None)}
    (table,) = status(spark, shop.name, shop.layout).tables
    assert not table.unknown
    added = [c for c in table_changes(spark, shop.name, shop.layout, "public.orders") if c.kind == "add.column"]
    assert [(c.column, c.origin, c.remedy) for c in added] == [
        (name, "catalog of the source", None) for name in ("s", "at")
    ]

    altered(dsn, "VACUUM FULL orders")
    assert SourceCatalog(dsn).columns("public.orders")["s"].fill == UNKNOWN
    Rebuild(spark, shop).run()
    assert rows() == {1: ([1], row[0]), 2: ([2], None)}, "what the catalog told once is known"


def test_source_that_does_not_answer_stops_nothing(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop = merged_orders(spark, tmp_path, "host=127.0.0.1 port=1 password=geheim")
    (table,) = status(spark, shop.name, shop.layout).tables
    assert table.unknown == {"s": 1, "at": 1}
    assert "the catalog of the source's database can't be read (OperationalError)" in caplog.text
    assert "geheim" not in caplog.text
