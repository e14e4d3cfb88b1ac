"""One table's part of a batch: decode, compact, judge, write. Every step is a plan over DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.change import CODE, EVENT_ID, MOVED, POSITION_COLUMN, REASON
from ingest.changelog.columns import Column
from ingest.changelog.compaction import compacted
from ingest.changelog.connect_schema import declared
from ingest.changelog.evolution import Conflict, evolved
from ingest.changelog.images import Reader, Shape, changes
from ingest.changelog.inference import settled
from ingest.changelog.merge import ACTION, BURY, DELETE, REFUSE, SURROGATE, effective, surrogate
from ingest.names import Lakehouse
from ingest.run.profile import CHANGE, Group, belongs_to
from ingest.run.rules import Rules
from ingest.run.schemas import Schemas
from ingest.tables.accounts import Account
from ingest.tables.catalog import Catalog, Entry
from ingest.tables.quarantine import Quarantine
from ingest.tables.silver import FILE, Silver
from ingest.tables.tombstones import Tombstones, literal

INCOMPATIBLE, NO_KEY = "incompatible-type", "no-key"


@dataclass(frozen=True)
class TableBatch:
    """A table's share of a slice. `tombstones`: placed null tombstones of this table that say something new.
    `upto`: the slice's last capture batch."""

    table: str
    groups: Sequence[Group]
    events: DataFrame
    tombstones: DataFrame | None
    tombstone_count: int
    upto: int


@dataclass(frozen=True)
class Stored:
    """Where a table is kept."""

    silver: Silver
    graves: Tombstones


@dataclass(frozen=True)
class Judged:
    """What a batch does to a table. `winners`: states with their `_action`. `actions`: which of them there are.
    `files`: names of the files that hold rows of these keys. `applied`, `refused`: numbers of events."""

    winners: DataFrame
    actions: frozenset[str]
    files: frozenset[str]
    applied: int
    refused: int


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
        self._stored: dict[str, Stored] = {}
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
        """Writes tombstones, then quarantine, then silver; what became of the events comes back as an account."""
        changed = [g for g in batch.groups if g.kind == CHANGE]
        types = self._rules.columns.get(batch.table, {})
        incoming = [(g, schemas.columns(g, types)) for g in changed]
        shape, refused = self._shape(batch, incoming)
        read = sum(g.count for g in batch.groups) + batch.tombstone_count
        if shape is None:
            return self._refuse_all(batch, read)
        for group, conflicts in refused.items():
            reason = "; ".join(str(c) for c in conflicts)
            self._set_aside(batch, batch.events.where(belongs_to(group)), INCOMPATIBLE, reason)
        quarantined = sum(group.count for group in refused)
        stored = self._stored_in(batch.table)
        truncates = self._truncate(batch, stored)
        frames = self._changes(batch, shape, [(g, c) for g, c in incoming if g not in refused])
        judged = self._judge(batch, shape, frames, stored) if frames else None
        applied = truncates + (judged.applied if judged else 0)
        quarantined += judged.refused if judged else 0
        account = Account(batch.table, read, applied, read - applied - quarantined, quarantined)
        self._write(batch, judged, shape, stored, account)
        return account

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
                self._wire[batch.table] = arrived or self._wire.get(batch.table, ())
        key = entry.shape.key if entry else self._key(batch)
        if key is None or not columns or not set(key) <= {c.name for c in columns}:
            return None, refused
        shape = Shape(batch.table, key, columns)
        topics = tuple(sorted({t for g in batch.groups for t in g.topics} | set(entry.topics if entry else ())))
        if entry is None or entry.shape != shape or entry.topics != topics:
            self._settle(entry, shape, topics)
        return shape, refused

    def _stored_in(self, table: str) -> Stored:
        if table not in self._stored:
            graves = Tombstones(self._spark, self._lakehouse.tombstones(self._pipeline, table))
            silver = Silver(self._spark, self._lakehouse.silver(self._pipeline, table))
            self._stored[table] = Stored(silver, graves)
        return self._stored[table]

    def _settle(self, entry: Entry | None, shape: Shape, topics: tuple[str, ...]) -> None:
        silver = self._stored_in(shape.table).silver
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
            wire = arrived
            if group.schema_id is None:
                wire = settled(arrived, types, shape.key, self._rules.fold_case)
            frames.append(changes(batch.events.where(belongs_to(group)), shape, reader(wire)))
        if batch.tombstones is not None:
            wire = self._wire.get(batch.table) or tuple(declared(c.name, str(c.type)) for c in shape.columns)
            frames.append(changes(batch.tombstones, shape, reader(wire)))
        return frames

    def _judge(self, batch: TableBatch, shape: Shape, frames: list[DataFrame], stored: Stored) -> Judged:
        everything = reduce(DataFrame.unionByName, frames)
        floor = self._truncated.get(batch.table)
        if floor is not None:
            everything = everything.where(F.col(CODE).isNotNull() | (F.col(POSITION_COLUMN) > literal(floor)))
        key = shape.identity
        states = compacted(everything, key).withColumn(SURROGATE, surrogate(key))
        rows, graves = stored.silver.exists(), stored.graves.exists()
        if rows or graves:
            # A plan that decodes is large: cut here, what follows plans over plain rows.
            states = states.localCheckpoint()
        live = stored.silver.matching(states, key) if rows else None
        winners = effective(states, live, stored.graves.matching(states) if graves else None, key)
        if live is None:
            winners = winners.withColumn(FILE, F.lit(None).cast("string"))
        winners = winners.localCheckpoint(eager=False)
        effect = F.col(ACTION) != REFUSE
        told = winners.agg(
            F.collect_set(ACTION).alias("actions"),
            F.collect_set(FILE).alias("files"),
            F.count_if(effect).alias("effects"),
            F.count_if(~effect).alias("refused"),
            F.count_if(effect & F.col(MOVED)).alias("moves"),
        ).first()
        assert told is not None
        applied: int = told.effects
        if told.moves:  # An event that moves a row is one event with two effects.
            applied = winners.where(effect).select(EVENT_ID).distinct().count()
        return Judged(winners, frozenset(told.actions), frozenset(told.files), applied, told.refused)

    def _write(self, batch: TableBatch, judged: Judged | None, shape: Shape, stored: Stored, account: Account) -> None:
        """Tombstones first: a crash in between is healed by the same batch when it comes again."""
        actions: frozenset[str] = frozenset() if judged is None else judged.actions
        if judged is not None:
            if judged.refused:
                self._quarantine_rows(batch, judged.winners.where(F.col(ACTION) == REFUSE))
            if actions & {DELETE, BURY}:
                stored.graves.bury(judged.winners.where(F.col(ACTION).isin(DELETE, BURY)))
        told = {"upto_batch": batch.upto, "account": asdict(account)}
        if judged is not None and actions - {BURY, REFUSE}:
            writes = judged.winners.where(~F.col(ACTION).isin(BURY, REFUSE))
            stored.silver.apply(writes, shape, judged.files, told)
        else:
            if not stored.silver.exists():
                stored.silver.create(shape)
            stored.silver.note(told)

    def _quarantine_rows(self, batch: TableBatch, bad: DataFrame) -> None:
        named = bad.select(F.col(f"{EVENT_ID}.*"), F.col(CODE).alias("code"), F.col(REASON).alias("reason"))
        whole = batch.events.join(F.broadcast(named), ["topic", "partition", "offset"])
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

    def _truncate(self, batch: TableBatch, stored: Stored) -> int:
        """Empties the table below its last truncate. 1 where that is new, else 0."""
        silver, graves = stored.silver, stored.graves
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
