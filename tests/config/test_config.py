"""An invalid pipeline file gives an error that says what to change, and never shows a secret."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from ingest.config import Pipeline, json_schema, json_schema_text, load
from ingest.errors import ConfigError

ROOT = Path(__file__).parents[2]
SMALLEST = """\
# yaml-language-server: $schema=../pipeline.schema.json
source:
  kafka:
    bootstrap.servers: localhost:9092
    security.protocol: SASL_SSL
    sasl.mechanism: SCRAM-SHA-512
    sasl.jaas.config: ${KAFKA_LOGIN}
  topics: [shop.public.orders]
lakehouse: /data/lakehouse
"""
SECRET = "login required password=hunter2;"
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str) -> Path:
        path = tmp_path / "shop.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return written


def with_source(lines: str, rest: str = "") -> str:
    indented = "".join(f"  {line}\n" for line in lines.splitlines())
    return f"source:\n  kafka: {{bootstrap.servers: 'localhost:9092'}}\n{indented}lakehouse: /data\n{rest}"


def refusal(path: Path, environment: Mapping[str, str] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(path, environment or {})
    assert str(path) in caught.value.problem
    assert "\n" not in str(caught.value)
    return caught.value


def test_short_pipeline_is_complete(write: Write) -> None:
    assert len(SMALLEST.splitlines()) < 15
    pipeline = load(write(SMALLEST), {"KAFKA_LOGIN": SECRET})
    assert pipeline.name == "shop"
    assert pipeline.source.topics == ("shop.public.orders",)
    assert pipeline.source.start_offsets == "earliest"
    assert pipeline.source.kafka["sasl.jaas.config"] == SECRET
    assert (pipeline.batch.max_events, pipeline.batch.poll_seconds) == (500_000, 0.2)
    assert pipeline.batch.merged_at_once == 5_000_000
    assert pipeline.source.debezium.unavailable_value_placeholder == "__debezium_unavailable_value"
    assert pipeline.layout.bronze(pipeline.name) == "/data/lakehouse/bronze/shop"


def test_every_key_is_read(write: Write) -> None:
    pipeline = load(
        write(
            with_source(
                "topics: [a, b]\n"
                "debezium: {topic.prefix: a, topic.heartbeat.prefix: beat, topic.transaction: tx}\n"
                "start_offsets: {a: {'0': 12, 1: 0}}\n"
                "include_tables: 'x|y.+'\n"
                "exclude_tables: y1\n"
                "topic_tables: {b: schema.b}\n"
                "case_insensitive: true",
                "name: other\n"
                'tables: {schema.b: {primary_key: [id], columns: {weight: "decimal(10,3)"}}}\n'
                "batch: {max_events: '${MOST:-7}', poll_seconds: 0}\n"
                "airflow: {run: '*/5 * * * 1-5', backfill: '@hourly', tables: [s.t], retries: 0, pool: small}\n"
                "spark: {spark.driver.memory: 2g, spark.task.cpus: 4, spark.ui.enabled: false}\n",
            )
        ),
        {},
    )
    assert pipeline.name == "other"
    assert pipeline.source.start_offsets == {"a": {0: 12, 1: 0}}
    assert pipeline.source.debezium.heartbeat_prefix == "beat"
    assert pipeline.tables["schema.b"].primary_key == ("id",)
    assert pipeline.batch.max_events == 7
    assert pipeline.batch.merged_at_once == 7, "max_events also limits merge_events"
    assert (pipeline.airflow.run, pipeline.airflow.tables) == ("*/5 * * * 1-5", ("s.t",))
    assert pipeline.spark["spark.task.cpus"] == "4"
    assert pipeline.spark["spark.ui.enabled"] == "false"


@pytest.mark.parametrize(
    ("duration", "seconds"), [("1h", 3600), ("90s", 90), ("1h 30m", 5400), ("2d", 172_800), ("0s", 0), ("1m30s", 90)]
)
def test_retry_limit_is_a_duration(write: Write, duration: str, seconds: int) -> None:
    text = with_source("topics: [a]", f"retry: {{give_up_after: {duration}}}\n")
    assert load(write(text), {}).retry.limit.total_seconds() == seconds
    jsonschema.validate(yaml.safe_load(text), json_schema())


def test_retry_limit_defaults_to_an_hour(write: Write) -> None:
    assert load(write(with_source("topics: [a]")), {}).retry.limit.total_seconds() == 3600


@pytest.mark.parametrize("duration", ["90", "1", "an hour", "-1h", "1.5h", "PT1H", "''", "1w"])
def test_durations_need_units(write: Write, duration: str) -> None:
    text = with_source("topics: [a]", f"retry: {{give_up_after: {duration}}}\n")
    assert "retry.give_up_after: should be numbers with a unit" in refusal(write(text)).problem
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), json_schema())


def test_older_name_of_the_heartbeat_prefix_is_read(write: Write) -> None:
    path = write(with_source("topics: [a]\ndebezium: {heartbeat.topics.prefix: beat}"))
    assert load(path, {}).source.debezium.heartbeat_prefix == "beat"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (with_source("topcs: [a]\ntopics: [a]"), "unknown key 'topcs' at source: did you mean 'topics'?"),
        (
            with_source("topics: [a]", "topic_tables: {}\n"),
            "unknown key 'topic_tables' at the top level: did you mean 'source.topic_tables'?",
        ),
        (
            with_source("topics: [a]", "tables: {s.t: {primry_key: [a]}}\n"),
            "unknown key 'primry_key' at tables.s.t: did you mean 'primary_key'?",
        ),
        (with_source("topics: [a]", "batch: {zzz: 1}\n"), "known here are max_events, merge_events, poll_seconds"),
        (
            with_source("topics: [a]", "archive: {uri: 's3://me:hunter2@b/p'}\n"),
            "archive.uri: should be like s3://bucket/prefix, without credentials",
        ),
        (
            with_source("topics: [a]", "archive: {uri: 's3://b', s3: {aws_secret: hunter2}}\n"),
            "archive: s3 holds 'aws_secret', which is none of endpoint_url, region_name",
        ),
        (
            with_source("topics: [a]", "archive: {uri: 's3://b', layout: connect}\n"),
            "archive.layout: should be 'ingest', 'confluent' or 'aiven'",
        ),
        (
            with_source("topics: [a]", "archive: {uri: 's3://b', layout: confluent, gaps: ignore}\n"),
            "archive: can't ignore gaps with the layout confluent, which derives offsets from the records' order",
        ),
        (
            with_source("topics: [a]", "airflow: {run: daily}\n"),
            "airflow.run: should be a cron expression of five fields",
        ),
        (with_source("topics: [a]", "airflow: {tables: ['']}\n"), "airflow.tables.0: a table name can't be empty"),
        (with_source("topics: [a]", "airflow: {submit: yarn}\n"), "airflow.submit: should be 'cli' or 'spark'"),
        (with_source(""), "source: needs exactly one of topics and topic_pattern"),
        (with_source("topics: [a]\ntopic_pattern: a"), "source: needs exactly one of topics"),
        (with_source("topics: [a, a]"), "names a topic twice"),
        (with_source("topics: []"), "source.topics: should not be empty"),
        (with_source("topics: a"), "source.topics: should be a list"),
        (with_source("topic_pattern: '['"), "source.topic_pattern: is not a regular expression"),
        (
            with_source("topics: [a]\ninclude_tables: '*'"),
            "source.include_tables: is not a regular expression",
        ),
        (with_source("topics: [a]\nstart_offsets: lastest"), "should be earliest, latest or {topic"),
        (
            with_source("topics: [a]\nstart_offsets: {a: {'0': -1}}"),
            "source.start_offsets.a.0: should be greater",
        ),
        (with_source("topics: [a]\nstart_offsets: {b: {'0': 1}}"), "'b', which is not in topics"),
        (with_source("topics: [a]\ntopic_tables: {a: ''}"), "a table name can't be empty"),
        (with_source("topics: [a]\ntopics: [b]"), "holds the key 'topics' twice at line 4, column 3"),
        (
            with_source("topics: [a]", "batch: {max_events: many}\n"),
            "batch.max_events: should be a whole number",
        ),
        (
            with_source("topics: [a]", "batch: {poll_seconds: .nan}\n"),
            "batch.poll_seconds: should be a finite",
        ),
        (with_source("topics: [a]", "batch:\n"), "batch: should be a mapping"),
        (with_source("topics: [a]", "spark: {driver.memory: 1g}\n"), "begin with 'spark.'"),
        ("source: {topics: [a], kafka: {}}\nlakehouse: x", "source: kafka needs 'bootstrap.servers'"),
        ("source: {topics: [a]}\nlakehouse: x", "source.kafka is missing"),
        ("lakehouse: x", "source is missing"),
        ("source: {topics: [a], kafka: {kafka.bootstrap.servers: x}}\nlakehouse: x", "leave out the leading"),
        (
            "source: {topics: [a], kafka: {bootstrap.servers: x, auto.offset.reset: latest}}\nlakehouse: x",
            "say source.start_offsets instead",
        ),
        (
            "source: {topics: [a], kafka: {bootstrap.servers: [x]}}\nlakehouse: x",
            "one text, number or boolean",
        ),
        (
            "source: {topics: [a], kafka: {bootstrap.servers: x}, "
            "debezium: {topic.heartbeat.prefix: a, heartbeat.topics.prefix: b}}\nlakehouse: x",
            "keep one of the two",
        ),
        ("", "holds no keys"),
        ("- a", "holds no keys"),
        ("a: [", "is not valid YAML at line 1"),
    ],
)
def test_mistake_is_named_with_its_location(write: Write, text: str, sentence: str) -> None:
    assert sentence in refusal(write(text)).problem


def test_all_mistakes_are_named_at_once(write: Write) -> None:
    problem = refusal(write(with_source("topics: [a]", "lakehous: x\nbatch: {max_events: 0}\n"))).problem
    assert "lakehous" in problem
    assert "max_events" in problem


def test_missing_variable_is_named_with_key_and_file(write: Write) -> None:
    error = refusal(write(SMALLEST))
    assert "source.kafka.sasl.jaas.config: the environment variable KAFKA_LOGIN is not set" in error.problem
    assert error.remedy == "set KAFKA_LOGIN, or write ${KAFKA_LOGIN:-default}"


@pytest.mark.parametrize(
    ("written", "environment", "read"),
    [
        ("${A}", {"A": "x"}, "x"),
        ("s3a://${A}/${B:-b}", {"A": "x"}, "s3a://x/b"),
        ("${A:-d}", {"A": ""}, "d"),
        ("${A:-}x", {}, "x"),
        ("${A:-a:-b}", {}, "a:-b"),
        ("$${A}", {}, "${A}"),
        ("$A-$", {}, "$A-$"),
        ("${A}", {"A": "${B}"}, "${B}"),
    ],
)
def test_variables_are_expanded_like_in_a_shell(
    write: Write, written: str, environment: dict[str, str], read: str
) -> None:
    text = with_source("topics: [a]").replace("lakehouse: /data", f"lakehouse: '{written}'")
    assert load(write(text), environment).lakehouse == read


@pytest.mark.parametrize("broken", ["${A", "${A-x}", "${file:/etc/x:key}"])
def test_malformed_variable_reference_is_refused(write: Write, broken: str) -> None:
    error = refusal(write(with_source(f"topics: ['{broken}']")), {"A": "x"})
    assert "source.topics[0]: a '${' that is neither" in error.problem


@pytest.mark.parametrize(
    "text",
    [
        SMALLEST + "lakehous: x\n",
        SMALLEST.replace("topics: [shop", "topics: [[shop").replace("orders]", "orders]]"),
        SMALLEST.replace("${KAFKA_LOGIN}", "[hunter2]"),
        SMALLEST.replace("${KAFKA_LOGIN}", "*hunter2"),
        SMALLEST.replace("${KAFKA_LOGIN}", "hunter2: hunter2"),
        SMALLEST.replace("${KAFKA_LOGIN}", "!hunter2 x"),
        SMALLEST.replace("${KAFKA_LOGIN}", "'hunter2"),
        SMALLEST.replace("${KAFKA_LOGIN}", "${hunter2"),
        SMALLEST.replace("/data/lakehouse", "s3a://me:hunter2@bucket/x"),
    ],
)
def test_errors_show_no_secrets(write: Write, text: str) -> None:
    error = refusal(write(text), {"KAFKA_LOGIN": SECRET})
    assert "hunter2" not in str(error)
    cause: BaseException | None = error
    while cause is not None:
        assert "hunter2" not in str(cause) or cause.__suppress_context__
        cause = cause.__cause__


@pytest.mark.parametrize(
    "key",
    [
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.key",
        "sasl.oauthbearer.client.secret",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.session.token",
    ],
)
def test_secret_is_readable_but_never_printed(write: Write, key: str) -> None:
    section = "spark" if key.startswith("spark") else "kafka"
    values = f"{{{key}: hunter2}}"
    text = (
        with_source("topics: [a]", f"spark: {values}\n")
        if section == "spark"
        else with_source("topics: [a]").replace("{boot", f"{{{key}: hunter2, boot")
    )
    pipeline = load(write(text), {})
    properties = pipeline.spark if section == "spark" else pipeline.source.kafka
    assert properties[key] == "hunter2"
    for shown in (repr(pipeline), str(pipeline), str(pipeline.model_dump()), pipeline.model_dump_json()):
        assert "hunter2" not in shown


def test_pipeline_is_frozen(write: Write) -> None:
    pipeline = load(write(with_source("topics: [a]")), {})
    with pytest.raises(ValidationError):
        pipeline.lakehouse = "elsewhere"
    with pytest.raises(TypeError):
        pipeline.source.kafka["x"] = "y"  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        pipeline.layout.root = "elsewhere"  # type: ignore[misc]


def test_bare_name_is_a_file_of_conf_pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "conf" / "pipelines"
    folder.mkdir(parents=True)
    (folder / "shop.yaml").write_text(with_source("topics: [a]"))
    monkeypatch.chdir(tmp_path)
    assert load("shop", {}).name == "shop"
    monkeypatch.chdir("/")
    assert load("shop", {"INGEST_CONF": str(tmp_path / "conf")}).name == "shop"
    with pytest.raises(ConfigError) as caught:
        load("shup", {"INGEST_CONF": str(tmp_path / "conf")})
    assert caught.value.remedy == "did you mean 'shop'?"
    with pytest.raises(ConfigError, match="no pipeline file"):
        load("elsewhere/shop.yaml", {})


def test_shipped_pipelines_are_valid() -> None:
    for path in sorted((ROOT / "conf" / "pipelines").glob("*.yaml")):
        assert isinstance(load(path, {}), Pipeline)
        assert path.read_text().startswith("# yaml-language-server: $schema=../pipeline.schema.json\n")
        jsonschema.validate(yaml.safe_load(path.read_text()), json_schema())


def test_shipped_schema_is_current() -> None:
    assert (ROOT / "conf" / "pipeline.schema.json").read_text(encoding="utf-8") == json_schema_text()
    jsonschema.Draft202012Validator.check_schema(json.loads(json_schema_text()))


def test_schema_refuses_unknown_keys() -> None:
    with pytest.raises(jsonschema.ValidationError, match="topcs"):
        jsonschema.validate(yaml.safe_load(with_source("topcs: [a]")), json_schema())


def test_loading_a_pipeline_needs_no_spark() -> None:
    code = "import sys, ingest.config; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


def test_a_table_overrides_single_keys_of_the_pipelines_schema_policy(write: Write) -> None:
    text = (
        "schema: {on_change: lenient, exclude: [truncate.table]}\n"
        "tables:\n  public.a: {schema: {on_change: fail}}\n  public.b: {schema: {exclude: []}}\n"
    )
    pipeline = load(write(with_source("topics: [shop.public.a]", text)), {})
    policies = {
        name: pipeline.schema_settings.of_table(table.schema_settings) for name, table in pipeline.tables.items()
    }
    assert [(one.on_change, one.exclude) for one in policies.values()] == [
        ("fail", ("truncate.table",)),
        ("lenient", ()),
    ]
    assert pipeline.schema_settings.of_table(None) == pipeline.schema_settings


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("schema: {on_change: guess}\n", "evolve"),
        ("schema: {exclude: [drop.colum]}\n", "drop.column"),
        ("limits: {columns: 0}\n", "columns"),
        ("limits: {nesting_depth: 1000}\n", "nesting_depth"),
    ],
)
def test_unknown_policies_and_limits_are_refused(write: Write, text: str, word: str) -> None:
    assert word in str(refusal(write(with_source("topics: [shop.public.a]", text))))


def test_renames_lead_to_the_newest_name(write: Write) -> None:
    text = "tables:\n  public.a: {renames: {a: b, b: c}, rename: {c: d, x: y}}\n"
    pipeline = load(write(with_source("topics: [shop.public.a]", text)), {})
    assert pipeline.tables["public.a"].names == {"a": "d", "b": "d", "c": "d", "x": "y"}
    circle = "tables:\n  public.a: {renames: {a: b, b: a}}\n"
    assert "back to itself" in str(refusal(write(with_source("topics: [shop.public.a]", circle))))


@pytest.mark.parametrize("setting", ["personal: [a]", "personal: [a], on_erasure: {a: null}"])
def test_a_personal_column_that_is_declared_renamed_is_named_by_both_names(write: Write, setting: str) -> None:
    text = "tables:\n  public.a: {renames: {a: b}, SETTING}\n"
    problem = refusal(write(with_source("topics: [shop.public.a]", text.replace("SETTING", setting))))
    assert "names 'a', which renames calls 'b' since" in str(problem)
    both = setting.replace("[a]", "[a, b]").replace("a: null", "a: null, b: null")
    load(write(with_source("topics: [shop.public.a]", text.replace("SETTING", both))), {})
