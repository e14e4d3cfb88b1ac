"""What a lakehouse holds of subjects: rows and events that name their keys, table by table, as foreign keys lead on."""

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
from ingest.erasure.subject_index import Span, index_of, joined
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
SILVER, PENDING, HISTORY, BRONZE, QUARANTINE, TOMBSTONES = (
    "silver",
    "pending",
    "history",
    "bronze",
    "quarantine",
    "tombstones",
)


@dataclass(frozen=True)
class Belongings:
    """Of one table. `items`: `PLACE`, `ITEM` and `REQUEST` of each row or event. `keys`: `REQUEST` and `KEY_HASH`."""

    table: str
    items: DataFrame
    keys: DataFrame


class Search:
    """Looks for what belongs to subjects in everything that a pipeline has read, captured or set aside. Of histories it
    opens what may name them."""

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

    def belongings(self, subjects: DataFrame) -> Iterator[Belongings]:
        """Of each table that leads to subjects, parents first. `subjects`: `REQUEST` and `KEY_HASH` of their keys."""
        known = subjects.select(REQUEST, KEY_HASH)
        for table in self._rules.subjects.tables:
            rows, events = self._hashed(self._stored_rows(table)), None
            while True:
                if self._open(known) or events is None:
                    events = self._hashed(self._read(table))
                there = [one for one in (rows, events) if one is not None]
                if not there:
                    break
                named = reduce(DataFrame.unionByName, there)
                found = checkpoint(rows_referencing(named, F.broadcast(known)).dropDuplicates([PLACE, ITEM, REQUEST]))
                keys = checkpoint(found.select(REQUEST, F.explode(OWN_KEYS).alias(KEY_HASH)).distinct())
                new = checkpoint(keys.join(known, [REQUEST, KEY_HASH], "left_anti"))
                if new.isEmpty():
                    items = [found.select(PLACE, ITEM, REQUEST), self._buried(table, found), self._set_aside(found)]
                    whole = reduce(DataFrame.unionByName, [i for i in items if i is not None])
                    yield Belongings(table, whole, keys)
                    break
                # Of a row that was another's once, or had another key, there is more under its own.
                known = checkpoint(known.unionByName(new))

    def _hashed(self, mentions: DataFrame | None) -> DataFrame | None:
        return None if mentions is None else checkpoint(with_key_hashes(mentions, self._keys, self._keys.newest))

    def _open(self, known: DataFrame) -> bool:
        """Opens the spans of histories that may hold events that name these keys. Returns whether there are more than
        before."""
        keys = known.withColumn("key_version", F.lit(self._keys.newest))
        spans = {r.writer: frozenset([*index.naming(keys), *index.rest]) for r, index in self._indexes}
        if all(one <= self._opened.get(reader, frozenset()) for reader, one in spans.items()):
            return False
        self._opened = {reader: one | self._opened.get(reader, frozenset()) for reader, one in spans.items()}
        parts = [
            reader.bronze(self._spark, self._rules).between(*span)
            for reader in self._readers
            for span in joined(self._opened[reader.writer])
        ]
        if parts:
            self._events = reduce(DataFrame.unionByName, parts)
            self._groups = self._profiled(self._events)
        return bool(parts)

    def _profiled(self, events: DataFrame) -> dict[str, list[Group]]:
        """table → its groups of changes among the events."""
        mine = events.where(F.col("source_table").isin(*self._rules.subjects.tables))
        found: dict[str, list[Group]] = {}
        for group in groups_by_slice(mine, F.lit(0)).get(0, []):
            if group.table is not None and group.kind == CHANGE and group.problem is None:
                found.setdefault(group.table, []).append(group)
        self._schemas.learn(events, [g for groups in found.values() for g in groups])
        return found

    def _stored_rows(self, table: str) -> DataFrame | None:
        """`PLACE`, `ITEM`, the key's `SURROGATE`, and mentions, of all rows of the table."""
        table_schema = self._table_schemas.get(table)
        if table_schema is None:
            return None
        self._rules.subjects.require_columns(table, table_schema.key, table_schema.names)
        stored = self._stored(table)
        versions = [(HISTORY, kept) for kept in (stored.row_history.tables if stored.row_history else ())]
        places = ((SILVER, stored.silver), (PENDING, stored.pending), *versions)
        frames = [self._rows(place, kept, table_schema) for place, kept in places if kept.exists()]
        return reduce(DataFrame.unionByName, frames) if frames else None

    def _rows(self, place: str, kept: Silver, table_schema: TableSchema) -> DataFrame:
        mine = own_keys(table_schema)
        item = F.to_json(F.struct(F.lit(kept.path), LOCATION))
        buried = tombstone_key(list(table_schema.key)) if table_schema.key else F.lit(None).cast("binary")
        return kept.located().select(
            F.lit(place).alias(PLACE),
            item.alias(ITEM),
            buried.alias(TOMBSTONE_KEY),
            mine.alias(OWN_KEYS),
            F.concat(mine, foreign_keys(table_schema, self._rules.subjects)).alias(REFERENCES),
        )

    def _read(self, table: str) -> DataFrame | None:
        """The same of the events that are opened."""
        if self._events is None or table not in self._groups:
            return None
        table_schema = self._table_schemas.get(table)
        types = self._rules.columns.get(table, {})
        known = tuple(map(stored_column, table_schema.columns)) if table_schema is not None else ()
        key = table_schema.key if table_schema is not None else self._rules.primary_keys.get(table, ())
        came = [(group, self._schemas.columns(group, types)) for group in self._groups[table]]
        incoming = [(group, with_key(wire, key, known)) for group, wire in came]
        events = key_references(self._events, None, table, key, incoming, known, self._rules)
        item = F.to_json(EVENT_ID)
        nothing = F.lit(None).cast("binary").alias(TOMBSTONE_KEY)
        return events.select(F.lit(BRONZE).alias(PLACE), item.alias(ITEM), nothing, OWN_KEYS, REFERENCES)

    def _buried(self, table: str, found: DataFrame) -> DataFrame | None:
        """Tombstones of keys that some row of history still tells; of others nothing is kept that would tell them."""
        tombstones = self._stored(table).tombstones
        if not tombstones.exists():
            return None
        keys = found.where(F.col(TOMBSTONE_KEY).isNotNull()).select(REQUEST, TOMBSTONE_KEY).distinct()
        there = tombstones.rows().select(TOMBSTONE_KEY).join(F.broadcast(keys), TOMBSTONE_KEY)
        return there.select(F.lit(TOMBSTONES).alias(PLACE), F.hex(TOMBSTONE_KEY).alias(ITEM), REQUEST)

    def _set_aside(self, found: DataFrame) -> DataFrame:
        """Events of bronze that are in quarantine too."""
        rows = Quarantine(self._spark, self._pipeline.layout.quarantine, self._pipeline.name).rows()
        held = rows.select(F.to_json(F.struct(*COORDINATES)).alias(ITEM)).distinct()
        events = found.where(F.col(PLACE) == BRONZE).select(ITEM, REQUEST)
        return held.join(F.broadcast(events), ITEM).select(F.lit(QUARANTINE).alias(PLACE), ITEM, REQUEST)

    def _stored(self, table: str) -> TableState:
        pipeline = self._pipeline
        return table_state(self._spark, pipeline.layout, pipeline.name, table, table in self._rules.history)


def counted(found: Sequence[Belongings]) -> dict[tuple[str, str], int]:
    """(place, table) → how many rows or events."""
    counts: dict[tuple[str, str], int] = {}
    for one in found:
        per_place = one.items.select(PLACE, ITEM).distinct().groupBy(PLACE).count().orderBy(PLACE)
        counts |= {(r[PLACE], one.table): r["count"] for r in per_place.collect()}  # a row per place
    return counts
