"""Shows the state of a pipeline's Kafka and connector, and the settings that lose data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from ingest.changelog.ddl_message import DDL_MESSAGE
from ingest.config import Pipeline
from ingest.config.connect import ConnectSettings
from ingest.config.source import SourceSettings
from ingest.connector import Connectors, ReaderSettings, Risk, risks, topic_risks, version_risks
from ingest.connector.recipe import POSTGRES_CLASS
from ingest.errors import SourceRefused
from ingest.pipeline.pending_changes import known_tables, pending_changes, unfollowed_tables
from ingest.sources.captured import captured_offsets, is_remote
from ingest.sources.declarations import mismatches, unseen_columns
from ingest.sources.kafka import message_topics
from ingest.sources.kafka_admin import KafkaAdmin, lag
from ingest.sources.newest_events import RecordShape, RegistryLookup, UnreadableTopic, newest_shapes
from ingest.sources.registry import SchemaRegistry

_NO_TRIGGERS = Risk(
    DDL_MESSAGE,
    "(no messages)",
    "what an event's schema can't show of a changed table is assumed: renames, and what older rows read",
    "install the source's triggers: ingest connector ddl-trigger postgres",
    loses=False,
)


def live_state(pipeline: Pipeline) -> dict[str, Any]:
    """Returns the current state of Kafka, bronze and the connector. Offsets are {topic: {partition: offset}}.

    `captured` and `lag` are None unless `bronze` is "read"; it is "absent" before the first capture and "remote" in an
    object store. `connector` is None if the file names none. `risks` are settings of the connector and of topics that
    lose data; `problems` are declarations of the file that the newest events contradict, `notes` those that may be
    outdated, or that keep messages of the source from taking effect. `changes` are those of tables that the newest
    events show and that are not merged yet, with what becomes of them; None for a catalog in an object store. Raises
    SourceRefused and Unreachable.
    """
    admin = KafkaAdmin(pipeline.source.kafka)
    tables = admin.topics(pipeline.source.topics, pipeline.source.changelog_pattern)
    messages = admin.present(message_topics(tables, pipeline.source.debezium.topic_prefix))
    topics = tuple(sorted({*tables, *messages}))
    beginning = admin.beginning_offsets(topics)
    end = admin.end_offsets(topics)
    path = pipeline.layout.bronze(pipeline.name)
    remote = is_remote(path)
    captured = None if remote else captured_offsets(path)
    behind = None
    if captured is not None:
        # A partition added since the last capture is read from its beginning.
        reached = {t: {**ps, **captured.get(t, {})} for t, ps in beginning.items()}
        behind = lag(end, reached)
    source = pipeline.source
    ends = {topic: partitions for topic, partitions in end.items() if topic not in messages}
    named = {topic: topic for topic, form in source.record_forms.items() if form in ("unwrapped", "upsert")}
    named |= source.topic_tables
    shapes = newest_shapes(source.kafka, beginning, ends, named, source.table_names, _registered(source))
    connector, connector_risks = _connector(source.connect, source, topics) if source.connect else (None, [])
    accepted = source.connect.accept if source.connect is not None else ()
    return {
        "brokers": list(admin.brokers()),
        "beginning": beginning,
        "end": end,
        "bronze": "remote" if remote else "absent" if captured is None else "read",
        "captured": captured,
        "lag": behind,
        "connector": connector,
        "risks": [
            asdict(risk) | {"accepted": risk.setting in accepted}
            for risk in (*connector_risks, *_topic_risks(admin, topics))
        ],
        "changes": None if remote else _pending(pipeline, shapes),
        "problems": mismatches(pipeline, shapes),
        "notes": [*unseen_columns(pipeline, shapes), *(unfollowed_tables(pipeline).values() if messages else ())],
    }


def _pending(pipeline: Pipeline, shapes: Sequence[RecordShape | UnreadableTopic]) -> list[dict[str, Any]]:
    known = known_tables(pipeline.layout.tables, pipeline.name)
    return [asdict(change) for change in pending_changes(pipeline, shapes, known)]


def _registered(source: SourceSettings) -> RegistryLookup | None:
    settings = source.registry
    if settings is None:
        return None
    registry = SchemaRegistry(settings.url, settings.login, settings.ca_file)
    return RegistryLookup(registry, settings.prefix_ids)


def _connector(
    place: ConnectSettings, source: SourceSettings, topics: tuple[str, ...]
) -> tuple[dict[str, Any], list[Risk]]:
    """Returns the state of the pipeline's connector, and the risks of its configuration and version.

    `unread_topics` are topics that it has written to and the pipeline doesn't read.
    """
    debezium = source.debezium
    connectors = Connectors(place.url, place.login, place.ca_file)
    config = connectors.configuration(place.connector)
    status = connectors.status(place.connector)
    control = source.control_topics
    unread = [
        topic
        for topic in connectors.topics(place.connector)
        if topic not in topics
        and topic != config.get("notification.sink.topic.name")
        and not topic.startswith(f"{debezium.heartbeat_prefix}.")
        and not topic.endswith(f".{debezium.topic_transaction}")
    ]
    state = {
        "name": place.connector,
        "state": status.state,
        "tasks": list(status.task_states),
        "failures": list(status.failures),
        "unread_topics": unread,
    }
    reader = ReaderSettings(
        debezium.topic_prefix,
        debezium.unavailable_value_placeholder,
        debezium.heartbeat_prefix,
        source.snapshots,
        source.kafka["bootstrap.servers"],
        source.registry is not None,
        control.notifications if control is not None else None,
    )
    kind = config.get("connector.class", "")
    found = [*risks(config, reader), *version_risks(kind, connectors.version_of(kind))]
    if kind == POSTGRES_CLASS and not message_topics(topics, config.get("topic.prefix")) & {*topics}:
        found.append(_NO_TRIGGERS)
    return state, found


def _topic_risks(admin: KafkaAdmin, topics: tuple[str, ...]) -> list[Risk]:
    """Returns the risks of the topics' settings, which need DescribeConfigs to be read; records don't."""
    try:
        return topic_risks(admin.properties(topics))
    except SourceRefused:
        text = "the user may not read the topics' settings, so it isn't known whether compaction removes deletes"
        return [Risk("cleanup.policy", "unknown", text, "grant DescribeConfigs on the topics", loses=False)]


def live_table(live: dict[str, Any]) -> Table:
    """Returns the offsets of each topic partition as a table: beginning, end, captured and lag."""
    caption = {
        "remote": "Bronze is in an object store, whose offsets this command does not read.",
        "absent": "No bronze yet.",
    }
    shown = Table(
        title=f"Kafka at {', '.join(live['brokers'])}",
        title_justify="left",
        caption=caption.get(live["bronze"]),
        caption_justify="left",
    )
    shown.add_column("topic", overflow="fold")
    for heading in ("partition", "beginning", "end", "captured", "lag"):
        shown.add_column(heading, justify="right")
    for topic, partitions in sorted(live["end"].items()):
        for partition, end in sorted(partitions.items()):
            captured = (live["captured"] or {}).get(topic, {}).get(partition)
            shown.add_row(
                topic,
                str(partition),
                str(live["beginning"][topic][partition]),
                str(end),
                "-" if captured is None else str(captured),
                "-" if live["lag"] is None else _lag_text(live["lag"][topic][partition]),
            )
    return shown


def _lag_text(behind: int) -> str:
    return str(behind) if behind >= 0 else f"{behind}: the topic was recreated"


def risk_table(live: dict[str, Any]) -> Table:
    """Returns the risks, each with its remedy."""
    connector = live["connector"]
    title = "Topics" if connector is None else f"Connector {connector['name']} and its topics"
    shown = Table(title=title, title_justify="left", show_lines=True)
    for heading in ("setting", "effect", "what to do"):
        shown.add_column(heading, overflow="fold")
    for risk in live["risks"]:
        weight = "accepted" if risk["accepted"] else "loses data" if risk["loses"] else "note"
        shown.add_row(f"{risk['setting']}={risk['value']}", f"{weight}: {risk['effect']}", risk["remedy"])
    return shown


def change_lines(live: dict[str, Any]) -> list[str]:
    """Returns a sentence about each change of a table that is not merged yet."""
    lines = []
    for change in live["changes"] or ():
        depends = f"; it is named by: {', '.join(change['depends'])}" if change["depends"] else ""
        lines.append(f"Table {change['table']}: {change['change']} will be {change['outcome']}{depends}.")
    return lines


def connector_lines(live: dict[str, Any]) -> list[str]:
    """Returns sentences about the connector."""
    connector = live["connector"]
    if connector is None:
        return ["The file names no connector (source.connect), so its settings were not checked."]
    tasks = ", ".join(connector["tasks"]) or "none yet"
    lines = [f"Connector {connector['name']} is {connector['state']}; its tasks: {tasks}."]
    if connector["unread_topics"]:
        lines.append(f"It writes topics that the pipeline doesn't read: {', '.join(connector['unread_topics'])}.")
    if not any(risk["loses"] for risk in live["risks"]):
        lines.append("None of its settings loses data.")
    return lines
