"""`ingest check`: is the pipeline file right, what will it do, and does its Kafka answer? Needs no Spark."""

from __future__ import annotations

import json
import logging
from typing import Annotated, Any

import typer
from rich.table import Table

from ingest.cli.printing import verbatim
from ingest.config import Pipeline, json_schema_text, load
from ingest.errors import ConfigError
from ingest.names import path_segment
from ingest.sources.captured import captured_offsets, is_remote
from ingest.sources.kafka_admin import KafkaAdmin, lag

_MODES = ("available-now", "continuous")
_ANY_TABLE = "<table>"


def check(
    pipeline: Annotated[str | None, typer.Argument(help="A pipeline's name, or the path of its file.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Ask Kafka for topics, offsets and lag.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document in place of tables.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema for editors.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Log what the Kafka client does.")] = False,
) -> None:
    """Check a pipeline file and show what it will read and write, without running it."""
    if debug:
        logging.basicConfig(level=logging.DEBUG)
    if schema:
        typer.echo(json_schema_text(), nl=False)
        return
    if pipeline is None:
        raise ConfigError("no pipeline is given", "give its name, or the path of its file")
    checked = load(pipeline)
    console = verbatim()
    composed = plan(checked)
    if not as_json:
        console.print(_plan_table(composed))
    if live:
        composed["live"] = observed(checked)
        if not as_json:
            console.print(_live_table(composed["live"]))
    if as_json:
        typer.echo(json.dumps(composed, indent=2, ensure_ascii=False))


def plan(pipeline: Pipeline) -> dict[str, Any]:
    """What the pipeline reads and where everything lands, as plain values without secrets.

    `tables` holds those that the file lets foresee; the others are named by their events and land at
    `other_tables`, where `<table>` stands for the table's folder.
    """
    source, layout = pipeline.source, pipeline.layout
    start = source.start_offsets
    return {
        "pipeline": pipeline.name,
        "source": {
            "kafka": source.kafka.shown(),
            "topics": list(source.topics or ()),
            "topic_pattern": source.topic_pattern,
            "start_offsets": start if isinstance(start, str) else {t: dict(ps) for t, ps in start.items()},
            "include_tables": source.include_tables,
            "exclude_tables": source.exclude_tables,
        },
        "bronze": layout.bronze(pipeline.name),
        "tables": {
            table: {
                "topics": topics,
                "primary_key": list(pipeline.tables[table].primary_key or ()) if table in pipeline.tables else [],
                "silver": layout.silver(pipeline.name, table),
                "tombstones": layout.tombstones(pipeline.name, table),
            }
            for table, topics in _foreseen(pipeline).items()
        },
        "other_tables": {
            "silver": f"{layout.root.rstrip('/')}/silver/{path_segment(pipeline.name)}/{_ANY_TABLE}",
            "tombstones": f"{layout.root.rstrip('/')}/tombstones/{path_segment(pipeline.name)}/{_ANY_TABLE}",
        },
        "subjects": _subjects(pipeline),
        "quarantine": layout.quarantine,
        "accounts": layout.accounts,
        "batch": pipeline.batch.model_dump() | {"merge_events": pipeline.batch.merged_at_once},
        "modes": list(_MODES),
        "spark": pipeline.spark.shown(),
    }


def observed(pipeline: Pipeline) -> dict[str, Any]:
    """What Kafka and bronze say right now. Offsets are {topic: {partition: offset}}.

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


def _foreseen(pipeline: Pipeline) -> dict[str, list[str]]:
    """table → topics, for the tables that the file names and those of topics that Debezium has named."""
    source = pipeline.source
    tables: dict[str, list[str]] = {table: [] for table in pipeline.tables}
    prefix = f"{source.debezium.topic_prefix}."
    named = dict(source.topic_tables)
    for topic in source.topics or ():
        if topic not in named and source.debezium.topic_prefix and topic.startswith(prefix):
            named[topic] = topic.removeprefix(prefix)
    for topic, table in named.items():
        tables.setdefault(table, []).append(topic)
    return dict(sorted(tables.items()))


def _subjects(pipeline: Pipeline) -> dict[str, str]:
    """Tables whose rows lead to subjects, and how."""
    found = {}
    for table, settings in pipeline.tables.items():
        subject = settings.subject
        if subject is not None and subject.of is not None:
            deletes = "; a delete at the source asks for erasure" if settings.erase_on_delete else ""
            found[table] = f"{subject.of} by {subject.key}{deletes}"
        elif subject is not None:
            found[table] = ", ".join(f"{column} → {parent}" for column, parent in (subject.through or {}).items())
        if settings.shred:
            found[table] += f"; shreds {', '.join(settings.shred)}"
    return found


def _plan_table(composed: dict[str, Any]) -> Table:
    source = composed["source"]
    shown = Table(title=f"Pipeline {composed['pipeline']}", title_justify="left", show_header=False)
    shown.add_column(style="bold", no_wrap=True)
    shown.add_column(overflow="fold")
    for key, value in source["kafka"].items():
        shown.add_row(f"kafka {key}", value)
    shown.add_row("topics", ", ".join(source["topics"]) or f"all that match {source['topic_pattern']}")
    start = source["start_offsets"]
    shown.add_row("start", start if isinstance(start, str) else json.dumps(start))
    for key in ("include_tables", "exclude_tables"):
        if source[key] is not None:
            shown.add_row(key.replace("_", " "), source[key])
    shown.add_row("bronze", composed["bronze"])
    for table, places in composed["tables"].items():
        shown.add_row(f"silver {table}", places["silver"])
        shown.add_row(f"tombstones {table}", places["tombstones"])
    shown.add_row("silver, any other", composed["other_tables"]["silver"])
    shown.add_row("tombstones, any other", composed["other_tables"]["tombstones"])
    for table, way in composed["subjects"].items():
        shown.add_row(f"subjects of {table}", way)
    for key in ("quarantine", "accounts"):
        shown.add_row(key, composed[key])
    batch = composed["batch"]
    sizes = f"at most {batch['max_events']:,} events, about {batch['merge_events']:,} merged at once where more wait"
    shown.add_row("batch", f"{sizes}, {batch['poll_seconds']:g} s between polls")
    shown.add_row("modes", ", ".join(composed["modes"]))
    for key, value in composed["spark"].items():
        shown.add_row("spark", f"{key} = {value}")
    return shown


def _live_table(live: dict[str, Any]) -> Table:
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
