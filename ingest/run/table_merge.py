"""One table's part of a batch: decode, compact, judge, write. Every step is a plan over DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial, reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.accounting import Account
from ingest.changelog.change import CODE, EVENT_ID, POSITION_COLUMN, REASON
from ingest.changelog.columns import Column
from ingest.changelog.connect_schema import declared
from ingest.changelog.evolution import Conflict, evolved
from ingest.changelog.images import Reader, Reading, Shape, changes
from ingest.changelog.inference import settled
from ingest.changelog.merge import ACTION, DELETE
from ingest.changelog.position import right_before_snapshot
from ingest.changelog.refusal import NO_KEY
from ingest.cut import released
from ingest.names import Lakehouse
from ingest.run.judging import Judged, Stored, Truncated, judge
from ingest.run.profile import CHANGE, Group, belongs_to
from ingest.run.redelivery import Redelivery
from ingest.run.rules import Rules
from ingest.run.schemas import Schemas
from ingest.run.table_batch import TableBatch
from ingest.run.unordered import Unordered
from ingest.tables.catalog import Catalog, Entry
from ingest.tables.delta_log import Told
from ingest.tables.quarantine import Quarantine
from ingest.tables.silver import Silver
from ingest.tables.tombstones import Tombstones, literal

_OPS_WITH = {Reading.AFTER: ("c", "r", "u"), Reading.BEFORE: ("u", "d")}
INCOMPATIBLE = "incompatible-type"
_UPTO, _ACCOUNT = "upto_batch", "account"
"""What a commit tells of the batch that it belongs to."""


class Begun(NamedTuple):
    """What the tables of a source table tell of a slice that is not accounted for yet."""

    silver: Told | None = None
    pending: Told | None = None


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
        self._deliveries = Redelivery()
        self._unordered = Unordered(rules.stops_at_two_partitions)
        self._stored: dict[str, Stored] = {}
        self._truncated: dict[str, tuple[int, ...] | None] = {}
        self._begun: dict[str, Begun] = {}

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

    def begun(self, merged: int) -> int | None:
        """The end of a slice after `merged` that some table holds already: a run died before it was accounted for.
        To be asked once, before the first slice."""
        for table in self._entries:
            stored = self._stored_in(table)
            silver, pending = (_told_after(kept, merged) for kept in (stored.silver, stored.pending))
            if silver or pending:
                self._begun[table] = Begun(silver, pending)
        return max((t.said[_UPTO] for b in self._begun.values() for t in b if t), default=None)

    def merge(self, batch: TableBatch, schemas: Schemas) -> Account:
        """What became of the batch's events, which are in the tables then."""
        with released():
            return self._merge(batch, schemas)

    def _merge(self, batch: TableBatch, schemas: Schemas) -> Account:
        """Writes tombstones, then quarantine, then silver; what became of the events comes back as an account.

        A slice that had begun when a run died is merged again as a whole: what is there already changes nothing. Where
        rows are counted rather than known by a key, what is there is left out instead."""
        changed = [g for g in batch.groups if g.kind == CHANGE]
        types = self._rules.columns.get(batch.table, {})
        incoming = [(g, schemas.columns(g, types)) for g in changed]
        shape, refused = self._shape(batch, incoming)
        read = sum(g.count for g in batch.groups) + batch.tombstone_count
        stored = self._stored_in(batch.table)
        begun = self._begun.pop(batch.table, Begun())
        if begun.silver is not None and shape is not None and not shape.key:
            return Account(**begun.silver.said[_ACCOUNT])
        if begun.pending is not None and shape is not None and not shape.key:
            stored = replace(stored, owed_before=begun.pending.version)
        truncated = self._truncate(batch, stored)
        if shape is None:
            return self._refuse_all(batch, read, truncated.applied)
        for group, conflicts in refused.items():
            reason = "; ".join(str(c) for c in conflicts)
            self._set_aside(batch, batch.events.where(belongs_to(group)), INCOMPATIBLE, reason)
        quarantined = sum(group.count for group in refused)
        readable = [(g, c) for g, c in incoming if g not in refused]
        judged = None
        if not shape.key:
            batch = replace(batch, events=self._deliveries.once(batch))
        changes = partial(self._changes, batch, shape, readable)
        if readable:
            self._unordered.check(batch, shape, changes, stored)
        if readable or batch.tombstones is not None or truncated.now:
            judged = judge(changes, shape, stored, truncated, batch.key_changes)
        applied = truncated.applied + (judged.applied if judged else 0)
        quarantined += judged.quarantined if judged else 0
        account = Account(batch.table, read, applied, read - applied - quarantined, quarantined)
        if begun.silver is not None:
            account = Account(**begun.silver.said[_ACCOUNT])
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
            pending = Silver(self._spark, self._lakehouse.pending(self._pipeline, table))
            self._stored[table] = Stored(silver, pending, graves)
        return self._stored[table]

    def _settle(self, entry: Entry | None, shape: Shape, topics: tuple[str, ...]) -> None:
        stored = self._stored_in(shape.table)
        for kept in (stored.silver, stored.pending):
            if entry is not None and entry.shape != shape and kept.exists():
                kept.evolve(entry.shape, shape)
        revision = entry.revision + 1 if entry else 1
        settled = Entry(self._pipeline, stored.silver.path, shape, revision, topics)
        self._catalog.record(settled)
        self._entries[shape.table] = settled

    def _key(self, batch: TableBatch) -> tuple[str, ...] | None:
        """As declared, else as the records' own keys name it; empty where records have none. None: unreadable."""
        if batch.table in self._rules.append_only:
            return ()
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
        self, batch: TableBatch, shape: Shape, readable: Sequence[tuple[Group, tuple[Column, ...]]], reading: Reading
    ) -> DataFrame:
        def reader(wire: tuple[Column, ...]) -> Reader:
            return Reader(wire, self._rules.placeholder, self._rules.fold_case, reading, batch.key_changes)

        types = {c.name: c.type for c in shape.columns}
        frames = []
        for group, arrived in readable:
            wire = arrived
            if group.schema_id is None:
                wire = settled(arrived, types, shape.key, self._rules.fold_case)
            events = batch.events.where(belongs_to(group))
            if not shape.key:
                events = events.where(F.col("op").isin(*self._ops_with(reading, batch.table)))
            frames.append(changes(events, shape, reader(wire)))
        if batch.tombstones is not None or not frames:
            wire = self._wire.get(batch.table) or tuple(declared(c.name, str(c.type)) for c in shape.columns)
            rest = batch.events.limit(0) if batch.tombstones is None else batch.tombstones
            frames.append(changes(rest, shape, reader(wire)))
        return reduce(DataFrame.unionByName, frames)

    def _ops_with(self, reading: Reading, table: str) -> tuple[str, ...]:
        """Of a table without a key: the events that add a row, or those that take one away."""
        if reading is Reading.BEFORE and table in self._rules.append_only:
            return ()
        return _OPS_WITH[reading]

    def _write(self, batch: TableBatch, judged: Judged | None, shape: Shape, stored: Stored, account: Account) -> None:
        """In an order in which a crash in between is healed by the same batch when it comes again: tombstones and
        rows that begin to wait, then silver, then rows that wait no more."""
        told = {_UPTO: batch.upto, _ACCOUNT: asdict(account)}
        pending = judged.pending if judged else None
        if pending is not None and not shape.key:
            if stored.owed_before is None:
                stored.pending.apply(pending, shape, told)
            pending = None
        if judged is not None:
            if judged.refused is not None:
                self._quarantine_rows(batch, judged.refused)
            if judged.graves is not None:
                stored.graves.bury(judged.graves)
        if pending is not None and pending.actions - {DELETE}:
            waiting = pending.states.where(F.col(ACTION) != DELETE)
            stored.pending.apply(replace(pending, states=waiting), shape, told)
        if judged is not None and judged.silver is not None:
            stored.silver.apply(judged.silver, shape, told)
        else:
            if not stored.silver.exists():
                stored.silver.create(shape)
            stored.silver.note(told)
        if pending is not None and DELETE in pending.actions:
            stored.pending.remove(pending.states.where(F.col(ACTION) == DELETE), shape, told)
        _fold(stored, judged, shape)

    def _quarantine_rows(self, batch: TableBatch, bad: DataFrame) -> None:
        named = bad.select(F.col(f"{EVENT_ID}.*"), F.col(CODE).alias("code"), F.col(REASON).alias("reason"))
        whole = batch.events.join(F.broadcast(named), ["topic", "partition", "offset"])
        self._quarantine.add(whole.withColumn("table", F.lit(batch.table)))

    def _set_aside(self, batch: TableBatch, events: DataFrame, code: str, reason: str) -> None:
        told = events.withColumn("table", F.lit(batch.table)).withColumn("code", F.lit(code))
        self._quarantine.add(told.withColumn("reason", F.lit(reason)))

    def _refuse_all(self, batch: TableBatch, read: int, applied: int) -> Account:
        """No key, or no column: no change of this table can be placed yet."""
        reason = "no primary key is known: declare it under tables.<table>.primary_key, then replay the quarantine"
        changed = [g for g in batch.groups if g.kind == CHANGE]
        for group in changed:
            self._set_aside(batch, batch.events.where(belongs_to(group)), NO_KEY, reason)
        quarantined = sum(g.count for g in changed)
        return Account(batch.table, read, applied, read - applied - quarantined, quarantined)

    def _truncate(self, batch: TableBatch, stored: Stored) -> Truncated:
        """Empties the table below its last truncate, or below a snapshot that has ended: it read every row."""
        if batch.table not in self._truncated:
            self._truncated[batch.table] = stored.graves.truncated_at()
        truncates = [g.last_position for g in batch.groups if g.kind == "t"]
        snapshots = [right_before_snapshot(g.snapshot) for g in batch.groups if g.snapshot is not None]
        latest = max(truncates + (snapshots if self._rules.whole_snapshots else []), default=None)
        known = self._truncated[batch.table]
        if latest is None:
            return Truncated(known)
        new = known is None or latest > known
        if new:
            at = self._spark.range(1).select(literal(latest).alias(POSITION_COLUMN))
            stored.graves.bury_table(at)
            self._truncated[batch.table] = latest
        last = max(latest, known or latest)
        for kept in (stored.silver, stored.pending):
            if kept.exists():
                kept.truncate(literal(last))
        return Truncated(last, new, int(new and latest in truncates))


def _fold(stored: Stored, judged: Judged | None, shape: Shape) -> None:
    """What was written to now may have gathered small files."""
    if judged is not None and judged.silver is not None:
        stored.silver.fold(shape)
    if judged is not None and judged.pending is not None:
        stored.pending.fold(shape)


def _told_after(kept: Silver, merged: int) -> Told | None:
    told = kept.told()
    return told if told is not None and told.said.get(_UPTO, 0) > merged else None
