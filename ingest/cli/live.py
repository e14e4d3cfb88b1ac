"""What a pipeline's Kafka is like right now."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from ingest.config import Pipeline
from ingest.sources.captured import captured_offsets, is_remote
from ingest.sources.kafka_admin import KafkaAdmin, lag


def observed(pipeline: Pipeline) -> dict[str, Any]:
    """The state of Kafka and bronze right now. Offsets are {topic: {partition: offset}}.

    `captured` and `lag` are None where `bronze` isn't "read": "absent" before the first capture, "remote"
    where it lies in an object store. Raises SourceRefused and Unreachable.
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
    }


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
