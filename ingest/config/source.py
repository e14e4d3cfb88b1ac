"""The configuration of a pipeline's changelog. Properties of Kafka and Debezium keep their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    AwareDatetime,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    SecretStr,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ingest.config.connect import ConnectSettings
from ingest.config.control_topics import ControlTopics, common_prefix
from ingest.config.properties import PropertiesField
from ingest.config.registry import RegistrySettings
from ingest.config.section import Section, Table, Text

# The reader decides these itself; a value from outside would be refused by Spark or change what is read.
_READER_DECIDES = {
    "auto.offset.reset": "say source.start_offsets instead",
    "enable.auto.commit": "the lakehouse itself remembers how far it has read",
    "key.deserializer": "keys are read as bytes",
    "value.deserializer": "values are read as bytes",
    "interceptor.classes": "Spark's Kafka source does not support it",
}

Offsets = Mapping[str, Mapping[NonNegativeInt, NonNegativeInt]]


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return text


def _start_offsets(value: Any) -> Any:
    """Validates the union in one step, for one error instead of one for each of its members."""
    if value in ("earliest", "latest") or isinstance(value, Mapping):
        return value
    raise PydanticCustomError("start_offsets", "should be earliest, latest or {topic: {partition: offset}}")


Regex = Annotated[Text, AfterValidator(_regex), Field(json_schema_extra={"format": "regex"})]
StartOffsets = Annotated[Literal["earliest", "latest"] | Offsets, BeforeValidator(_start_offsets)]


def _add_older_names(schema: dict[str, Any]) -> None:
    schema["properties"]["heartbeat.topics.prefix"] = {"type": "string", "minLength": 1, "deprecated": True}


class Debezium(Section):
    """Settings of the connector that the reader has to know, under Debezium's own property names."""

    model_config = ConfigDict(json_schema_extra=_add_older_names)

    topic_prefix: Text | None = Field(
        default=None,
        alias="topic.prefix",
        description="First part of the topics' names. Not needed to read them.",
    )
    unavailable_value_placeholder: Text = Field(
        default="__debezium_unavailable_value",
        alias="unavailable.value.placeholder",
        description="The placeholder for a value that the log did not hold, such as an unchanged TOASTed one.",
    )
    heartbeat_prefix: Text = Field(
        default="__debezium-heartbeat",
        # Debezium renamed it in 2.0 and still reads the old name in places.
        validation_alias=AliasChoices("topic.heartbeat.prefix", "heartbeat.topics.prefix"),
        serialization_alias="topic.heartbeat.prefix",
        description="First part of the names of heartbeat topics. heartbeat.topics.prefix is its older name.",
    )
    topic_transaction: Text = Field(
        default="transaction",
        alias="topic.transaction",
        description="Last part of the transaction topic's name.",
    )
    signal_topic: Text | None = Field(
        default=None,
        alias="signal.kafka.topic",
        description="The topic of the connector's signals, to which `ingest resync` writes. Default: PREFIX-signal.",
    )
    notification_topic: Text | None = Field(
        default=None,
        alias="notification.sink.topic.name",
        description="The topic of the connector's notifications, in which `ingest resync` reads the progress of a "
        "snapshot. Default: PREFIX-notifications.",
    )


