"""`ingest check` describes a pipeline without Spark, and fails with a sentence and an exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pyarrow as pa
import pytest
import typer
from deltalake import CommitProperties, write_deltalake
from typer.testing import CliRunner

from ingest.cli.commands import app as commands
from ingest.cli.pipeline.check import check
from ingest.config import json_schema_text
from ingest.errors import EXIT_USER, ConfigError, IngestError
from ingest.sources.captured import captured_offsets

ROOT = Path(__file__).parents[2]
PIPELINE = """\
source:
  kafka: {bootstrap.servers: "127.0.0.1:1", sasl.jaas.config: "hunter2"}
  topics: [shop.public.orders, "shop.public.Order[Items]", other]
  debezium: {topic.prefix: shop}
  topic_tables: {other: public.other}
  include_tables: "[a-z]+"
lakehouse: /data
tables: {public.orders: {primary_key: [id]}}
"""
app = typer.Typer()
app.command()(check)


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(PIPELINE)
    return path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"}, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_plan_shows_all_paths(pipeline: Path) -> None:
    plan = json.loads(run(pipeline, "--json"))
    assert plan["bronze"] == "/data/bronze/shop"
    assert plan["quarantine"] == "/data/system/quarantine"
    assert plan["tables"]["public.orders"] == {
        "topics": ["shop.public.orders"],
        "primary_key": ["id"],
        "silver": "/data/silver/shop/public.orders",
        "tombstones": "/data/tombstones/shop/public.orders",
    }
    assert plan["tables"]["public.other"]["topics"] == ["other"]
    assert plan["other_tables"]["silver"] == "/data/silver/shop/<table>"
    assert plan["modes"] == ["available-now", "continuous"]


def test_plan_is_printed_as_a_table_without_truncation(pipeline: Path) -> None:
    shown = run(pipeline)
    for text in (
        "/data/bronze/shop",
        "/data/silver/shop/public.orders",
        "Order[Items]",
        "[a-z]+",
        "available-now",
    ):
        assert text in shown


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_plan_shows_no_secret(pipeline: Path, option: tuple[str, ...]) -> None:
    shown = run(pipeline, *option)
    assert "sasl.jaas.config" in shown
    assert "hunter2" not in shown


def test_printed_schema_is_the_shipped_one() -> None:
    assert run("--schema") == json_schema_text()
    assert CliRunner().invoke(commands, ["schema"]).stdout == json_schema_text()
    jsonschema.Draft202012Validator.check_schema(json.loads(run("--schema")))


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("tables: {public.orders: {columns: {total: 'decimall(10,2)'}}}", "there is no type 'decimall(10,2)': did you"),
        ("tables: {public.orders: {columns: {total: 'decimal(10,x)'}}}", "decimal takes other arguments"),
        ("tables: {public.orders: {columns: {total: varchar}}}", "there is no type 'varchar'"),
        ("tables: {public.orders: {columns: {tags: 'array<tekst>'}}}", "there is no type 'array<tekst>'"),
        ("tables: {public.orders: {primary_key: [_position]}}", "'_position' is a name that tables here use"),
        ("tables: {public.orders: {primary_key: [id], columns: {id: unknown}}}", "holds no value but NULL"),
        ("tables: {public.orders: {sequence: at, columns: {at: string}}}", "ordered by whole numbers"),
        ("tables: {public.ordres: {primary_key: [id]}}", "is of 'public.ordres': did you mean 'public.orders'?"),
        ("tables: {orders: {primary_key: [id]}}", "is of 'orders'"),
        ("tables: {public.orders: {rename: {number: _position}}}", "'_position' is a name that tables here use"),
        ("tables: {public.orders: {primary_key: [id, ID]}}", "names a column twice"),
        ("airflow: {tables: [public.ordres]}", "did you mean 'public.orders'?"),
    ],
)
def test_invalid_declaration_is_refused(tmp_path: Path, lines: str, sentence: str) -> None:
    topics = "source: {kafka: {bootstrap.servers: 'b:1'}, topics: [shop.public.orders, shop.public.items]}\n"
    assert sentence in refusal(tmp_path, f"{topics}lakehouse: /data\n{lines}\n")


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("topic_pattern: 'shop\\.public\\..*'", "topic_pattern doesn't match shop.sales.orders"),
        ("topic_pattern: '.*', exclude_tables: 'orders'", "left out by exclude_tables"),
        ("topic_pattern: '.*', include_tables: 'public\\..*'", "left out by include_tables"),
        ("topic_pattern: 'a.*', topic_tables: {b: sales.orders}", "topic_pattern doesn't match 'b'"),
        ("topic_pattern: 'a.*', start_offsets: {b: {0: 1}}", "topic_pattern doesn't match 'b'"),
    ],
)
def test_table_without_a_possible_topic_is_refused(tmp_path: Path, source: str, sentence: str) -> None:
    text = f"source: {{kafka: {{bootstrap.servers: 'b:1'}}, {source}}}\nlakehouse: /data\n"
    assert sentence in refusal(tmp_path, text + "tables: {sales.orders: {primary_key: [id]}}\n")


@pytest.mark.parametrize(
    "source",
    [
        "topics: [shop.sales.orders]",
        "topics: [everything]",
        "topics: [shop.public.items, routed]",
        "topics: [shop.public.items, routed], topic_tables: {routed: sales.orders}",
        "topic_pattern: 'shop\\.(public|sales)\\..*'",
        "topic_pattern: '.*'",
    ],
)
def test_table_with_a_possible_topic_is_accepted(tmp_path: Path, source: str) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(
        f"source: {{kafka: {{bootstrap.servers: 'b:1'}}, {source}}}\nlakehouse: /data\n"
        "tables: {sales.orders: {primary_key: [id], columns: {total: 'decimal(10,2)', at: timestamp_from_micros}}}\n"
    )
    assert json.loads(run(path, "--json"))["tables"]["sales.orders"]["primary_key"] == ["id"]


@pytest.mark.parametrize("topics", ["topics: [shop.public.orders]", "topic_pattern: 'shop\\.public\\..*'"])
def test_table_named_by_its_database_is_accepted(tmp_path: Path, topics: str) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(
        f"source: {{kafka: {{bootstrap.servers: 'b:1'}}, {topics}, table_names: database.schema.table}}\n"
        "lakehouse: /data\ntables: {eu.public.orders: {rename: {_position: place}, columns: {_position: int64}}}\n"
    )
    assert "eu.public.orders" in json.loads(run(path, "--json"))["tables"]


def refusal(tmp_path: Path, text: str) -> str:
    path = tmp_path / "shop.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        run(path)
    assert str(path) in caught.value.problem
    return caught.value.problem


def test_plan_shows_history_archive_and_declared_columns(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(
        "source: {kafka: {bootstrap.servers: 'b:1'}, topics: [shop.public.orders]}\nlakehouse: /data\n"
        "archive: {uri: 's3://bucket/changelogs', s3: {aws_secret_access_key: hunter2}}\n"
        "tables: {public.orders: {primary_key: [id], history: true, columns: {total: 'decimal(10,2)'}}}\n"
    )
    composed = json.loads(run(path, "--json"))
    assert composed["archive"]["uri"] == "s3://bucket/changelogs"
    assert composed["tables"]["public.orders"]["columns"] == {"total": "decimal(10,2)"}
    assert composed["tables"]["public.orders"]["history"].endswith("history/shop/public.orders")
    shown = run(path)
    for text in ("s3://bucket/changelogs", "total decimal(10,2)", "history/shop/public.orders"):
        assert text in shown
    assert "hunter2" not in shown + json.dumps(composed)


@pytest.mark.parametrize("arguments", [(), ("no-such-pipeline",)])
def test_failure_is_one_sentence(arguments: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        run(*arguments)
    assert caught.value.exit_code == EXIT_USER


def test_check_loads_no_spark() -> None:
    code = (
        "import sys, ingest.config, ingest.sources.kafka_admin, "
        "ingest.sources.captured; sys.exit('pyspark' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0


def test_captured_offsets_come_from_the_newest_commit_with_offsets(tmp_path: Path) -> None:
    path = str(tmp_path / "bronze")
    assert captured_offsets(path) is None
    rows = pa.table({"value": [1]})
    for user_metadata in (
        None,
        '{"offsets": {"a": {"0": 5}}}',
        '{"batch": 2, "offsets": {"a": {"0": 9, "1": 2}}}',
        "note",
        "[]",
    ):
        metadata = {} if user_metadata is None else {"userMetadata": user_metadata}
        write_deltalake(path, rows, mode="append", commit_properties=CommitProperties(custom_metadata=metadata))
        if user_metadata is None:
            assert captured_offsets(path) is None
    assert captured_offsets(path) == {"a": {0: 9, 1: 2}}


def test_captured_offsets_of_an_object_store_are_refused() -> None:
    with pytest.raises(ConfigError, match="on this machine"):
        captured_offsets("s3a://bucket/bronze/shop")


def test_damaged_log_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "bronze" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{")
    with pytest.raises(IngestError, match="can't be read"):
        captured_offsets(str(tmp_path / "bronze"))
