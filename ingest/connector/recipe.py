"""The recommended, lossless configuration of Debezium's Postgres connector, with the reason for each setting.

Source: Debezium's reference of its connector for PostgreSQL, 3.7, "Connector properties"; Kafka's `JsonConverter`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
POSTGRES_CLASS = "io.debezium.connector.postgresql.PostgresConnector"
HEARTBEAT_MESSAGE = "ingest_heartbeat"
NUMERIC_TYPES = r".+\.(numeric|_numeric)"
_POSTGRES_NAME = 63


@dataclass(frozen=True)
class Setting:
    """A property of the connector, its value, and why it has this one."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class Placement:
    """The database and the tables to read. The defaults of the credentials are references that Kafka Connect resolves
    with its EnvVarConfigProvider, so that the configuration holds none.

    Attributes:
        name: of the connector; topics, slot and publication are named after it.
        tables: `schema.table` each, literally.
        schemas: read all tables of these. Without `tables` and `schemas`, every table of the database is read.
        numbers_as_text: send numeric columns as text, so that NaN and Infinity don't stop the connector.
        kafka: properties of a Kafka client for the brokers from which the connector reads signals; without any, it has
            no signals from Kafka.
    """

    name: str
    tables: Sequence[str] = ()
    schemas: Sequence[str] = ()
    host: str = "${env:POSTGRES_HOST}"
    port: str = "${env:POSTGRES_PORT}"
    user: str = "${env:POSTGRES_USER}"
    password: str = field(default="${env:POSTGRES_PASSWORD}", repr=False)
    database: str = "${env:POSTGRES_DB}"
    topic_prefix: str = ""
    placeholder: str = ""
    heartbeat_prefix: str = ""
    transaction_suffix: str = ""
    numbers_as_text: bool = False
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    signal_topic: str = ""
    notification_topic: str = ""

    @property
    def prefix(self) -> str:
        """The first part of the topics' names."""
        return self.topic_prefix or self.name

    @property
    def slot(self) -> str:
        """The name of slot and publication: lower case letters, digits and underscores, at most 63."""
        return re.sub(r"[^a-z0-9_]", "_", self.name.lower())[:_POSTGRES_NAME]


def recipe(placement: Placement) -> list[Setting]:
    """Returns the settings of a connector that reads `placement`, in the order in which people read them."""
    settings = [
        *_place(placement),
        *_contents(placement),
        *_LOSSLESS,
        *_resync(placement),
        *_numbers(placement),
        *_converters(),
        *_names(placement),
    ]
    return [Setting(*setting) for setting in settings]


_Row = tuple[str, str, str]


def _place(placement: Placement) -> list[_Row]:
    credentials = "Kafka Connect puts it in (config.providers=env), so it stands in no file"
    return [
        ("connector.class", POSTGRES_CLASS, "Debezium for Postgres, 3.7.0 or later"),
        ("tasks.max", "1", "a slot has one reader"),
        ("database.hostname", placement.host, "the server"),
        ("database.port", placement.port, "its port"),
        ("database.user", placement.user, "a user with REPLICATION, who may read the tables"),
        ("database.password", placement.password, credentials),
        ("database.dbname", placement.database, "the database"),
        ("topic.prefix", placement.prefix, "topics are PREFIX.SCHEMA.TABLE"),
        ("plugin.name", "pgoutput", "Postgres' own output plugin: nothing to install in the server"),
        ("slot.name", placement.slot, "the server keeps the log until this slot's reader has stored it"),
        ("publication.name", placement.slot, "the tables whose changes the slot sends"),
    ]


def _contents(placement: Placement) -> list[_Row]:
    rows: list[_Row] = []
    filtered = "Debezium adds to the publication exactly the tables that are read, when the connector starts"
    if placement.tables:
        rows.append(("table.include.list", _expressions(placement.tables), "these tables"))
    elif placement.schemas:
        rows.append(("schema.include.list", _expressions(placement.schemas), "every table of these schemas"))
    return [*rows, ("publication.autocreate.mode", "filtered", filtered)]


