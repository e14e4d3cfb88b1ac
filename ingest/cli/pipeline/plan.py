"""The plan of a pipeline, what it reads and where everything is stored, as plain values and as a table."""

from __future__ import annotations

import json
from typing import Any

from rich.table import Table

from ingest.config import Pipeline, TableSettings
from ingest.names import path_segment

_MODES = ("available-now", "continuous")
_ANY_TABLE = "<table>"


def plan(pipeline: Pipeline) -> dict[str, Any]:
    """Returns what the pipeline reads and where everything is stored, as plain values without secrets.

    `tables` holds the tables that the file lets foresee. Other tables are named by their events and stored at
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
                **_declarations(pipeline.tables.get(table)),
                "silver": layout.silver(pipeline.name, table),
                "tombstones": layout.tombstones(pipeline.name, table),
                **_history(pipeline, table),
            }
            for table, topics in _tables_in_file(pipeline).items()
        },
        "other_tables": {
            "silver": f"{layout.root.rstrip('/')}/silver/{path_segment(pipeline.name)}/{_ANY_TABLE}",
            "tombstones": f"{layout.root.rstrip('/')}/tombstones/{path_segment(pipeline.name)}/{_ANY_TABLE}",
        },
        "subjects": _subjects(pipeline),
        "archive": _archive(pipeline),
        "quarantine": layout.quarantine,
        "accounts": layout.accounts,
        "batch": pipeline.batch.model_dump() | {"merge_events": pipeline.batch.merged_at_once},
        "modes": list(_MODES),
        "spark": pipeline.spark.shown(),
    }


def _tables_in_file(pipeline: Pipeline) -> dict[str, list[str]]:
    """Returns table → topics, for the tables that the file names and those of topics that Debezium has named."""
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
    """Returns table → how its rows lead to subjects."""
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


def _declarations(settings: TableSettings | None) -> dict[str, Any]:
    """Returns the file's declarations for a table; all but the key are left out if they are absent."""
    if settings is None:
        return {"primary_key": []}
    found: dict[str, Any] = {"primary_key": list(settings.primary_key or ())}
    if settings.columns:
        found["columns"] = dict(settings.columns)
    if settings.sequence is not None:
        found["sequence"] = settings.sequence
    if settings.append_only:
        found["append_only"] = True
    return found


def _history(pipeline: Pipeline, table: str) -> dict[str, str]:
    """Returns the path of the row history if the table keeps one."""
    settings = pipeline.tables.get(table)
    kept = settings is not None and settings.history
    return {"history": pipeline.layout.history(pipeline.name, table)} if kept else {}


def _archive(pipeline: Pipeline) -> dict[str, Any] | None:
    """Returns the archive's location without credentials."""
    archive = pipeline.archive
    if archive is None:
        return None
    return {"uri": archive.uri, "layout": archive.layout, "s3": archive.s3.shown()}


def plan_table(composed: dict[str, Any]) -> Table:
    """Returns the result of `plan` as a table of two columns."""
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
        if "history" in places:
            shown.add_row(f"history {table}", places["history"])
        if declared := _declared_text(places):
            shown.add_row(f"declared {table}", declared)
    shown.add_row("silver, any other", composed["other_tables"]["silver"])
    shown.add_row("tombstones, any other", composed["other_tables"]["tombstones"])
    for table, path_text in composed["subjects"].items():
        shown.add_row(f"subjects of {table}", path_text)
    archive = composed["archive"]
    shown.add_row("archive", "none" if archive is None else f"{archive['uri']} (layout {archive['layout']})")
    for key in ("quarantine", "accounts"):
        shown.add_row(key, composed[key])
    batch = composed["batch"]
    sizes = f"at most {batch['max_events']:,} events, about {batch['merge_events']:,} merged at once where more wait"
    shown.add_row("batch", f"{sizes}, {batch['poll_seconds']:g} s between polls")
    shown.add_row("modes", ", ".join(composed["modes"]))
    for key, value in composed["spark"].items():
        shown.add_row("spark", f"{key} = {value}")
    return shown


def _declared_text(places: dict[str, Any]) -> str:
    """Returns the declarations of a table, a line each."""
    lines = []
    if places["primary_key"]:
        lines.append(f"primary key {', '.join(places['primary_key'])}")
    lines += [f"{column} {text}" for column, text in places.get("columns", {}).items()]
    if "sequence" in places:
        lines.append(f"ordered by {places['sequence']}")
    if places.get("append_only"):
        lines.append("append only")
    return "\n".join(lines)