class SourceSettings(Section):
    """A changelog on Kafka: its brokers, and which of its topics and tables to take."""

    kafka: PropertiesField = Field(
        description="Kafka client properties under Kafka's own (Java) names, passed through unchanged."
    )
    topics: Annotated[tuple[Text, ...], Field(min_length=1)] | None = Field(
        default=None, description="Topics by name. Give either these or topic_pattern."
    )
    topic_pattern: Regex | None = Field(
        default=None, description="A regular expression that matches whole topic names."
    )
    debezium: Debezium = Field(default_factory=Debezium)
    connect: ConnectSettings | None = Field(
        default=None, description="The connector's address, by which `ingest check --live` checks its settings."
    )
    database: SecretStr | None = Field(
        default=None,
        description="The connection to the source's Postgres, a libpq string from the environment: ${NAME}. Where no "
        "event shows what rows from before a new column read, its catalog is asked; the tables are not read.",
    )
    registry: RegistrySettings | None = Field(
        default=None, description="The schema registry of records in Avro or JSON Schema."
    )
    start_offsets: StartOffsets = Field(
        "earliest", description="Where the first run begins; a later run continues where the last one ended."
    )
    include_tables: Regex | None = Field(
        default=None,
        description="A regular expression of the tables to take; default: all. It matches whole names, with or "
        "without their schema.",
    )
    exclude_tables: Regex | None = Field(
        default=None,
        description="A regular expression of the tables to leave out, even if they are included. It matches whole "
        "names, with or without their schema.",
    )
    topic_tables: Mapping[Text, Table] = Field(
        default={}, description="topic: table, for events that don't name their table."
    )
    record_forms: Mapping[Text, Literal["debezium", "unwrapped", "upsert", "cloudevents"]] = Field(
        default={},
        description="topic: form of its records, where they don't tell it. debezium: events in Debezium's envelope. "
        "unwrapped: rows that ExtractNewRecordState has taken out of it, with the fields that it adds (__op, "
        "__deleted, ...). upsert: rows of any producer; a null value deletes the row of its key. "
        "cloudevents: Debezium's events in CloudEvents envelopes.",
    )
    table_names: Literal[
        "schema.table", "database.schema.table", "server.schema.table", "server.database.schema.table"
    ] = Field(
        default="schema.table",
        description="The parts of a table's name in the lakehouse. The server is the connector's topic.prefix. Where "
        "schemas are databases (MySQL), the database is named once. Rebuild the tables after a change: "
        "backfill --rebuild.",
    )
    renamed: Mapping[Text, Text] = Field(
        default={},
        description="For a server or database that was renamed. server/database now: the name before.",
    )
    snapshots: Literal["whole", "partial"] = Field(
        default="whole",
        description="whole: a snapshot reads every row of a table, so rows that it lacks are deleted once it has "
        "ended. partial: it may leave rows out (snapshot.select.statement.overrides, conditions of an "
        "ad-hoc snapshot).",
    )
    resync_topic: Text | None = Field(
        default=None,
        description="The topic to which `ingest resync` writes that a table was read as a whole; the pipeline reads it "
        "besides its own topics. Default: PREFIX-resync.",
    )
    case_insensitive: bool = Field(default=False, description="Columns that differ only in case are the same column.")
    times_out_of_range: Literal["clamp", "set_null", "quarantine", "keep"] = Field(
        default="clamp",
        description="What to do with dates and timestamps outside of the years 1 to 9999, infinite ones included, "
        "which many readers of Delta tables can't hold. clamp: store the nearest end, 0001-01-01 "
        "(0001-01-03 UTC with a time zone) or 9999-12-31 (23:59:59.999999 UTC). set_null: store null. "
        "quarantine: quarantine the event. keep: store them as they are.",
    )
    epochs: tuple[AwareDatetime, ...] = Field(
        default=(),
        description="Times, with a zone, from which the source's positions begin anew: another server took over, a "
        "backup was restored, or the log was reset. Every record written to Kafka since then counts as "
        "newer than all before.",
    )
    keys_in_two_partitions: Literal["offset", "stop"] = Field(
        default="offset",
        description="What to do if the source gives no position and changes of one key are in two partitions, so that "
        "their order is unknown. offset: the higher offset wins, with a warning. stop: fail with an "
        "error.",
    )
    restarts: Literal["stop", "ignore"] = Field(
        default="stop",
        description="What to do if positions go back to events never seen. stop: fail with an error, before any of it "
        "is merged. ignore: these are late events of the same log.",
    )
    recreated_topics: Literal["stop", "ignore"] = Field(
        default="stop",
        description="What to do if a topic was deleted and created again. stop: fail with an error, before any of it "
        "is captured. ignore: the new topic continues at the old one's offsets.",
    )

    @property
    def topic_prefix(self) -> str | None:
        """Returns the connector's `topic.prefix`: as the file names it, or the first part of all its topics; None if
        neither tells."""
        return self.debezium.topic_prefix or common_prefix(self.topics or (), self.topic_pattern)

    @property
    def control_topics(self) -> ControlTopics | None:
        """Returns the topics of signals, notifications and resyncs; None if the topic prefix isn't known."""
        prefix, debezium = self.topic_prefix, self.debezium
        if prefix is None:
            return None
        signals = debezium.signal_topic or f"{prefix}-signal"
        notifications = debezium.notification_topic or f"{prefix}-notifications"
        return ControlTopics(prefix, signals, notifications, self.resync_topic or f"{prefix}-resync")

    @property
    def changelog_pattern(self) -> str | None:
        """Returns `topic_pattern` without the control topics."""
        control = self.control_topics
        return (
            self.topic_pattern
            if self.topic_pattern is None or control is None
            else control.excluded_from(self.topic_pattern)
        )

    @model_validator(mode="after")
    def _require_topics_or_pattern(self) -> Self:
        if (self.topics is None) == (self.topic_pattern is None):
            raise ValueError("needs exactly one of topics and topic_pattern")
        if self.topics is not None:
            if len(set(self.topics)) < len(self.topics):
                raise ValueError("names a topic twice in topics")
            offsets = {} if isinstance(self.start_offsets, str) else self.start_offsets
            absent = sorted((set(offsets) | set(self.topic_tables) | set(self.record_forms)) - set(self.topics))
            if absent:
                raise ValueError(
                    f"start_offsets, topic_tables or record_forms name {absent[0]!r}, which is not in topics"
                )
        return self

    @model_validator(mode="after")
    def _require_reader_properties(self) -> Self:
        for key in self.kafka:
            if key in _READER_DECIDES:
                raise ValueError(f"kafka can't hold {key!r}: {_READER_DECIDES[key]}")
            if key.startswith("kafka."):
                raise ValueError(f"kafka holds {key!r}: leave out the leading 'kafka.'")
        if not self.kafka.get("bootstrap.servers", "").strip():
            raise ValueError("kafka needs 'bootstrap.servers', a list such as host:9092,host:9092")
        return self