_LOSSLESS: tuple[_Row, ...] = (
    ("snapshot.mode", "initial", "rows from before the slot are read once"),
    ("skipped.operations", "none", "TRUNCATE is sent; Debezium leaves it out unless this is none"),
    ("tombstones.on.delete", "true", "a compacted topic forgets the values of a deleted row"),
    ("time.precision.mode", "adaptive", "times keep their microseconds"),
    ("interval.handling.mode", "string", "a month stays a month; as a number it would be 30.4 days"),
    (
        "include.unknown.datatypes",
        "true",
        "columns of types that Debezium doesn't know are sent as bytes, not left out",
    ),
    ("event.processing.failure.handling.mode", "fail", "an event that can't be processed stops the connector"),
    (
        "event.converting.failure.handling.mode",
        "fail",
        "a value that can't be converted stops it; with warn it becomes NULL, and in a NOT NULL column stops it too",
    ),
    (
        "heartbeat.interval.ms",
        "10000",
        "the slot moves on while the tables are quiet, so the server's log doesn't grow",
    ),
    (
        "heartbeat.action.query",
        f"SELECT pg_logical_emit_message(true, '{HEARTBEAT_MESSAGE}', '')",
        "likewise where only other databases of the server change; it writes to no table",
    ),
    ("message.prefix.exclude.list", HEARTBEAT_MESSAGE, "heartbeats come to no topic of messages"),
)


def _resync(placement: Placement) -> list[_Row]:
    """Returns the settings by which `ingest resync` reads a table again."""
    notifications = placement.notification_topic or f"{placement.prefix}-notifications"
    rows: list[_Row] = [
        ("read.only", "true", "a read of a table needs no signal table and writes nothing to the database"),
        ("notification.enabled.channels", "sink", "the connector tells how far such a read is"),
        ("notification.sink.topic.name", notifications, "in this topic"),
    ]
    if not placement.kafka.get("bootstrap.servers"):
        return rows
    return [
        *rows,
        ("signal.enabled.channels", "kafka", "`ingest resync` asks for such a read by Kafka"),
        ("signal.kafka.topic", placement.signal_topic or f"{placement.prefix}-signal", "in this topic"),
        ("signal.kafka.bootstrap.servers", placement.kafka["bootstrap.servers"], "of these brokers"),
        *_signal_consumer(placement.kafka),
    ]


def _signal_consumer(kafka: Mapping[str, str]) -> list[_Row]:
    """Returns how the connector connects to secured brokers. Secrets are references that Kafka Connect resolves."""
    rows = [
        (f"signal.consumer.{name}", kafka[name], "as the pipeline's file says")
        for name in ("security.protocol", "sasl.mechanism", "ssl.endpoint.identification.algorithm")
        if name in kafka
    ]
    if "sasl.jaas.config" in kafka:
        reason = "Kafka Connect puts it in, like the database's password"
        rows.append(("signal.consumer.sasl.jaas.config", "${env:KAFKA_SASL_JAAS_CONFIG}", reason))
    return rows


def _numbers(placement: Placement) -> list[_Row]:
    mode = "decimal.handling.mode"
    if not placement.numbers_as_text:
        return [(mode, "precise", "numbers keep all digits; NaN or Infinity in one stops it (--numbers-as-text)")]
    return [
        (mode, "string", "numbers are sent as their digits, NaN and Infinity as words"),
        ("datatype.propagate.source.type", NUMERIC_TYPES, "with their precision, so that they are numbers in silver"),
    ]


def _converters() -> list[_Row]:
    rows: list[_Row] = []
    for part in ("key", "value"):
        rows += [
            (f"{part}.converter", JSON_CONVERTER, "the settings below count only where the connector names it itself"),
            (f"{part}.converter.schemas.enable", "true", "each record carries the types of its columns"),
            (f"{part}.converter.replace.null.with.default", "false", "NULL stays NULL where a column has a default"),
        ]
    return rows


def _names(placement: Placement) -> list[_Row]:
    as_told = "as the pipeline's file says"
    named = {
        "unavailable.value.placeholder": placement.placeholder,
        "topic.heartbeat.prefix": placement.heartbeat_prefix,
        "topic.transaction": placement.transaction_suffix,
    }
    return [(name, value, as_told) for name, value in named.items() if value]


def _expressions(names: Sequence[str]) -> str:
    """Returns the names as Debezium's list of regular expressions, separated by commas, with all characters escaped."""
    return ",".join(re.sub(r"([^A-Za-z0-9_\s])", r"\\\1", name).replace("\\,", r"\x2C") for name in names)
