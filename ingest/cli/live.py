"""What a pipeline's Kafka and connector are like right now, and what of it loses data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from ingest.config import Pipeline
from ingest.connector import Connectors, Reader, Risk, risks, topic_risks, version_risks
from ingest.errors import SourceRefused
from ingest.sources.captured import captured_offsets, is_remote
from ingest.sources.declarations import mismatches
from ingest.sources.kafka_admin import KafkaAdmin, lag
from ingest.sources.newest import newest_shapes


def observed(pipeline: Pipeline) -> dict[str, Any]:
    """The state of Kafka, bronze and the connector right now. Offsets are {topic: {partition: offset}}.

    `captured` and `lag` are None where `bronze` isn't "read": "absent" before the first capture, "remote"
    where it lies in an object store. `risks` are settings of the connector and of topics; `problems` are declarations
    of the file that the newest events contradict. Raises SourceRefused and Unreachable.
    """
    admin = KafkaAdmin(pipeline.source.kafka)
    topics = admin.topics(pipeline.source.topics, pipeline.source.topic_pattern)
    beginning = admin.beginning_offsets(topics)
    end = admin.end_offsets(topics)
    path = pipeline.layout.bronze(pipeline.name)
    remote = is_remote(path)
    captured = None if remote else captured_offsets(path)
    behind = None
    if captured is not None:
        # A partition that is new since the last capture is read from its beginning.
        reached = {t: {**ps, **captured.get(t, {})} for t, ps in beginning.items()}
        behind = lag(end, reached)
    return {
        "brokers": list(admin.brokers()),
        "beginning": beginning,
        "end": end,
        "bronze": "remote" if remote else "absent" if captured is None else "read",
        "captured": captured,
        "lag": behind,
        "connector": _connector(pipeline, topics),
        "risks": _risks(pipeline, admin, topics),
        "problems": mismatches(
            pipeline, newest_shapes(pipeline.source.kafka, beginning, end, pipeline.source.topic_tables)
        ),
    }


def _connectors(pipeline: Pipeline) -> Connectors | None:
    told = pipeline.source.connect
    return Connectors(told.url, told.login, told.ca_file) if told is not None else None


def _connector(pipeline: Pipeline, topics: tuple[str, ...]) -> dict[str, Any] | None:
    """The state of the connector, and the topics that it writes and the pipeline doesn't read; None where unnamed."""
    told, connectors = pipeline.source.connect, _connectors(pipeline)
    if told is None or connectors is None:
        return None
    connectors.configuration(told.connector)  # raises where it isn't there
    status = connectors.status(told.connector)
    debezium = pipeline.source.debezium
    unread = [
        topic
        for topic in connectors.topics(told.connector)
        if topic not in topics
        and not topic.startswith(f"{debezium.heartbeat_prefix}.")
        and not topic.endswith(f".{debezium.topic_transaction}")
    ]
    return {
        "name": told.connector,
        "state": status.state,
        "tasks": list(status.task_states),
        "failures": list(status.failures),
        "unread_topics": unread,
    }


def _risks(pipeline: Pipeline, admin: KafkaAdmin, topics: tuple[str, ...]) -> list[dict[str, Any]]:
    """The risks of the connector, where the file names it, and of the topics."""
    told, connectors = pipeline.source.connect, _connectors(pipeline)
    found: list[Risk] = []
    if told is not None and connectors is not None:
        debezium = pipeline.source.debezium
        reader = Reader(
            debezium.topic_prefix,
            debezium.unavailable_value_placeholder,
            debezium.heartbeat_prefix,
            pipeline.source.snapshots,
        )
        config = connectors.configuration(told.connector)
        kind = config.get("connector.class", "")
        found += [*risks(config, reader), *version_risks(kind, connectors.version_of(kind))]
    found += _of_topics(admin, topics)
    accepted = set(told.accept) if told is not None else set()
    return [asdict(risk) | {"accepted": risk.setting in accepted} for risk in found]


def _of_topics(admin: KafkaAdmin, topics: tuple[str, ...]) -> list[Risk]:
    """The risks of the topics' own settings, whose reading takes a right that reading their records doesn't."""
    try:
        return topic_risks(admin.properties(topics))
    except SourceRefused:
        text = "the user may not read the topics' settings, so it isn't known whether compaction removes deletes"
        return [Risk("cleanup.policy", "unknown", text, "grant DescribeConfigs on the topics", loses=False)]


def live_table(live: dict[str, Any]) -> Table:
    caption = {
        "remote": "How far bronze has read is not told of an object store.",
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
    """Each risk with its remedy."""
    connector = live["connector"]
    title = "Topics" if connector is None else f"Connector {connector['name']}: {connector['state']}"
    shown = Table(title=title, title_justify="left", show_lines=True)
    for heading in ("setting", "effect", "what to do"):
        shown.add_column(heading, overflow="fold")
    for risk in live["risks"]:
        word = "accepted" if risk["accepted"] else "loses data" if risk["loses"] else "mind"
        shown.add_row(f"{risk['setting']}={risk['value']}", f"{word}: {risk['effect']}", risk["remedy"])
    return shown


def connector_lines(live: dict[str, Any]) -> list[str]:
    """Sentences about the connector for people."""
    connector = live["connector"]
    if connector is None:
        return ["The file names no connector (source.connect), so its settings were not checked."]
    lines = [f"Connector {connector['name']} is {connector['state']}, its tasks {', '.join(connector['tasks'])}."]
    if connector["failures"]:
        lines.append(f"It failed: {', '.join(connector['failures'])}. Read the worker's log.")
    if connector["unread_topics"]:
        lines.append(f"It writes topics that the pipeline doesn't read: {', '.join(connector['unread_topics'])}.")
    if not any(risk["loses"] for risk in live["risks"]):
        lines.append("None of its settings loses data.")
    return lines
