"""Suppresses the events of erased subjects before a slice is merged: in a stream, a backfill, a rebuild and a proof.

An event is suppressed if it references a key of an erased subject and stands at or below the request's cutoff, or if it
updates an erased row that has no new life (`later_lives`). Its own keys are then recorded in the ledger too, before the
slice is accounted for, so that its children are suppressed as well, in the same slice or years later. Tables are
processed parents first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batches.group_stats import CHANGE, Group
from ingest.batches.rules import Rules
from ingest.batches.schemas import Schemas
from ingest.batches.table_batch import TableBatch
from ingest.changelog.change import EVENT_ID
from ingest.changelog.envelope import TOMBSTONE
from ingest.errors import ConfigError, LedgerIncomplete
from ingest.lakehouse.history_facts import HistoryFact, HistoryFacts
from ingest.lakehouse.quarantine import Quarantine
from ingest.loop.suppression.event_references import GROUP, TOMBSTONE_KEYS, TOMBSTONES, batch_key_references
from ingest.loop.suppression.late_children import LateChildren
from ingest.loop.suppression.later_lives import LaterLives
from ingest.loop.suppression.reach import Reach, reach_of
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
_EARLIER_UPDATES = "a create of an erased row comes after updates of its new life"
_ID = ["topic", "partition", "offset"]
_LATE_CHILDREN = "late children"
"""The history fact: through which entry of the ledger late children were removed."""


class Suppression:
    """The suppression of one pipeline. It reads no event before the first request, and hardly any once all events come
    after the cutoffs."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: str,
        rules: Rules,
        table_schemas: TableSchemas,
        table_state: Callable[[str], TableState],
        quarantine: Quarantine,
        history: HistoryFacts | None = None,
        writer: str = "",
    ) -> None:
        """`history`, `writer`: where a merge remembers under which name for which keys it has removed late children."""
        self._spark = spark
        self._pipeline = pipeline
        self._rules = rules
        self._table_schemas = table_schemas
        self._table_state = table_state
        self._quarantine = quarantine
        self._history = history
        self._writer = writer
        self._children_through: int | None = None
        self._children_version = self._ledger_version = -1
        self._cutoffs: dict[str, Cutoff] = {}
        self._reach: dict[str, Reach] = {}
        self._key_versions: set[int] = set()
        self._lives: LaterLives | None = None

    @cached_property
    def _ledger(self) -> Ledger | None:
        if self._rules.ledger is None or not self._rules.subjects.tables:
            return None
        return Ledger(self._spark, self._rules.ledger, self._pipeline)

    @cached_property
    def _keys(self) -> LedgerKeys:
        if self._rules.key_file is None:
            raise ConfigError(
                f"erasures of {self._pipeline} were requested, and its file names no key_file",
                "name it: privacy.key_file",
            )
        return read_keys(self._rules.key_file)

    def without_suppressed(
        self, batches: Sequence[TableBatch], schemas: Schemas, failed: Callable[[str, Exception], None]
    ) -> list[TableBatch]:
        """Returns the batches of a slice, given in any order, without the events to suppress. Rows of their late
        children are removed. `failed`: takes a table and its error, or raises it; that batch is returned whole."""
        if self._ledger is None or not self.has_requests:
            return list(batches)
        by_table = {batch.table: batch for batch in batches}
        for table in self._rules.subjects.tables:
            if table in by_table:
                try:
                    by_table[table] = self._without_suppressed(self._ledger, by_table[table], schemas)
                except FAULTS as error:
                    failed(table, error)
        self._remove_late_children(self._ledger)
        return list(by_table.values())

    def events_before_cutoff(
        self, batches: Sequence[TableBatch], schemas: Schemas, failed: Callable[[str, Exception], None]
    ) -> list[DataFrame]:
        """Returns `EVENT_ID`, `request`, `table` and `TOMBSTONE_KEYS` of the events of these batches that are to be
        suppressed. Records their keys in the ledger. `failed`: takes a table and its error, or raises it; the events of
        that table are left out."""
        if self._ledger is None or not self.has_requests:
            return []
        by_table = {batch.table: batch for batch in batches}
        tables = [t for t in self._rules.subjects.tables if t in by_table and self._may_reach_cutoff(by_table[t])]
        found = []
        for table in tables:
            try:
                flagged = self._flagged_events(self._ledger, by_table[table], schemas)
            except FAULTS as error:
                failed(table, error)
                continue
            if flagged is not None:
                of_table = F.lit(table).alias("table")
                found.append(flagged.where(BEFORE_CUTOFF).select(EVENT_ID, "request", of_table, TOMBSTONE_KEYS))
        return found

    @property
    def has_requests(self) -> bool:
        """Returns whether the ledger holds any request now. Reads the cutoffs of new ones, and checks their keys.

        Raises LedgerIncomplete if the ledger has become older."""
        if self._ledger is None:
            return False
        version = self._ledger.version()
        if version < self._ledger_version:
            raise LedgerIncomplete(
                f"the ledger of erasures of {self._pipeline} was removed or rolled back during this run",
                f"bring it back from its copy: ingest ledger restore {self._pipeline}",
            )
        if version > self._ledger_version:
            requests = [e for e in self._ledger.entries() if e.kind == REQUESTED]
            for entry in requests:
                if entry.key_version is not None and entry.key_check is not None:
                    self._keys.require(entry.key_version, entry.key_check)
                    self._key_versions.add(entry.key_version)
            self._cutoffs, self._reach, self._ledger_version = cutoffs(requests), {}, version
        return bool(self._cutoffs)

    def may_suppress(self, groups: Sequence[Group]) -> bool:
        """Returns whether any event of these groups may stand at or below a cutoff, according to its statistics."""
        subject_tables = {*self._rules.subjects.tables}
        of_subjects = (g for g in groups if g.kind == TOMBSTONE or (g.kind == CHANGE and g.table in subject_tables))
        return any(self._reach_of(group.table or "").covers(group) for group in of_subjects)

    def _may_reach_cutoff(self, batch: TableBatch) -> bool:
        changes = (group for group in batch.groups if group.kind == CHANGE)
        return batch.tombstones is not None or any(map(self._reach_of(batch.table).covers, changes))

    def _reach_of(self, table: str) -> Reach:
        if table not in self._reach:
            self._reach[table] = reach_of(self._cutoffs.values(), table)
        return self._reach[table]

    def _remove_late_children(self, ledger: Ledger) -> None:
        """Removes rows that arrived before the rows that link them to a subject, of all keys that the ledger got since
        this was done last: from this merge, or from a capture that has stored the events without their content."""
        version = ledger.version()
        if self._history is None or version == self._children_version:
            return
        if self._children_through is None:
            known = self._history.load(self._writer, _LATE_CHILDREN, "")
            self._children_through = 0 if known is None else known.through_batch
        entries = ledger.entries_after(self._children_through)
        numbers = [entry.number for entry in entries if entry.kind == FOUND]
        if numbers:
            keys = ledger.keys_by_entry(self._children_through).where(F.col("number").isin(numbers))
            late_children = LateChildren(
                ledger, self._keys, self._rules.subjects, self._cutoffs, self._table_state, self._rules.masks
            )
            late_children.remove(self._table_schemas.entries, checkpoint(keys.select(*KEYS.names).distinct()))
            # What it finds itself it has also removed.
            self._children_through = ledger.last_number()
            self._history.store(self._writer, _LATE_CHILDREN, "", HistoryFact(self._children_through, {}))
        self._children_version = ledger.version()

    def _without_suppressed(self, ledger: Ledger, batch: TableBatch, schemas: Schemas) -> TableBatch:
        # A row that is kept masked goes on at the source, so its updates are merged.
        reaches, watches = self._may_reach_cutoff(batch), batch.table not in self._rules.masks
        events = self._hashed_events(batch, schemas) if reaches or watches else None
        if events is None:
            return batch
        found = []
        if reaches:
            found.append(self._flagged(ledger, events, batch.table).select(EVENT_ID, GROUP, BEFORE_CUTOFF))
        # By then the ledger has the keys that this slice brings.
        found += self._without_new_life(ledger, events, batch.table) if watches else []
        if not found:
            return batch
        flagged = reduce(DataFrame.unionByName, found)
        per_event = flagged.groupBy(EVENT_ID, GROUP).agg(F.max(BEFORE_CUTOFF).alias(BEFORE_CUTOFF))
        per_event = checkpoint(per_event)
        rows = per_event.groupBy(GROUP, BEFORE_CUTOFF).count().collect()  # two rows per group
        counts = {(row[GROUP], row[BEFORE_CUTOFF]): row["count"] for row in rows}
        if not counts:
            return batch
        return self._without_events(batch, [g for g in batch.groups if g.kind == CHANGE], per_event, counts)

    def _flagged_events(self, ledger: Ledger, batch: TableBatch, schemas: Schemas) -> DataFrame | None:
        """Returns `_flagged` of the batch's events; None where no event of it can be read yet."""
        events = self._hashed_events(batch, schemas)
        return None if events is None else self._flagged(ledger, events, batch.table)

    def _hashed_events(self, batch: TableBatch, schemas: Schemas) -> dict[int, DataFrame] | None:
        """Returns the references of the batch's events with hashes, by version of the key; None where no event of it
        can be read yet."""
        references = batch_key_references(batch, schemas, self._table_schemas, self._rules)
        if references is None:
            return None
        versions = sorted(self._key_versions)
        rows = references if len(versions) == 1 else checkpoint(references)
        return {version: checkpoint(with_key_hashes(rows, self._keys, version)) for version in versions}

    def _without_new_life(self, ledger: Ledger, events: dict[int, DataFrame], table: str) -> list[DataFrame]:
        """Returns the events after the cutoffs that are suppressed because their row has no new life, with `GROUP` and
        `BEFORE_CUTOFF`."""
        if self._lives is None:
            reads, living = self._rules.suppresses_later_reads, partial(self._living, ledger)
            self._lives = LaterLives(self._spark, ledger, reads, self._fold_anew, living)
        is_root, is_before = table in self._rules.subjects.keys, F.lit(True).alias(BEFORE_CUTOFF)
        return [
            rows.join(F.broadcast(dead), EVENT_ID, "left_semi").select(EVENT_ID, GROUP, is_before)
            for version, rows in events.items()
            for dead in self._lives.suppressed(rows, version, self._cutoffs, table, is_root)
        ]

    def _fold_anew(self, table: str) -> None:
        """Lets a run fold a table from its events again."""
        self._table_schemas.fold_anew(table, _EARLIER_UPDATES, self._table_state(table))

    def _living(self, ledger: Ledger, table: str, keys: DataFrame) -> DataFrame:
        """Returns those of `keys` whose rows the table holds in a life after the cutoff."""
        entries = [e for e in self._table_schemas.entries if e.table_schema.table == table]
        late_children = LateChildren(ledger, self._keys, self._rules.subjects, self._cutoffs, self._table_state)
        return late_children.after_cutoff(entries[0], keys) if entries else keys.limit(0)

    def _flagged(self, ledger: Ledger, events: dict[int, DataFrame], table: str) -> DataFrame:
        """Returns the events that can't be merged, with their `GROUP` and `BEFORE_CUTOFF`, once for each `request`
        whose keys they reference; without `BEFORE_CUTOFF` they are undecided. `events`: with hashes, by version of the
        key.

        Repeats until no event brings a key that is new to the ledger; new ones are recorded there."""
        while True:
            found = []
            ledger_keys = ledger.keys()
            for version, rows in events.items():
                hashes = F.broadcast(rows.select(F.explode(REFERENCES).alias(KEY_HASH)).distinct())
                of_version = ledger_keys.where(F.col("key_version") == version)
                known = checkpoint(of_version.join(hashes, KEY_HASH, "left_semi"))
                # Not the cutoffs of all requests: there may be far more than events here.
                named = {row["request"] for row in known.select("request").distinct().collect()}
                cutoffs_here = {request: self._cutoffs[request] for request in named & self._cutoffs.keys()}
                hits = with_cutoff_flags(rows_referencing(rows, F.broadcast(known)), cutoffs_here, table)
                flagged = checkpoint(hits.where(F.col(BEFORE_CUTOFF) | F.col(UNDECIDED)))
                found.append(flagged)
                own_keys = flagged.where(BEFORE_CUTOFF).select("request", F.explode(OWN_KEYS).alias(KEY_HASH))
                own_keys = own_keys.distinct()
                origin = [F.lit(table).alias("table"), F.lit(version).cast("int").alias("key_version")]
                new = own_keys.join(known, ["request", KEY_HASH], "left_anti").select("request", KEY_HASH, *origin)
                new = checkpoint(new)
                requests = [r["request"] for r in new.select("request").distinct().collect()]  # of a batch
                if requests:
                    ledger.append([LedgerEntry(FOUND, r, table=table) for r in sorted(requests)], new)
                    break
            else:
                return reduce(DataFrame.unionByName, found)

    def _without_events(
        self, batch: TableBatch, changed: Sequence[Group], flagged: DataFrame, counts: dict[tuple[int, bool], int]
    ) -> TableBatch:
        """Returns the batch without the flagged events. Undecided ones wait in quarantine. `counts`: number of events
        by number of the group and by `BEFORE_CUTOFF`."""
        events = flagged.select(F.col(f"{EVENT_ID}.*"), BEFORE_CUTOFF, GROUP)
        undecided = sum(n for (_, is_before), n in counts.items() if not is_before)
        if undecided:
            self._quarantine_undecided(batch, events.where(~F.col(BEFORE_CUTOFF)))
        removed = F.broadcast(events.select(*_ID))
        per_group = {number: sum(n for (group, _), n in counts.items() if group == number) for number, _ in counts}
        numbers = {group: number for number, group in enumerate(changed)}
        groups = [replace(g, count=g.count - per_group.get(numbers.get(g, TOMBSTONES - 1), 0)) for g in batch.groups]
        tombstones = batch.tombstones
        if tombstones is not None and TOMBSTONES in per_group:
            tombstones = tombstones.join(removed, _ID, "left_anti")
        return replace(
            batch,
            groups=groups,
            events=batch.events.join(removed, _ID, "left_anti"),
            tombstones=tombstones,
            tombstone_count=batch.tombstone_count - per_group.get(TOMBSTONES, 0),
            suppressed=sum(counts.values()) - undecided,
            quarantined=undecided,
        )

    def _quarantine_undecided(self, batch: TableBatch, undecided: DataFrame) -> None:
        columns = {"table": F.lit(batch.table), "code": F.lit(OLD_OR_NEW), "reason": F.lit(_REASON)}
        for events in (batch.events, batch.tombstones):
            if events is not None:
                rows = events.join(F.broadcast(undecided.select(*_ID)), _ID, "left_semi")
                self._quarantine.add(rows.withColumns(columns))
