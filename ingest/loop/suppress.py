"""The fence around erased subjects, as every merge meets it: a stream, a backfill, a rebuild, a proof.

Before a slice is merged its events of an old life are taken out of it, parents before the rows that lead through them.
The keys of such events are fenced too, in the ledger, before anything is accounted for: the photo of a late claim finds
the claim fenced, be it in the same slice or years later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batches.group_stats import CHANGE, Group
from ingest.batches.rules import Rules
from ingest.batches.schemas import Schemas
from ingest.batches.table_batch import TableBatch
from ingest.changelog.change import EVENT_ID
from ingest.errors import ConfigError
from ingest.lakehouse.quarantine import Quarantine
from ingest.loop.event_references import GRAVES, GROUP, TOMBSTONES, batch_key_references
from ingest.loop.late_children import LateChildren
from ingest.loop.table_faults import FAULTS
from ingest.loop.table_schemas import TableSchemas
from ingest.reconcile import TableState
from ingest.spark.checkpoints import checkpoint
from ingest.suppression.before_cutoff import BEFORE_CUTOFF, UNDECIDED, with_cutoff_flags
from ingest.suppression.cutoff import Cutoff
from ingest.suppression.key_file import LedgerKeys, read_keys
from ingest.suppression.key_references import KEY_HASH, OWN_KEYS, REFERENCES, rows_referencing, with_key_hashes
from ingest.suppression.ledger import FOUND, KEYS, REQUESTED, Ledger, LedgerEntry, cutoffs

OLD_OR_NEW = "old-or-new-life"
_REASON = (
    "the erasure of its subject was asked for, and nothing tells whether the event is older: its partition was not "
    "known then, and its source gives no position"
)
_ID = ["topic", "partition", "offset"]


class Suppression:
    """Of one pipeline. Costs nothing before the first request, and hardly anything once all events come after it."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: str,
        rules: Rules,
        table_schemas: TableSchemas,
        table_state: Callable[[str], TableState],
        quarantine: Quarantine,
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._rules = rules
        self._table_schemas = table_schemas
        self._table_state = table_state
        self._quarantine = quarantine
        self._brought: list[DataFrame] = []
        self._fresh = True
        self._seen = -1
        self._cutoffs: dict[str, Cutoff] = {}
        self._versions: set[int] = set()

    @cached_property
    def _ledger(self) -> Ledger | None:
        if self._rules.ledger is None or not self._rules.subjects.tables:
            return None
        return Ledger(self._spark, self._rules.ledger, self._pipeline)

    @cached_property
    def _keys(self) -> LedgerKeys:
        if self._rules.key_file is None:
            raise ConfigError(
                f"erasures of {self._pipeline} were asked for, and its file names no key_file",
                "name it: privacy.key_file",
            )
        return read_keys(self._rules.key_file)

    def without_old_lives(
        self, batches: Sequence[TableBatch], schemas: Schemas, failed: Callable[[str, Exception], None]
    ) -> list[TableBatch]:
        """The batches of a slice, in any order, without events of an erased subject's old life. `failed`: takes what
        went wrong for a table, or raises it; its batch is whole then."""
        if self._ledger is None or not self._asked(self._ledger):
            return list(batches)
        found = {batch.table: batch for batch in batches}
        for table in self._rules.subjects.tables:
            if table in found and self._may_be_old(found[table]):
                try:
                    found[table] = self._fenced(self._ledger, found[table], schemas)
                except FAULTS as error:
                    failed(table, error)
        if self._brought:
            brought, self._brought = reduce(DataFrame.unionByName, self._brought), []
            sweep = LateChildren(
                self._ledger, self._keys, self._rules.subjects, self._cutoffs, self._table_state, self._rules.masks
            )
            sweep.run(self._table_schemas.entries, checkpoint(brought.distinct()))
            self._fresh = False
        return list(found.values())

    def old_lives(self, batches: Sequence[TableBatch], schemas: Schemas) -> list[DataFrame]:
        """`EVENT_ID`, `request`, `table` and `GRAVES` of the events of these batches that are of an old life. Keys that
        they bring are fenced."""
        if self._ledger is None or not self._asked(self._ledger):
            return []
        given = {batch.table: batch for batch in batches}
        mine = [given[t] for t in self._rules.subjects.tables if t in given and self._may_be_old(given[t])]
        found = [(batch.table, self._told(self._ledger, batch, schemas)) for batch in mine]
        return [
            told.where(BEFORE_CUTOFF).select(EVENT_ID, "request", F.lit(table).alias("table"), GRAVES)
            for table, told in found
            if told is not None
        ]

    def _asked(self, ledger: Ledger) -> bool:
        """Whether anything was, as of now."""
        version = ledger.version()
        if version > self._seen:
            asked = [e for e in ledger.entries() if e.kind == REQUESTED]
            for entry in asked:
                if entry.key_version is not None and entry.key_check is not None:
                    self._keys.require(entry.key_version, entry.key_check)
                    self._versions.add(entry.key_version)
            self._cutoffs, self._seen = cutoffs(asked), version
        return bool(self._cutoffs)

    def _may_be_old(self, batch: TableBatch) -> bool:
        """Whether any of its events may stand at or below a cut-off."""
        return batch.tombstones is not None or any(
            self._reaches(group, cutoff, batch.table)
            for group in batch.groups
            for cutoff in self._cutoffs.values()
            if group.kind == CHANGE
        )

    @staticmethod
    def _reaches(group: Group, cutoff: Cutoff, table: str) -> bool:
        lowest, last = group.first[2], cutoff.position(table)
        ends = [cutoff.offsets.get(topic, {}).get(partition) for topic, partition in group.partitions]
        if any(end is not None and lowest < end for end in ends):
            return True
        if last is not None and group.placed:
            return group.first_position[:5] <= last[:5]
        return None in ends

    def _fenced(self, ledger: Ledger, batch: TableBatch, schemas: Schemas) -> TableBatch:
        told = self._told(ledger, batch, schemas)
        if told is None:
            return batch
        old = checkpoint(told.groupBy(EVENT_ID, GROUP).agg(F.max(BEFORE_CUTOFF).alias(BEFORE_CUTOFF)))
        counts = {
            (r[GROUP], r[BEFORE_CUTOFF]): r["count"] for r in old.groupBy(GROUP, BEFORE_CUTOFF).count().collect()
        }  # a row per group
        if not counts:
            return batch
        return self._reduced(batch, [g for g in batch.groups if g.kind == CHANGE], old, counts)

    def _told(self, ledger: Ledger, batch: TableBatch, schemas: Schemas) -> DataFrame | None:
        """What `_old_life` says of the batch; None where no event of it can be read yet."""
        mentions = batch_key_references(batch, schemas, self._table_schemas, self._rules)
        if mentions is None:
            return None
        rows = checkpoint(mentions)
        hashed = {version: checkpoint(with_key_hashes(rows, self._keys, version)) for version in sorted(self._versions)}
        return self._old_life(ledger, hashed, batch.table)

    def _old_life(self, ledger: Ledger, events: dict[int, DataFrame], table: str) -> DataFrame:
        """The events that are kept away, with their `GROUP` and `OLD`, once for each `request` that they name; those
        that are not `OLD` are unknown. Until none brings a key that is new to the ledger."""
        while True:
            found = []
            fenced = ledger.keys()
            for version, rows in events.items():
                names = F.broadcast(rows.select(F.explode(REFERENCES).alias(KEY_HASH)).distinct())
                mine = checkpoint(fenced.where(F.col("key_version") == version).join(names, KEY_HASH, "left_semi"))
                hits = rows_referencing(rows, F.broadcast(mine))
                told = checkpoint(
                    with_cutoff_flags(hits, self._cutoffs, table).where(F.col(BEFORE_CUTOFF) | F.col(UNDECIDED))
                )
                found.append(told)
                brought = told.where(BEFORE_CUTOFF).select("request", F.explode(OWN_KEYS).alias(KEY_HASH)).distinct()
                own = [F.lit(table).alias("table"), F.lit(version).cast("int").alias("key_version")]
                new = checkpoint(
                    brought.join(mine, ["request", KEY_HASH], "left_anti").select("request", KEY_HASH, *own)
                )
                requests = [r["request"] for r in new.select("request").distinct().collect()]  # of a batch
                if self._fresh:
                    # A run may have died after it had told of these, and before it had looked for their rows.
                    self._brought.append(brought.select("request", own[0], KEY_HASH, own[1]))
                if requests:
                    self._brought.append(new.select(*KEYS.names))
                    ledger.append([LedgerEntry(FOUND, r, table=table) for r in sorted(requests)], new)
                    break
            else:
                return reduce(DataFrame.unionByName, found)

    def _reduced(
        self, batch: TableBatch, changed: Sequence[Group], away: DataFrame, counts: dict[tuple[int, bool], int]
    ) -> TableBatch:
        """The batch without these events. Unknown ones wait in quarantine."""
        places = away.select(F.col(f"{EVENT_ID}.*"), BEFORE_CUTOFF, GROUP)
        held = sum(n for (_, old), n in counts.items() if not old)
        if held:
            self._set_aside(batch, places.where(~F.col(BEFORE_CUTOFF)))
        gone = F.broadcast(places.select(*_ID))
        lost = {number: sum(n for (group, _), n in counts.items() if group == number) for number, _ in counts}
        numbers = {group: number for number, group in enumerate(changed)}
        groups = [replace(g, count=g.count - lost.get(numbers.get(g, TOMBSTONES - 1), 0)) for g in batch.groups]
        rest = batch.tombstones
        if rest is not None and TOMBSTONES in lost:
            rest = rest.join(gone, _ID, "left_anti")
        return replace(
            batch,
            groups=groups,
            events=batch.events.join(gone, _ID, "left_anti"),
            tombstones=rest,
            tombstone_count=batch.tombstone_count - lost.get(TOMBSTONES, 0),
            suppressed=sum(counts.values()) - held,
            held=held,
        )

    def _set_aside(self, batch: TableBatch, places: DataFrame) -> None:
        said = {"table": F.lit(batch.table), "code": F.lit(OLD_OR_NEW), "reason": F.lit(_REASON)}
        for events in (batch.events, batch.tombstones):
            if events is not None:
                self._quarantine.add(events.join(F.broadcast(places.select(*_ID)), _ID, "left_semi").withColumns(said))
