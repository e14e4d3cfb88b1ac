"""The key references of events, for a search: only of those spans of a pipeline's histories that may reference the
subjects' keys."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import EVENT_ID
from ingest.erasure.context import ErasureContext
from ingest.erasure.places import BRONZE
from ingest.erasure.places.place import ITEM, PLACE, REQUEST
from ingest.erasure.subject_index import Span, index_of, merge_spans
from ingest.erasure.table_events import COLUMN, KIND, VALUE, TableEvents, rules_of_readers, schemas_of
from ingest.merge.actions import TOMBSTONE_KEY
from ingest.suppression.key_references import OWN_KEYS, REFERENCES


class EventReferences:
    """The events of all readers, merged or not. It opens spans as keys become known."""

    def __init__(self, context: ErasureContext) -> None:
        self._context = context
        self._rules = rules_of_readers(context)
        self._schemas = schemas_of(self._rules)
        versions = [entry.key_version for entry in context.ledger.requests().values()]
        self._indexes = [
            (r, index_of(context.spark, context.pipeline, r, context.table_schemas, context.keys, versions))
            for r in context.readers
        ]
        self._opened: dict[str, frozenset[Span]] = {}
        self._events: TableEvents | None = None

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
            self._events = TableEvents(self._context, reduce(DataFrame.unionByName, event_frames), self._schemas)
        return bool(event_frames)

    def of_table(self, table: str) -> DataFrame | None:
        """Returns the references of the table's events in the opened spans."""
        events = None if self._events is None else self._events.references(table)
        if events is None:
            return None
        item = F.to_json(EVENT_ID)
        no_tombstone_key = F.lit(None).cast("binary").alias(TOMBSTONE_KEY)
        return events.select(F.lit(BRONZE).alias(PLACE), item.alias(ITEM), no_tombstone_key, OWN_KEYS, REFERENCES)

    def values(self, table: str, columns: Collection[str], rows: DataFrame) -> DataFrame | None:
        """Returns `REQUEST`, `COLUMN`, `KIND` and `VALUE` of the values that these columns have in the events among
        found `rows` (`PLACE`, `ITEM`, `REQUEST`) of a table, each once."""
        type_of_id = "topic string, partition int, offset bigint"
        of_bronze = rows.where(F.col(PLACE) == BRONZE)
        events = of_bronze.select(F.from_json(ITEM, type_of_id).alias(EVENT_ID), REQUEST)
        coordinates = F.broadcast(events.select(f"{EVENT_ID}.*").distinct())
        found = None if self._events is None else self._events.values(table, columns, coordinates)
        if found is None:
            return None
        return found.join(F.broadcast(events), EVENT_ID).select(REQUEST, COLUMN, KIND, VALUE).distinct()
