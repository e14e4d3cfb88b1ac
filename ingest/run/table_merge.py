"""One table's part of a batch: decode, compact, judge, write. Every step is a plan over DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.columns import Column
from ingest.changelog.compaction import POSITION_COLUMN, compacted
from ingest.changelog.connect_schema import declared
from ingest.changelog.evolution import Conflict, evolved
from ingest.changelog.images import CODE, EVENT_ID, REASON, Reader, Shape, changes
from ingest.changelog.inference import retyped
from ingest.changelog.merge import ACTION, ACTIONS, BURY, DELETE, INSERT, SURROGATE, effective, surrogate
from ingest.names import Lakehouse
from ingest.run.profile import CHANGE, Group, belongs_to
from ingest.run.rules import Rules
from ingest.run.schemas import Schemas
from ingest.tables.accounts import Account
from ingest.tables.catalog import Catalog, Entry
from ingest.tables.quarantine import Quarantine
from ingest.tables.silver import Silver
from ingest.tables.tombstones import Tombstones, literal

INCOMPATIBLE, NO_KEY = "incompatible-type", "no-key"


@dataclass(frozen=True)
class TableBatch:
    """A table's share of a slice. `tombstones`: placed null tombstones of this table that say something new."""

    table: str
    groups: Sequence[Group]
    events: DataFrame
    tombstones: DataFrame | None
    tombstone_count: int


