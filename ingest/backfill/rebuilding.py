"""Rebuilds tables from all of their events, by the pipeline's current file, and replaces each in one commit.

The replaced rows stay readable as older versions of the Delta table. The stream may go on: a rebuild leases the table,
recomputes the batches that were merged meanwhile too, and fails to commit if a batch still came in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.backfill.recomputing import readers_with_events, recompute_tables
from ingest.changelog.accounting import Account
from ingest.changelog.envelope import BATCH
from ingest.config import Pipeline
from ingest.delta.commit_log import THROUGH_BATCH, WRITER
from ingest.delta.conflict_retry import retry_on_conflict
from ingest.errors import ChangelogUnusable, Contended
from ingest.jvm.folders import delete_folder
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.backfills import REBUILD, BackfillRun, Backfills
from ingest.lakehouse.catalog import Catalog, CatalogEntry
from ingest.lakehouse.quarantine import Quarantine
from ingest.lakehouse.schema_history import SchemaHistory
from ingest.loop.set_aside import SetAsideTables
from ingest.names import Lakehouse
from ingest.pipeline.composition import rules_of
from ingest.reconcile import TableState, table_state

_LEASE_SECONDS = 300.0


class Rebuild:
    """A rebuild of a pipeline's tables: continues the unfinished one of an equal request, or begins a new one."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, tables: Sequence[str] = ()) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._tables = tuple(sorted(tables))
        self._layout = pipeline.layout
        accounts = Accounts(spark, self._layout.accounts, pipeline.name)
        merged, self._set_aside = accounts.merged_through(), accounts.set_aside()
        self._registry = Backfills(spark, self._layout.backfills, pipeline.name)
        self.backfill_run: BackfillRun = self._registry.start({"source": REBUILD, "tables": [*self._tables]}, merged)
        self._scratch = self._layout.scratch(f"rebuild-{self.backfill_run.number}")

    def run(self, report: Callable[[Sequence[Account]], None] = lambda _: None) -> list[CatalogEntry]:
        """Rebuilds the tables and returns their catalog entries. Raises Contended if the stream leaves no time for the
        commit."""
        try:
            entries = self._recompute(report)
        except ChangelogUnusable:
            # Repeating this rebuild would fail alike; a later one, after a correction, begins anew.
            self._end()
            raise
        for entry in entries:
            retry_on_conflict()(self._swap, entry.table_schema.table)
            self._account_for_waiting(entry.table_schema.table)
        self._end()
        return entries

    def _end(self) -> None:
        self._registry.end(self.backfill_run)
        delete_folder(self._spark, self._scratch.root)

    def _account_for_waiting(self, table: str) -> None:
        """Corrects the accounts and the quarantine of a table that was set aside: the rebuilt table holds its waiting
        events."""
        name = self._pipeline.name
        if table not in self._set_aside:
            return
        accounts = Accounts(self._spark, self._layout.accounts, name)
        recomputed, after = Accounts(self._spark, self._scratch.accounts, name), self._set_aside[table].after
        through_batch = recomputed.merged_through()
        shares = [share for share in accounts.waiting(table) if share.through_batch <= through_batch]
        if not shares:
            return
        quarantine = Quarantine(self._spark, self._layout.quarantine, name)
        refused = Quarantine(self._spark, self._scratch.quarantine, name).rows()
        total = recomputed.total(table, after, shares[-1].through_batch)
        SetAsideTables(accounts, quarantine).caught_up(table, shares, total)
        quarantine.add(refused.where((F.col("table") == table) & (F.col(BATCH) > after)))

    def _recompute(self, report: Callable[[Sequence[Account]], None] = lambda _: None) -> list[CatalogEntry]:
        history = rules_of(self._pipeline).history
        slice_ends = {after for one in self._set_aside.values() for after in (one.after, self.backfill_run.upto_batch)}
        return recompute_tables(
            self._spark,
            self._pipeline,
            self._scratch,
            self._tables,
            report=report,
            history=history,
            slice_ends=slice_ends,
            known_messages=SchemaHistory(self._spark, self._layout.schemas, self._pipeline.name),
        )

    def _swap(self, table: str) -> None:
        name = self._pipeline.name
        live = self._state_in(self._layout, table)
        for part in live.tables:
            part.take_lease(self.backfill_run.writer, _LEASE_SECONDS)
        entries = self._recompute()
        (entry,) = (e for e in entries if e.table_schema.table == table)
        for part in live.all_tables:
            part.pin_snapshot(self.backfill_run.writer)
        for reader, _ in readers_with_events(self._spark, self._pipeline):
            through_batch = Accounts(self._spark, self._scratch.accounts, reader.writer).merged_through()
            if live.silver.txn_version(reader.writer) > through_batch:
                raise Contended(
                    f"table {table} holds batches after {through_batch}, which are not recomputed yet",
                    "run the same command again",
                )
        catalog = Catalog(self._spark, self._layout.tables)
        known = {e.table_schema.table: e for e in catalog.entries(name)}.get(table)
        self._replace(entry, live, known.revision if known else 0)
        versions = known.versions if known else frozenset()
        # Rows are folded under the names that the file declares by now.
        named = known.renamed(rules_of(self._pipeline).new_names(table), folded=True) if known else entry
        recorded = replace(
            entry,
            pipeline=name,
            path=live.silver.path,
            revision=known.revision + 1 if known else 1,
            versions=entry.versions | (named.seen_versions if known else frozenset()),
            renames=named.renames,
        )
        recorded = replace(recorded, table_schema=replace(entry.table_schema, revision=recorded.revision))
        catalog.record(recorded, versions)
        altered = replace(recorded, renames=entry.renames).altered_since(entry)
        for part in live.tables:
            part.evolve(entry.table_schema, recorded.table_schema, altered)

    def _replace(self, entry: CatalogEntry, live: TableState, revision: int) -> None:
        """Replaces tombstones first, then the other tables, silver last: a crash in between is healed by repeating the
        rebuild. `revision`: the newest in the live catalog."""
        rebuilt = self._state_in(self._scratch, entry.table_schema.table)
        if rebuilt.tombstones.exists():
            live.tombstones.write(rebuilt.tombstones.rows())
        txn_metadata = {WRITER: self.backfill_run.writer, THROUGH_BATCH: self.backfill_run.number}
        for old, new in zip(live.all_tables, rebuilt.all_tables, strict=True):
            if old.exists() or new.exists():
                old.replace(new, replace(entry.table_schema, revision=revision), txn_metadata)

    def _state_in(self, layout: Lakehouse, table: str) -> TableState:
        rules = rules_of(self._pipeline)
        history, personal = table in rules.history, rules.personal.get(table, frozenset())
        return table_state(self._spark, layout, self._pipeline.name, table, history, personal, rules.tuning)
