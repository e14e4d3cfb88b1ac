"""The key references of events, for a search: only of those spans of a pipeline's histories that may reference the
subjects' keys."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.group_stats import CHANGE, Group, groups_by_slice
from ingest.batches.schemas import Schemas
from ingest.changelog.change import EVENT_ID
from ingest.erasure.context import ErasureContext
from ingest.erasure.places import BRONZE
from ingest.erasure.places.place import ITEM, PLACE
from ingest.erasure.subject_index import Span, index_of, merge_spans
from ingest.evolution.inferred.inference import stored_column
from ingest.loop.suppression.event_references import key_references, with_key
from ingest.merge.actions import TOMBSTONE_KEY
from ingest.suppression.key_references import OWN_KEYS, REFERENCES


class EventReferences:
    """The events of all readers, merged or not. It opens spans as keys become known."""

    def __init__(self, context: ErasureContext) -> None:
        self._context = context
        rules, readers = context.rules, context.readers
        columns = reduce(lambda known, reader: known | dict(reader.columns), readers, dict(rules.columns))
        self._rules = replace(rules, columns=columns)
        self._table_schemas = {e.table_schema.table: e.table_schema for e in context.table_schemas.entries}
        self._lives = {e.table_schema.table: e.lives for e in context.table_schemas.entries}
        self._schemas = Schemas(
            rules.shredded.columns, rules.times_out_of_range, nesting_depth=rules.limits.nesting_depth
        )
        versions = [entry.key_version for entry in context.ledger.requests().values()]
        self._indexes = [
            (r, index_of(context.spark, context.pipeline, r, context.table_schemas, context.keys, versions))
            for r in readers
        ]
        self._opened: dict[str, frozenset[Span]] = {}
        self._groups: dict[str, list[Group]] = {}
        self._events: DataFrame | None = None

    def extend(self, keys: DataFrame) -> bool:
        """Opens the spans that may reference these keys. Returns True if there are more than before."""
        versioned = keys.withColumn("key_version", F.lit(self._context.keys.newest))
        spans = {r.writer: frozenset([*index.spans_with(versioned), *index.unindexed]) for r, index in self._indexes}
        if all(opened <= self._opened.get(reader, frozenset()) for reader, opened in spans.items()):
            return False
        self._opened = {reader: opened | self._opened.get(reader, frozenset()) for reader, opened in spans.items()}
        event_frames = [
            reader.bronze(self._context.spark, self._rules).between(*span)
            for reader in self._context.readers
            for span in merge_spans(self._opened[reader.writer])
        ]
        if event_frames:
            self._events = reduce(DataFrame.unionByName, event_frames)
            self._groups = self._groups_by_table(self._events)
        return bool(event_frames)

    def of_table(self, table: str) -> DataFrame | None:
        """Returns the references of the table's events in the opened spans."""
        if self._events is None or table not in self._groups:
            return None
        table_schema = self._table_schemas.get(table)
        types = self._rules.columns.get(table, {})
        known_columns = tuple(map(stored_column, table_schema.columns)) if table_schema is not None else ()
        key = table_schema.key if table_schema is not None else self._rules.primary_keys.get(table, ())
        with_columns = [(group, self._schemas.columns(group, types)) for group in self._groups[table]]
        incoming = [(group, with_key(wire, key, known_columns)) for group, wire in with_columns]
        now = self._lives.get(table)
        stored = () if table_schema is None else table_schema.columns
        told = now if now is not None and now.are_told else None
        by = (table, key, incoming, known_columns, self._rules, stored, told)
        events = key_references(self._events, None, *by)
        item = F.to_json(EVENT_ID)
        no_tombstone_key = F.lit(None).cast("binary").alias(TOMBSTONE_KEY)
        return events.select(F.lit(BRONZE).alias(PLACE), item.alias(ITEM), no_tombstone_key, OWN_KEYS, REFERENCES)

    def _groups_by_table(self, events: DataFrame) -> dict[str, list[Group]]:
        """Returns table → its groups of changes among the events."""
        of_subjects = events.where(F.col("source_table").isin(*self._rules.subjects.tables))
        groups_by_table: dict[str, list[Group]] = {}
        for group in groups_by_slice(of_subjects, F.lit(0)).get(0, []):
            if group.table is not None and group.kind == CHANGE and group.problem is None:
                groups_by_table.setdefault(group.table, []).append(group)
        self._schemas.learn(events, [g for groups in groups_by_table.values() for g in groups])
        return groups_by_table