class TableMerge:
    """Merges the batches of one pipeline's tables. One writer per table; batches of one table come in turn."""

    def __init__(
        self, spark: SparkSession, pipeline: str, lakehouse: Lakehouse, rules: Rules, quarantine: Quarantine
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._lakehouse = lakehouse
        self._rules = rules
        self._quarantine = quarantine
        self._catalog = Catalog(spark, lakehouse.tables)
        self._entries = {e.shape.table: e for e in self._catalog.entries(pipeline)}
        self._wire: dict[str, tuple[Column, ...]] = {}
        self._truncated: dict[str, tuple[int, ...] | None] = {}

    @property
    def entries(self) -> list[Entry]:
        """The tables that there are by now."""
        return sorted(self._entries.values(), key=lambda e: e.shape.table)

    def topic_tables(self) -> dict[str, str]:
        """topic → table, for topics that hold one table only."""
        tables: dict[str, set[str]] = {}
        for entry in self._entries.values():
            for topic in entry.topics:
                tables.setdefault(topic, set()).add(entry.shape.table)
        return {topic: next(iter(names)) for topic, names in tables.items() if len(names) == 1}

    def merge(self, batch: TableBatch, schemas: Schemas) -> Account:
        """Writes tombstones, then silver, then quarantine; what became of the events comes back as an account."""
        changed = [g for g in batch.groups if g.kind == CHANGE]
        types = self._rules.columns.get(batch.table, {})
        incoming = [(g, schemas.columns(g, types)) for g in changed]
        shape, refused = self._shape(batch, incoming)
        read = sum(g.count for g in batch.groups) + batch.tombstone_count
        if shape is None:
            return self._refuse_all(batch, read)
        silver = self._silver(batch.table)
        graves = Tombstones(self._spark, self._lakehouse.tombstones(self._pipeline, batch.table))
        truncates = self._truncate(batch, silver, graves)
        frames = self._changes(batch, shape, [(g, c) for g, c in incoming if g not in refused])
        applied = quarantined = 0
        if frames:
            applied, quarantined = self._apply(batch, shape, frames, silver, graves)
        elif not silver.exists():
            silver.create(shape)
        for group, conflicts in refused.items():
            reason = "; ".join(str(c) for c in conflicts)
            self._set_aside(batch, batch.events.where(belongs_to(group)), INCOMPATIBLE, reason)
            quarantined += group.count
        applied += truncates
        return Account(batch.table, read, applied, read - applied - quarantined, quarantined)

    def _shape(
        self, batch: TableBatch, incoming: Sequence[tuple[Group, tuple[Column, ...]]]
    ) -> tuple[Shape | None, dict[Group, tuple[Conflict, ...]]]:
        """The table's shape after these groups, written to silver and catalog; and the groups it refuses."""
        entry = self._entries.get(batch.table)
        columns = entry.shape.columns if entry else ()
        refused: dict[Group, tuple[Conflict, ...]] = {}
        for group, arrived in incoming:
            outcome = evolved(columns, arrived, self._rules.fold_case, inferred=group.schema_id is None)
            columns = outcome.columns
            if outcome.conflicts:
                refused[group] = outcome.conflicts
            else:
                self._wire[batch.table] = arrived
        key = entry.shape.key if entry else self._key(batch)
        if key is None or not columns or not set(key) <= {c.name for c in columns}:
            return None, refused
        shape = Shape(batch.table, key, columns)
        topics = tuple(sorted({t for g in batch.groups for t in g.topics} | set(entry.topics if entry else ())))
        if entry is None or entry.shape != shape or entry.topics != topics:
            self._settle(entry, shape, topics)
        return shape, refused

    def _silver(self, table: str) -> Silver:
        return Silver(self._spark, self._lakehouse.silver(self._pipeline, table))

    def _settle(self, entry: Entry | None, shape: Shape, topics: tuple[str, ...]) -> None:
        silver = self._silver(shape.table)
        if entry is not None and entry.shape != shape and silver.exists():
            silver.evolve(entry.shape, shape)
        revision = entry.revision + 1 if entry else 1
        settled = Entry(self._pipeline, silver.path, shape, revision, topics)
        self._catalog.record(settled)
        self._entries[shape.table] = settled

    def _key(self, batch: TableBatch) -> tuple[str, ...] | None:
        """As declared, else as the records' own keys name it; empty where records have none. None: unreadable."""
        said = self._rules.primary_keys.get(batch.table)
        if said is not None:
            return said
        text = F.col("key").cast("string")
        inner = F.coalesce(F.get_json_object(text, "$.payload"), text)
        names = F.json_object_keys(F.when(F.try_parse_json(inner).isNotNull(), inner))
        own = batch.events.where((F.col("source_table") == batch.table) & F.col("key").isNotNull())
        row = own.select(names.alias("names")).first()
        if row is None:
            return ()
        return tuple(row.names) if row.names else None

    def _changes(
        self, batch: TableBatch, shape: Shape, readable: Sequence[tuple[Group, tuple[Column, ...]]]
    ) -> list[DataFrame]:
        def reader(wire: tuple[Column, ...]) -> Reader:
            return Reader(wire, self._rules.placeholder, self._rules.fold_case)

        types = {c.name: c.type for c in shape.columns}
        frames = []
        for group, arrived in readable:
            wire = retyped(arrived, types) if group.schema_id is None else arrived
            frames.append(changes(batch.events.where(belongs_to(group)), shape, reader(wire)))
        if batch.tombstones is not None:
            wire = self._wire.get(batch.table) or tuple(declared(c.name, str(c.type)) for c in shape.columns)
            frames.append(changes(batch.tombstones, shape, reader(wire)))
        return frames

    def _apply(
        self, batch: TableBatch, shape: Shape, frames: list[DataFrame], silver: Silver, graves: Tombstones
    ) -> tuple[int, int]:
        """How many events took effect, and how many were quarantined."""
        everything = reduce(DataFrame.unionByName, frames)
        seen, effects = Observation(), Observation()
        bad = F.col(CODE).isNotNull()
        valid = everything.observe(seen, F.count_if(bad).alias("bad")).where(~bad)
        floor = self._truncated.get(batch.table)
        if floor is not None:
            valid = valid.where(F.col(POSITION_COLUMN) > literal(floor))
        key = shape.identity
        states = compacted(valid.drop(CODE, REASON), key).withColumn(SURROGATE, surrogate(key))
        if silver.exists() or graves.exists():
            # A plan that decodes is large: cut here, what follows plans over plain rows.
            states = states.localCheckpoint()
        winners = effective(states, silver.matching(states, key), graves.matching(states), key)
        counts = [F.count_if((F.col(ACTION) == action) & ~F.col("_moved")).alias(action) for action in ACTIONS]
        moves = [F.count_if((F.col(ACTION) == action) & F.col("_moved")).alias(f"moved_{action}") for action in ACTIONS]
        winners = winners.observe(effects, *counts, *moves).localCheckpoint()
        taken = effects.get
        self._write(winners, shape, {a for a in ACTIONS if taken[a] or taken[f"moved_{a}"]}, silver, graves)
        quarantined: int = seen.get["bad"]
        if quarantined:
            self._quarantine_rows(batch, everything.where(bad))
        return sum(taken[a] for a in ACTIONS), quarantined

    def _write(self, winners: DataFrame, shape: Shape, actions: set[str], silver: Silver, graves: Tombstones) -> None:
        """Tombstones first: a crash in between is healed by the same batch when it comes again."""
        if actions & {DELETE, BURY}:
            graves.bury(winners)
        if actions - {BURY}:
            silver.apply(winners, shape, only_inserts=actions <= {INSERT, BURY})
        elif not silver.exists():
            silver.create(shape)

    def _quarantine_rows(self, batch: TableBatch, bad: DataFrame) -> None:
        named = bad.select(F.col(f"{EVENT_ID}.*"), F.col(CODE).alias("code"), F.col(REASON).alias("reason"))
        whole = batch.events.join(named, ["topic", "partition", "offset"])
        self._quarantine.add(whole.withColumn("table", F.lit(batch.table)))

    def _set_aside(self, batch: TableBatch, events: DataFrame, code: str, reason: str) -> None:
        told = events.withColumn("table", F.lit(batch.table)).withColumn("code", F.lit(code))
        self._quarantine.add(told.withColumn("reason", F.lit(reason)))

    def _refuse_all(self, batch: TableBatch, read: int) -> Account:
        """No key, or no column: nothing of this table can be placed yet."""
        reason = "no primary key is known: declare it under tables.<table>.primary_key, then replay the quarantine"
        mine = F.col("source_table") == batch.table
        self._set_aside(batch, batch.events.where(mine & F.col("problem").isNull()), NO_KEY, reason)
        quarantined = sum(g.count for g in batch.groups)
        return Account(batch.table, read, 0, read - quarantined, quarantined)

    def _truncate(self, batch: TableBatch, silver: Silver, graves: Tombstones) -> int:
        """Empties the table below its last truncate. 1 where that is new, else 0."""
        if batch.table not in self._truncated:
            self._truncated[batch.table] = graves.truncated_at()
        latest = max((g.last_position for g in batch.groups if g.kind == "t"), default=None)
        known = self._truncated[batch.table]
        if latest is None:
            return 0
        if known is None or latest > known:
            at = self._spark.range(1).select(literal(latest).alias(POSITION_COLUMN))
            graves.bury_table(at)
            self._truncated[batch.table] = latest
        if silver.exists():
            silver.truncate(literal(max(latest, known or latest)))
        return int(known is None or latest > known)
