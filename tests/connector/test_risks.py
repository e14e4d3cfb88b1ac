"""The recipe of a connector has no risks, and every lossy setting is reported with its remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ingest.cli import app
from ingest.connector import Placement, ReaderSettings, recipe, risks, topic_risks, version_risks

JSON = "org.apache.kafka.connect.json.JsonConverter"
POSTGRES = "io.debezium.connector.postgresql.PostgresConnector"


def config(**changes: str) -> dict[str, str]:
    """Returns the recipe with other values; `__` in a name stands for a dot, an empty value removes the setting."""
    found = {s.name: s.value for s in recipe(Placement("shop", ["public.orders"]))}
    found |= {name.replace("__", "."): value for name, value in changes.items()}
    return {name: value for name, value in found.items() if value}


def test_recipe_has_no_risk() -> None:
    assert risks(config(), ReaderSettings("shop")) == []


def test_numbers_as_text_keep_their_precision() -> None:
    settings = {s.name: s.value for s in recipe(Placement("shop", ["public.orders"], numbers_as_text=True))}
    assert settings["decimal.handling.mode"] == "string"
    assert settings["datatype.propagate.source.type"] == r".+\.(numeric|_numeric)"
    assert risks(settings, ReaderSettings("shop")) == []


def test_recipe_of_a_schema_explains_new_tables() -> None:
    (found,) = risks({s.name: s.value for s in recipe(Placement("shop", schemas=["public"]))}, ReaderSettings("shop"))
    assert (found.setting, found.loses) == ("publication.autocreate.mode", False)
    assert "restart" in found.remedy


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"skipped__operations": ""}, "skipped.operations"),
        ({"skipped__operations": "d"}, "skipped.operations"),
        ({"value__converter__replace__null__with__default": ""}, "value.converter.replace.null.with.default"),
        ({"key__converter__replace__null__with__default": "true"}, "key.converter.replace.null.with.default"),
        ({"value__converter": ""}, "value.converter"),
        ({"value__converter": "io.confluent.connect.avro.AvroConverter"}, "value.converter"),
        ({"value__converter": "io.debezium.converters.CloudEventsConverter"}, "value.converter"),
        ({"value__converter__schemas__enable": "false"}, "value.converter.schemas.enable"),
        ({"decimal__handling__mode": "double"}, "decimal.handling.mode"),
        ({"time__precision__mode": "connect"}, "time.precision.mode"),
        ({"time__precision__mode": "nanoseconds"}, "time.precision.mode"),
        ({"interval__handling__mode": ""}, "interval.handling.mode"),
        ({"include__unknown__datatypes": ""}, "include.unknown.datatypes"),
        ({"unavailable__value__placeholder": "gone"}, "unavailable.value.placeholder"),
        ({"snapshot__mode": "never"}, "snapshot.mode"),
        ({"snapshot__mode": "no_data"}, "snapshot.mode"),
        ({"snapshot__mode": "initial_only"}, "snapshot.mode"),
        ({"snapshot__mode": "configuration_based"}, "snapshot.mode.configuration.based.snapshot.data"),
        ({"snapshot__select__statement__overrides": "public.orders"}, "snapshot.select.statement.overrides"),
        ({"slot__drop__on__stop": "true"}, "slot.drop.on.stop"),
        ({"event__processing__failure__handling__mode": "skip"}, "event.processing.failure.handling.mode"),
        ({"event__processing__failure__handling__mode": "warn"}, "event.processing.failure.handling.mode"),
        ({"event__converting__failure__handling__mode": ""}, "event.converting.failure.handling.mode"),
        ({"errors__tolerance": "all"}, "errors.tolerance"),
        ({"producer__override__acks": "1"}, "producer.override.acks"),
        ({"topic__prefix": "other"}, "topic.prefix"),
        ({"transforms": "u", "transforms__u__type": "io.debezium.transforms.ExtractNewRecordState"},
         "transforms.u.type"),
        ({"transforms": "f", "transforms__f__type": "org.apache.kafka.connect.transforms.Filter"}, "transforms.f.type"),
        ({"connector__class": "io.confluent.connect.jdbc.JdbcSourceConnector"}, "connector.class"),
    ],
)  # fmt: skip
def test_setting_that_loses_data_is_named_with_its_remedy(changes: dict[str, str], setting: str) -> None:
    (found,) = risks(config(**changes), ReaderSettings("shop"))
    assert (found.setting, found.loses) == (setting, True)
    assert found.effect
    assert found.remedy


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"tombstones__on__delete": "false"}, "tombstones.on.delete"),
        ({"column__exclude__list": "public.orders.note"}, "column.exclude.list"),
        ({"column__include__list": "public.orders.id"}, "column.include.list"),
        ({"message__key__columns": "public.orders:id"}, "message.key.columns"),
        ({"heartbeat__interval__ms": ""}, "heartbeat.interval.ms"),
        ({"topic__heartbeat__prefix": "beat"}, "topic.heartbeat.prefix"),
        ({"key__converter__schemas__enable": "false"}, "key.converter.schemas.enable"),
        ({"publication__autocreate__mode": "disabled"}, "publication.autocreate.mode"),
        ({"flush__lsn__source": "false"}, "flush.lsn.source"),
        ({"field__name__adjustment__mode": "avro"}, "field.name.adjustment.mode"),
        ({"converters": "geometry"}, "converters"),
        ({"decimal__handling__mode": "string"}, "decimal.handling.mode"),
        ({"message__prefix__exclude__list": "ingest_heartbeat, ingest_.*"}, "message.prefix.exclude.list"),
        ({"message__prefix__include__list": "outbox", "message__prefix__exclude__list": ""},
         "message.prefix.include.list"),
        ({"transforms": "r", "transforms__r__type": "org.apache.kafka.connect.transforms.RegexRouter"},
         "transforms.r.type"),
        ({"transforms": "own", "transforms__own__type": "com.example.Own$Value"}, "transforms.own.type"),
    ],
)  # fmt: skip
def test_chosen_setting_is_named_as_accepted(changes: dict[str, str], setting: str) -> None:
    (found,) = risks(config(**changes), ReaderSettings("shop"))
    assert (found.setting, found.loses) == (setting, False)


@pytest.mark.parametrize(
    "changes",
    [
        {"decimal__handling__mode": "string", "datatype__propagate__source__type": ".+"},
        {"time__precision__mode": "isostring"},
        {"time__precision__mode": "microseconds"},
        {"hstore__handling__mode": "map"},
        {"message__prefix__include__list": "outbox, ingest_ddl", "message__prefix__exclude__list": ""},
        {"binary__handling__mode": "hex"},
        {"value__converter__decimal__format": "NUMERIC"},
        {"publication__autocreate__mode": "all_tables"},
        {"snapshot__mode": "when_needed"},
        {"provide__transaction__metadata": "true"},
        {"transforms": "h", "transforms__h__type": "org.apache.kafka.connect.transforms.InsertHeader"},
    ],
)
def test_harmless_setting_is_not_named(changes: dict[str, str]) -> None:
    assert risks(config(**changes), ReaderSettings("shop")) == []


def test_partial_snapshot_is_no_risk_if_declared() -> None:
    overrides = config(snapshot__select__statement__overrides="public.orders")
    assert risks(overrides, ReaderSettings("shop", snapshots="partial")) == []


def test_setting_of_an_unset_converter_has_no_effect() -> None:
    (found,) = risks(config(value__converter=""), ReaderSettings("shop"))
    assert "value.converter.replace.null.with.default has no effect" in found.effect
    assert "REST interface doesn't show" in found.effect


def test_salt_of_a_hash_is_not_shown() -> None:
    hashed = config() | {"column.mask.hash.SHA-256.with.salt.hunter2": "public.orders.email"}
    (found,) = risks(hashed, ReaderSettings("shop"))
    assert "hunter2" not in str(found)


def test_postgres_rules_apply_only_to_postgres() -> None:
    found = risks(config(connector__class="io.debezium.connector.mysql.MySqlConnector", interval__handling__mode=""),
                  ReaderSettings("shop"))  # fmt: skip
    assert found == []


@pytest.mark.parametrize(("version", "count"), [("3.3.1.Final", 1), ("3.7.0.Final", 0), ("4.0.0.Alpha1", 0), ("", 0)])
def test_version_that_loses_rows_at_restarts_is_named(version: str, count: int) -> None:
    assert len(version_risks(POSTGRES, version)) == count
    assert version_risks("io.debezium.connector.mysql.MySqlConnector", version) == []


def test_compacted_topic_is_named_with_its_delete_retention() -> None:
    (found,) = topic_risks({
        "a": {"cleanup.policy": "compact", "delete.retention.ms": "7200000"},
        "b": {"cleanup.policy": "delete"},
        "c": {"cleanup.policy": "compact,delete"},
    })  # fmt: skip
    assert found.setting == "cleanup.policy of a"
    assert "2 h" in found.effect


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["connector", "recipe", "postgres", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_recipe_json_holds_no_secret() -> None:
    document = json.loads(run("--name", "shop", "--table", "public.orders", "--host", "db", "--json"))
    assert document["name"] == "shop"
    assert document["config"]["database.password"] == "${env:POSTGRES_PASSWORD}"
    assert document["config"]["database.hostname"] == "db"
    assert document["config"]["table.include.list"] == r"public\.orders"
    assert all(isinstance(value, str) for value in document["config"].values())


def test_recipe_text_gives_a_reason_per_setting() -> None:
    lines = run("--name", "shop").splitlines()
    assert "skipped.operations=none" in lines
    assert all(line.startswith("# ") for line in lines[::2])


def test_pipeline_names_its_connector(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(
        "source:\n  kafka: {bootstrap.servers: 'b:9092'}\n  topics: [shop.public.orders, 'shop.public.Odd Name']\n"
        "  debezium: {unavailable.value.placeholder: gone}\nlakehouse: /data\n"
    )
    document = json.loads(run(str(file), "--json"))
    assert document["name"] == "shop"
    assert document["config"]["table.include.list"] == r"public\.orders,public\.Odd Name"
    assert document["config"]["unavailable.value.placeholder"] == "gone"


def test_topic_pattern_gives_prefix_and_schema(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(
        "source:\n  kafka: {bootstrap.servers: 'b:9092'}\n  topic_pattern: shop\\.public\\..*\n"
        "  connect: {url: 'http://c:8083', connector: orders}\nlakehouse: /data\n"
    )
    document = json.loads(run(str(file), "--json"))
    assert document["name"] == "orders"
    assert document["config"]["topic.prefix"] == "shop"
    assert document["config"]["schema.include.list"] == "public"


@pytest.mark.parametrize(
    ("converter", "settings", "found"),
    [
        ("io.confluent.connect.avro.AvroConverter", {}, {"ignore.default.for.nullables": True}),
        ("io.confluent.connect.avro.AvroConverter", {"ignore.default.for.nullables": "true"}, {}),
        ("io.confluent.connect.json.JsonSchemaConverter", {}, {"ignore.default.for.nullables": True}),
        ("io.apicurio.registry.utils.converter.ExtJsonConverter", {}, {"replace.null.with.default": True}),
        ("io.apicurio.registry.utils.converter.AvroConverter", {}, {"": True}),
        (
            "io.apicurio.registry.utils.converter.AvroConverter",
            {"apicurio.registry.as-confluent": "true"},
            {"": True, "apicurio.registry.use-id": False},
        ),
    ],
)
def test_converters_of_a_registry_are_read_and_their_settings_named(
    converter: str, settings: dict[str, str], found: dict[str, bool]
) -> None:
    plain = {name: value for name, value in config().items() if not name.startswith("value.converter")}
    given = {"value.converter": converter} | {f"value.converter.{name}": value for name, value in settings.items()}
    named = {f"value.converter.{name}".rstrip("."): loses for name, loses in found.items()}
    reader = ReaderSettings("shop", has_registry=True)
    assert {risk.setting: risk.loses for risk in risks(plain | given, reader)} == named
    (other,) = [risk for risk in risks(plain | given, ReaderSettings("shop")) if risk.setting == "value.converter"]
    assert "registry: {url" in other.remedy
