"""Finds the settings of a connector that lose or change data on their way to a topic, each with a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ingest.connector.converters import converter_risks
from ingest.connector.postgres_rules import POSTGRES_RULES
from ingest.connector.risk import Configuration, ReaderSettings, Risk
from ingest.connector.rules import Rule, if_set, unless, where
from ingest.connector.transforms import transform_risks

__all__ = ["ReaderSettings", "Risk", "risks", "topic_risks", "version_risks"]

_DEBEZIUM = "io.debezium.connector."
_POSTGRES = "io.debezium.connector.postgresql."
_MENDED_RESTARTS = (3, 7)
_DAY_MILLISECONDS = 86_400_000


def risks(properties: Mapping[str, str], reader: ReaderSettings) -> list[Risk]:
    """Returns the risks of a connector's configuration, as Connect's REST interface shows it, in a stable order.

    `reader`: the pipeline file's settings for the same connector.
    """
    config = Configuration(properties)
    if not config.connector_class.startswith(_DEBEZIUM):
        text = "it is not a connector of Debezium, whose events ingest reads"
        return [Risk("connector.class", config.connector_class, text, "name Debezium's connector in source.connect")]
    rules = [*_RULES, *(POSTGRES_RULES if config.connector_class.startswith(_POSTGRES) else ())]
    found = [risk for rule in rules if (risk := rule(config, reader)) is not None]
    return [*found, *converter_risks(config, reader), *transform_risks(config), *_altered_columns(config)]


def version_risks(connector_class: str, version: str) -> list[Risk]:
    """Returns the risk of an old version of Debezium's Postgres connector, such as 3.3.1.Final."""
    digits = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not connector_class.startswith(_POSTGRES) or not digits or digits >= _MENDED_RESTARTS:
        return []
    text = "a restart inside a COPY or a long transaction loses rows"
    return [Risk("version", version, text, "move to Debezium 3.7.0.Final or later")]


def topic_risks(topics: Mapping[str, Mapping[str, str]]) -> list[Risk]:
    """Returns the risks of topics that are only compacted; `topics` are their settings under Kafka's own names."""
    found = []
    for topic, settings in sorted(topics.items()):
        if settings.get("cleanup.policy") != "compact":
            continue
        hours = int(settings.get("delete.retention.ms", _DAY_MILLISECONDS)) / 3_600_000
        text = (
            "compaction leaves the newest record of a key: a value that it doesn't hold (an unchanged TOASTed one) is "
            f"lost, and so is a delete that isn't read within {hours:g} h"
        )
        remedy = "cleanup.policy=delete with a retention.ms that outlasts every pause, or REPLICA IDENTITY FULL"
        found.append(Risk(f"cleanup.policy of {topic}", "compact", text, f"{remedy} and no pause as long", loses=False))
    return found


def _operations(config: Configuration, _: ReaderSettings) -> Risk | None:
    skipped = config.get("skipped.operations", "t")
    named = {"c": "inserts", "u": "updates", "d": "deletes", "t": "TRUNCATE"}
    words = [named[part.strip()] for part in skipped.lower().split(",") if part.strip() in named]
    if not words:
        return None
    default = "" if "skipped.operations" in config else " (default)"
    text = f"{' and '.join(words)} never arrive: silver keeps what the source no longer holds"
    return Risk("skipped.operations", f"{skipped}{default}", text, "skipped.operations=none")


def _placeholder(config: Configuration, reader: ReaderSettings) -> Risk | None:
    name = "unavailable.value.placeholder"
    value = config.get(name, "__debezium_unavailable_value")
    if value == reader.placeholder:
        return None
    text = f"the pipeline's file says {reader.placeholder!r}, so the connector's would be stored as if it were data"
    return Risk(name, value, text, f"set the same in the pipeline's file: source.debezium: {{{name}: …}}")


def _prefix(config: Configuration, reader: ReaderSettings) -> Risk | None:
    value = config.get("topic.prefix", "")
    if reader.topic_prefix is None or value == reader.topic_prefix:
        return None
    text = f"the pipeline's file says {reader.topic_prefix!r}, so it may read another connector's topics"
    return Risk("topic.prefix", value, text, "correct source.debezium, or source.connect.connector")


def _heartbeat_topics(config: Configuration, reader: ReaderSettings) -> Risk | None:
    name = next((n for n in ("topic.heartbeat.prefix", "heartbeat.topics.prefix") if n in config), "")
    value = config.get(name, "__debezium-heartbeat")
    if value == reader.heartbeat_prefix:
        return None
    text = f"the pipeline's file says {reader.heartbeat_prefix!r}, so heartbeats would be taken for events"
    return Risk(name or "topic.heartbeat.prefix", value, text, "set the same in source.debezium", loses=False)


