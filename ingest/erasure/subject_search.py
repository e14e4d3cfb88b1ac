"""Finds the rows and events of subjects in a lakehouse: those that reference their keys, table by table along the
foreign keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.source_readers import source_readers
from ingest.batches.group_stats import CHANGE, Group, groups_by_slice
from ingest.batches.schemas import Schemas
from ingest.changelog.change import EVENT_ID
from ingest.config import Pipeline
from ingest.erasure.places import BRONZE, HISTORY, PENDING, QUARANTINE, SILVER, TOMBSTONES
from ingest.erasure.subject_index import Span, index_of, merge_spans
from ingest.evolution.inference import stored_column
from ingest.internal_columns import LOCATION
from ingest.lakehouse.bronze import COORDINATES
from ingest.lakehouse.quarantine import Quarantine
from ingest.lakehouse.silver import Silver
from ingest.loop.event_references import key_references, with_key
from ingest.loop.table_schemas import TableSchemas
from ingest.merge.actions import TOMBSTONE_KEY, tombstone_key
from ingest.merge.table_schema import TableSchema
from ingest.pipeline.composition import rules_of
from ingest.reconcile import TableState, table_state
from ingest.spark.checkpoints import checkpoint
from ingest.suppression.key_file import LedgerKeys
from ingest.suppression.key_references import (
    KEY_HASH,
    OWN_KEYS,
    REFERENCES,
    foreign_keys,
    own_keys,
    rows_referencing,
    with_key_hashes,
)
from ingest.suppression.ledger import Ledger

ITEM, PLACE, REQUEST = "_ingest_item", "_ingest_place", "request"


@dataclass(frozen=True)
class SubjectItems:
    """What one table holds of the subjects. `items`: `PLACE`, `ITEM` and `REQUEST` of each row or event. `keys`:
    `REQUEST` and `KEY_HASH`."""

    table: str
    items: DataFrame
    keys: DataFrame


class SubjectSearch:
    """Searches everything that a pipeline has read, captured or quarantined. Of histories it opens the spans that may
    reference the subjects."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, keys: LedgerKeys) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._keys = keys
        self._readers = source_readers(spark, pipeline)
        rules = rules_of(pipeline)
        columns = reduce(lambda known, reader: known | dict(reader.columns), self._readers, dict(rules.columns))
        self._rules = replace(rules, columns=columns)
        table_schemas = TableSchemas(spark, pipeline.name, pipeline.layout, rules)
        self._table_schemas = {entry.table_schema.table: entry.table_schema for entry in table_schemas.entries}
        self._schemas = Schemas(self._rules.shredded.columns, self._rules.times_out_of_range)
        requests = Ledger(spark, pipeline.layout.ledger, pipeline.name).requests().values()
        versions = [entry.key_version for entry in requests]
        self._indexes = [(r, index_of(spark, pipeline, r, table_schemas, keys, versions)) for r in self._readers]
        self._opened: dict[str, frozenset[Span]] = {}
        self._groups: dict[str, list[Group]] = {}
        self._events: DataFrame | None = None

    def find(self, subjects: DataFrame) -> Iterator[SubjectItems]:
        """Yields the items of each table that leads to subjects, referenced tables first. `subjects`: `REQUEST` and
        `KEY_HASH` of their keys."""
        known_keys = subjects.select(REQUEST, KEY_HASH)
        for table in self._rules.subjects.tables:
            rows, events = self._with_hashes(self._stored_references(table)), None
            while True:
                if self._open_spans(known_keys) or events is None:
                    events = self._with_hashes(self._event_references(table))
                frames = [frame for frame in (rows, events) if frame is not None]
                if not frames:
                    break
                references = reduce(DataFrame.unionByName, frames)
                found = checkpoint(
                    rows_referencing(references, F.broadcast(known_keys)).dropDuplicates([PLACE, ITEM, REQUEST])
                )
                keys = checkpoint(found.select(REQUEST, F.explode(OWN_KEYS).alias(KEY_HASH)).distinct())
                new_keys = checkpoint(keys.join(known_keys, [REQUEST, KEY_HASH], "left_anti"))
                if new_keys.isEmpty():
                    items = [
                        found.select(PLACE, ITEM, REQUEST),
                        self._tombstones(table, found),
                        self._quarantined(found),
                    ]
                    all_items = reduce(DataFrame.unionByName, [i for i in items if i is not None])
                    yield SubjectItems(table, all_items, keys)
                    break
                # A row that once had another owner or key has more events under that key.
                known_keys = checkpoint(known_keys.unionByName(new_keys))

    def _with_hashes(self, references: DataFrame | None) -> DataFrame | None:
        return None if references is None else checkpoint(with_key_hashes(references, self._keys, self._keys.newest))

    def _open_spans(self, known_keys: DataFrame) -> bool:
        """Opens the spans of histories that may reference these keys. Returns True if there are more than before."""
        keys = known_keys.withColumn("key_version", F.lit(self._keys.newest))
        spans = {r.writer: frozenset([*index.spans_with(keys), *index.unindexed]) for r, index in self._indexes}
        if all(opened <= self._opened.get(reader, frozenset()) for reader, opened in spans.items()):
            return False
        self._opened = {reader: opened | self._opened.get(reader, frozenset()) for reader, opened in spans.items()}
        event_frames = [
            reader.bronze(self._spark, self._rules).between(*span)
            for reader in self._readers
            for span in merge_spans(self._opened[reader.writer])
        ]
        if event_frames:
            self._events = reduce(DataFrame.unionByName, event_frames)
            self._groups = self._groups_by_table(self._events)
        return bool(event_frames)

    def _groups_by_table(self, events: DataFrame) -> dict[str, list[Group]]:
        """Returns table → its groups of changes among the events."""
        of_subjects = events.where(F.col("source_table").isin(*self._rules.subjects.tables))
        groups_by_table: dict[str, list[Group]] = {}
        for group in groups_by_slice(of_subjects, F.lit(0)).get(0, []):
            if group.table is not None and group.kind == CHANGE and group.problem is None:
                groups_by_table.setdefault(group.table, []).append(group)
        self._schemas.learn(events, [g for groups in groups_by_table.values() for g in groups])
        return groups_by_table

    def _stored_references(self, table: str) -> DataFrame | None:
        """Returns `PLACE`, `ITEM`, the key's `TOMBSTONE_KEY` and the references of all stored rows of the table."""
        table_schema = self._table_schemas.get(table)
        if table_schema is None:
            return None
        self._rules.subjects.require_columns(table, table_schema.key, table_schema.names)
        state = self._table_state(table)
        history_tables = [
            (HISTORY, stored_table) for stored_table in (state.row_history.tables if state.row_history else ())
        ]
        places = ((SILVER, state.silver), (PENDING, state.pending), *history_tables)
        frames = [
            self._row_references(place, stored_table, table_schema)
            for place, stored_table in places
            if stored_table.exists()
        ]
        return reduce(DataFrame.unionByName, frames) if frames else None

    def _row_references(self, place: str, stored_table: Silver, table_schema: TableSchema) -> DataFrame:
        own = own_keys(table_schema)
        item = F.to_json(F.struct(F.lit(stored_table.path), LOCATION))
        key = tombstone_key(list(table_schema.key)) if table_schema.key else F.lit(None).cast("binary")
        return stored_table.located().select(
            F.lit(place).alias(PLACE),
            item.alias(ITEM),
            key.alias(TOMBSTONE_KEY),
            own.alias(OWN_KEYS),
            F.concat(own, foreign_keys(table_schema, self._rules.subjects)).alias(REFERENCES),
        )

    def _event_references(self, table: str) -> DataFrame | None:
        """Returns the same for the events of the opened spans."""
        if self._events is None or table not in self._groups:
            return None
        table_schema = self._table_schemas.get(table)
        types = self._rules.columns.get(table, {})
        known_columns = tuple(map(stored_column, table_schema.columns)) if table_schema is not None else ()
        key = table_schema.key if table_schema is not None else self._rules.primary_keys.get(table, ())
        with_columns = [(group, self._schemas.columns(group, types)) for group in self._groups[table]]
        incoming = [(group, with_key(wire, key, known_columns)) for group, wire in with_columns]
        events = key_references(self._events, None, table, key, incoming, known_columns, self._rules)
        item = F.to_json(EVENT_ID)
        no_tombstone_key = F.lit(None).cast("binary").alias(TOMBSTONE_KEY)
        return events.select(F.lit(BRONZE).alias(PLACE), item.alias(ITEM), no_tombstone_key, OWN_KEYS, REFERENCES)

    def _tombstones(self, table: str, found: DataFrame) -> DataFrame | None:
        """Returns tombstones of keys that still occur in a row of history. Others can't be linked to a subject by what
        is stored."""
        tombstones = self._table_state(table).tombstones
        if not tombstones.exists():
            return None
        keys = found.where(F.col(TOMBSTONE_KEY).isNotNull()).select(REQUEST, TOMBSTONE_KEY).distinct()
        matches = tombstones.rows().select(TOMBSTONE_KEY).join(F.broadcast(keys), TOMBSTONE_KEY)
        return matches.select(F.lit(TOMBSTONES).alias(PLACE), F.hex(TOMBSTONE_KEY).alias(ITEM), REQUEST)

    def _quarantined(self, found: DataFrame) -> DataFrame:
        """Returns the found events of bronze that are in quarantine too."""
        rows = Quarantine(self._spark, self._pipeline.layout.quarantine, self._pipeline.name).rows()
        quarantined = rows.select(F.to_json(F.struct(*COORDINATES)).alias(ITEM)).distinct()
        events = found.where(F.col(PLACE) == BRONZE).select(ITEM, REQUEST)
        return quarantined.join(F.broadcast(events), ITEM).select(F.lit(QUARANTINE).alias(PLACE), ITEM, REQUEST)

    def _table_state(self, table: str) -> TableState:
        pipeline, history = self._pipeline, table in self._rules.history
        return table_state(self._spark, pipeline.layout, pipeline.name, table, history, tuning=self._rules.tuning)


def count_items(items_per_table: Sequence[SubjectItems]) -> dict[tuple[str, str], int]:
    """Returns (place, table) → number of rows or events."""
    counts: dict[tuple[str, str], int] = {}
    for items in items_per_table:
        per_place = items.items.select(PLACE, ITEM).distinct().groupBy(PLACE).count().orderBy(PLACE)
        counts |= {(r[PLACE], items.table): r["count"] for r in per_place.collect()}  # a row per place
    return counts
