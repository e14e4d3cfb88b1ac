"""`ingest sql` over a lakehouse of two pipelines with equal and unusual table names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from ingest.cli import app
from ingest.cli.lakehouse import sql as command
from ingest.errors import ConfigError, IngestError
from ingest.sql.failures import QueryFailed
from tests.changelogs import Record, Topic, schema
from tests.shop import captured, merged, pipeline

pytestmark = pytest.mark.spark
ODD = "unit prices (é)"


def records(prefix: str, text: str) -> list[Record]:
    made: list[Record] = []
    for table in ("orders", ODD):
        topic = Topic(f"{prefix}.{table}", ("public", table), records=made)
        topic.change("c", 10, {"id": 1, "v": text})
        topic.change("u", 20, {"id": 1, "v": f"{text} again"})
    return made


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the pipelines `shop` and `store` in one lakehouse."""
    root = tmp_path_factory.mktemp("two")
    for name in ("shop", "store"):
        made = pipeline(root, name=name, tables={"public.orders": {"history": name == "shop"}})
        merged(spark, made, captured(spark, made, root / name, records(name, name)))
        (root / "shop.yaml").rename(root / f"{name}.json.yaml")
    return root


@pytest.fixture
def run_sql(folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setattr(type(spark), "stop", lambda _: None)

    def run(query: str, *options: str, **more: Any) -> Result:
        where = options or ("--lakehouse", str(folder / "lakehouse"))
        return CliRunner().invoke(app, ["sql", query, "--json", *where], **more)

    return run


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.exception
    return [json.loads(line) for line in result.stdout.splitlines()]


def commits(folder: Path) -> list[str]:
    return sorted(str(file) for file in (folder / "lakehouse").rglob("*") if file.is_file())


def test_equal_table_names_need_the_pipeline(run_sql: Callable[..., Result]) -> None:
    for name in ("shop", "store"):
        assert rows(run_sql(f"SELECT v FROM {name}.public.orders")) == [{"v": f"{name} again"}]
        assert rows(run_sql(f"SELECT v FROM {name}.public.`{ODD}`")) == [{"v": f"{name} again"}]
    both = "SELECT a.v, b.v AS w FROM shop.public.orders a JOIN store.public.orders b USING (id)"
    assert rows(run_sql(both)) == [{"v": "shop again", "w": "store again"}]
    failed = run_sql("SELECT * FROM public.orders").exception
    assert isinstance(failed, ConfigError)
    assert str(failed) == (
        "public.orders may be any of 2 tables → name the one that is meant: shop.public.orders or store.public.orders"
    )


def test_unqualified_name_is_a_table_of_the_chosen_pipeline(run_sql: Callable[..., Result], folder: Path) -> None:
    for name in ("shop", "store"):
        file = str(folder / f"{name}.json.yaml")
        assert rows(run_sql("SELECT v FROM public.orders", "--pipeline", file)) == [{"v": f"{name} again"}]
    there = run_sql("SELECT v FROM store.public.orders", "--pipeline", str(folder / "shop.json.yaml"))
    assert rows(there) == [{"v": "store again"}]


@pytest.mark.long
def test_histories_versions_and_system_tables_can_be_queried(run_sql: Callable[..., Result]) -> None:
    for absent in ("system.quarantine", "store.public.orders__history"):
        assert f"nothing was ever written to {absent}" in str(run_sql(f"SELECT * FROM {absent}").exception)
    kept = rows(run_sql("SELECT v FROM shop.public.orders__history ORDER BY _position.major"))
    assert [row["v"] for row in kept] == ["shop", "shop again"]
    assert rows(run_sql("SELECT count(*) AS n FROM system.accounts"))[0]["n"] > 0
    assert rows(run_sql("SELECT v FROM shop.public.orders VERSION AS OF 0")) == [{"v": "shop again"}]
    changes = rows(run_sql("SELECT v, _change_type FROM table_changes('shop.public.orders', 0)"))
    assert [(row["v"], row["_change_type"]) for row in changes] == [("shop again", "insert")]


def test_show_describe_and_explain_work(run_sql: Callable[..., Result], folder: Path) -> None:
    tables = {row["tableName"] for row in rows(run_sql("SHOW TABLES IN shop.public"))}
    assert tables == {"orders", ODD, "orders__history"}
    assert {row["namespace"] for row in rows(run_sql("SHOW SCHEMAS"))} >= {"system", "shop", "store"}
    columns = [row["col_name"] for row in rows(run_sql("DESCRIBE store.public.orders"))]
    assert columns[:2] == ["id", "v"]
    detail = rows(run_sql("DESCRIBE DETAIL shop.public.orders"))
    assert detail[0]["location"].endswith("lakehouse/silver/shop/public.orders")
    assert rows(run_sql("DESCRIBE HISTORY shop.public.orders LIMIT 1"))[0]["operation"] == "WRITE"
    path = folder / "lakehouse" / "silver" / "shop" / "public.orders"
    assert rows(run_sql(f"SELECT v FROM delta.`{path}`")) == [{"v": "shop again"}]
    assert "Relation" in rows(run_sql("EXPLAIN EXTENDED SELECT v FROM shop.public.orders"))[0]["plan"]


WRITING = """
DELETE FROM shop.public.orders
WITH x AS (SELECT 1) DELETE FROM shop.public.orders
DELETE FROM delta.`{path}`
UPDATE shop.public.orders SET v = 'x'
INSERT INTO delta.`{path}` SELECT * FROM shop.public.orders
OPTIMIZE delta.`{path}`
VACUUM '{path}' RETAIN 0 HOURS
SELECT 1; DELETE FROM delta.`{path}`
EXPLAIN DELETE FROM delta.`{path}`
BEGIN DELETE FROM delta.`{path}`; END
CREATE TABLE delta.`{path}x` AS SELECT 1
SELECT reflect('java.io.File', 'createTempFile', 'a', 'b')
"""


def test_writing_statements_are_refused(run_sql: Callable[..., Result], folder: Path) -> None:
    path = folder / "lakehouse" / "silver" / "shop" / "public.orders"
    before = commits(folder)
    for statement in WRITING.strip().splitlines():
        refused = run_sql(statement.format(path=path)).exception
        assert isinstance(refused, IngestError), statement
        assert refused.exit_code == 2
        assert commits(folder) == before, statement
    assert rows(run_sql("SELECT v FROM shop.public.orders")) == [{"v": "shop again"}]
    assert commits(folder) == before


def test_catalog_refuses_changes(run_sql: Callable[..., Result], folder: Path, spark: SparkSession) -> None:
    """A second guard: if a statement passed the check, the catalog would still refuse to write."""
    rows(run_sql("SELECT v FROM shop.public.orders"))
    for statement in (
        "DELETE FROM lakehouse.shop.public.orders",
        "INSERT INTO lakehouse.shop.public.orders (id) VALUES (9)",
        "DROP TABLE lakehouse.shop.public.orders",
        "ALTER TABLE lakehouse.shop.public.orders ADD COLUMNS (x int)",
        "CREATE TABLE lakehouse.shop.public.other (x int)",
        "DROP SCHEMA lakehouse.shop CASCADE",
    ):
        with pytest.raises(Exception, match="only read"):
            spark.sql(statement)


def test_similar_names_are_suggested(run_sql: Callable[..., Result]) -> None:
    for query, like in (
        ("SELECT * FROM shop.public.order", "did you mean shop.public.orders"),
        ("SELECT * FROM SHOP.PUBLIC.ORDERS", "did you mean shop.public.orders"),
        ("SELECT * FROM accounts", "did you mean system.accounts"),
        ("DESCRIBE DETAIL shop.public.order", "did you mean shop.public.orders"),
        ("SELECT * FROM table_changes('shop.public.order', 1)", "did you mean shop.public.orders"),
        ("SELECT summ(1)", "did you mean sum"),
    ):
        failed = run_sql(query).exception
        assert isinstance(failed, ConfigError), failed
        assert like in failed.remedy


def test_failing_query_shows_no_values(run_sql: Callable[..., Result]) -> None:
    for query, condition in (
        ("SELECT cast(v AS int) FROM shop.public.orders", "CAST_INVALID_INPUT"),
        ("SELECT 1 / 0", "DIVIDE_BY_ZERO"),
        ("SELECT raise_error('zora')", "USER_RAISED_EXCEPTION"),
    ):
        failed = run_sql(query).exception
        assert isinstance(failed, QueryFailed), failed
        assert condition in str(failed)
        assert "shop again" not in str(failed)
        assert "zora" not in str(failed)


@pytest.mark.long
def test_query_is_read_from_stdin(run_sql: Callable[..., Result]) -> None:
    """Keeps personal values out of the shell's history."""
    assert rows(run_sql("-", input="SELECT v FROM shop.public.orders\nWHERE v = 'shop again'\n")) == [
        {"v": "shop again"}
    ]


def test_spark_settings_of_the_pipeline_apply(
    folder: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: dict[str, str] = {}

    @contextmanager
    def running(_: str, properties: dict[str, str]) -> Any:
        taken.update(properties)
        yield spark

    monkeypatch.setattr(command, "running", running)
    own = {"spark.hadoop.fs.s3a.endpoint": "http://s3", "spark.sql.debug.maxToStringFields": "7"}
    pipeline(tmp_path, name="shop", lakehouse=str(folder / "lakehouse"), spark=own)
    answered = CliRunner().invoke(app, ["sql", "SELECT 1", "--pipeline", str(tmp_path / "shop.yaml")])
    assert answered.exit_code == 0, answered.exception
    assert taken.items() >= own.items()
    assert taken["spark.sql.catalogImplementation"] == "in-memory"


@pytest.mark.long
def test_error_of_a_change_feed_names_the_readable_versions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    topic = Topic("shop.orders", ("public", "orders"))
    for number, kind in enumerate(("int32", "int32", "int64"), start=1):
        topic.change("c", 10 * number, {"id": number, "q": number}, schema=schema(("id", "int64"), ("q", kind)))
    shop = pipeline(tmp_path)
    for count in range(1, 4):
        merged(spark, shop, captured(spark, shop, tmp_path, topic.records[:count]))
    lakehouse = ["--lakehouse", str(tmp_path / "lakehouse"), "--json"]
    query = "SELECT id, q FROM table_changes('public.orders', {})"
    failed = CliRunner().invoke(app, ["sql", query.format(0), *lakehouse]).exception
    assert isinstance(failed, ConfigError)
    found = re.search(r"read that of public\.orders from version (\d+) on", failed.remedy)
    assert found is not None, failed
    completed = CliRunner().invoke(app, ["sql", query.format(found[1]), *lakehouse])
    assert rows(completed) == [{"id": 3, "q": 3}]
    earlier = CliRunner().invoke(app, ["sql", query.format(int(found[1]) - 1), *lakehouse]).exception
    assert isinstance(earlier, ConfigError)
    (setting,) = re.findall(r"spark: \{(\S+): \"true\"\}", failed.remedy)
    spark.conf.set(setting, "true")
    try:
        completed = CliRunner().invoke(app, ["sql", query.format(0), *lakehouse])
    finally:
        spark.conf.unset(setting)
    assert sorted(row["q"] for row in rows(completed)) == [1, 2, 3]