def _snapshot_rows(config: Configuration, reader: ReaderSettings) -> Risk | None:
    name = "snapshot.select.statement.overrides"
    if not config.get(name) or reader.snapshots == "partial":
        return None
    text = "rows that the snapshot leaves out are taken for deleted once it has ended"
    return Risk(name, config[name], text, "source: {snapshots: partial} in the pipeline's file")


def _snapshot_custom(config: Configuration, _: ReaderSettings) -> Risk | None:
    mode = config.get("snapshot.mode", "initial").lower()
    parts = {
        part: config.get(f"snapshot.mode.configuration.based.{part}", "false")
        for part in ("snapshot.data", "start.stream")
    }
    lacking = [part for part, value in parts.items() if value.lower() != "true"]
    if mode != "configuration_based" or not lacking:
        return None
    name = f"snapshot.mode.configuration.based.{lacking[0]}"
    return Risk(name, "false", "rows from before the slot, or all changes, are never sent", f"{name}=true")


def _heartbeat(config: Configuration, _: ReaderSettings) -> Risk | None:
    text = (
        "while the tables don't change the slot doesn't advance: the server keeps its log until the disk is full, or "
        "until the slot is dropped (max_slot_wal_keep_size), with all changes that were not read"
    )
    if config.get("heartbeat.interval.ms", "0") == "0":
        return Risk("heartbeat.interval.ms", "0", text, "heartbeat.interval.ms=10000", loses=False)
    return None


def _acks(config: Configuration, _: ReaderSettings) -> Risk | None:
    name = "producer.override.acks"
    if config.get(name, "all") in ("all", "-1"):
        return None
    return Risk(
        name, config[name], "a broker that fails loses events which the connector counts as sent", f"{name}=all"
    )


def _altered_columns(config: Configuration) -> Iterator[Risk]:
    """Yields the properties that mask, hash or truncate columns. Their names may contain a salt, so they are
    shortened."""
    for name in sorted(config):
        if found := re.match(r"column\.(mask\.hash|mask\.with|truncate\.to)", name):
            shown = f"{found[0]}.…"
            text = "silver and its history hold what the connector makes of these columns"
            yield Risk(shown, config[name], text, "none is needed where that is what you want", loses=False)


_PARTS_OF_TABLES = "what the connector leaves out can't be in silver"
_RULES: tuple[Rule, ...] = (
    _operations,
    unless(
        "tombstones.on.delete",
        ("true",),
        "true",
        "a compacted topic keeps the values of a deleted row for ever, and an erasure can't remove them there",
        "tombstones.on.delete=true",
        loses=False,
    ),
    where("decimal.handling.mode", {"double": "numbers are rounded to 15 digits"}, "decimal.handling.mode=precise"),
    where(
        "time.precision.mode",
        {
            "connect": "times are cut to milliseconds",
            "nanoseconds": "times before 1677 and after 2262 don't fit",
            "structured": "times arrive as objects of numbers, which silver stores as they are",
        },
        "time.precision.mode=adaptive",
    ),
    where(
        "snapshot.mode",
        {
            **dict.fromkeys(
                ("never", "no_data", "schema_only"), "rows from before the slot are missing until they change"
            ),
            "initial_only": "the connector ends with its snapshot: no change arrives",
        },
        "snapshot.mode=initial; or, on purpose, load a dump: `ingest backfill --dump`",
    ),
    _snapshot_custom,
    _snapshot_rows,
    if_set(("snapshot.include.collection.list",), f"{_PARTS_OF_TABLES}: other tables begin empty", "leave it out"),
    if_set(
        ("column.exclude.list", "column.include.list", "column.blacklist", "column.whitelist"),
        f"{_PARTS_OF_TABLES}; a key column that it leaves out makes rows one",
        "none is needed where that is what you want",
    ),
    if_set(
        ("message.key.columns",),
        "rows are identified by these columns: if they aren't unique, rows overwrite each other",
        "leave it out for tables that have a primary key",
    ),
    if_set(
        ("converters", "post.processors"),
        "code of its own changes values before they are sent",
        "none is needed where it keeps every value",
    ),
    unless(
        "event.processing.failure.handling.mode",
        ("fail",),
        "fail",
        "an event that can't be processed is dropped",
        "event.processing.failure.handling.mode=fail",
    ),
    unless(
        "event.converting.failure.handling.mode",
        ("fail",),
        "warn",
        "a value that can't be converted becomes NULL",
        "event.converting.failure.handling.mode=fail",
    ),
    unless("errors.tolerance", ("none",), "none", "a record that fails is dropped", "errors.tolerance=none"),
    unless(
        "field.name.adjustment.mode",
        ("none",),
        "none",
        "columns get other names, and two of them may get one",
        "field.name.adjustment.mode=none",
        loses=False,
    ),
    _acks,
    _placeholder,
    _prefix,
    _heartbeat,
    _heartbeat_topics,
)
