"""Rows that came before anything told whose they are: the photo of a claim of which nobody had heard. Once the claim is
known to be an erased member's, they are taken out of silver, and their keys are fenced too.

A row that has led to somebody else since shows no trace of it: only its events tell, which asking follows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import EVENT_ID, POSITION_COLUMN, quoted
from ingest.delta.conflict_retry import retry_on_conflict
from ingest.lakehouse.catalog import CatalogEntry
from ingest.lakehouse.silver import Silver
from ingest.merge.actions import ACTION, DELETE
from ingest.merge.images import TableSchema
from ingest.reconcile import TableState
from ingest.spark.checkpoints import checkpoint
from ingest.suppression.before_cutoff import BEFORE_CUTOFF, with_cutoff_flags
from ingest.suppression.cutoff import Cutoff
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
from ingest.suppression.ledger import FOUND, KEYS, Ledger, LedgerEntry
from ingest.suppression.subjects import Subjects

Keep = Callable[[TableSchema, DataFrame], None]


class LateChildren:
    """Of the tables of one pipeline, parents first."""

    def __init__(
        self,
        ledger: Ledger,
        keys: LedgerKeys,
        subjects: Subjects,
        cutoffs: Mapping[str, Cutoff],
        table_state: Callable[[str], TableState],
        masked: Collection[str] = (),
        keep: Keep | None = None,
    ) -> None:
        """`masked`: tables of whose rows something is left. `keep` hears of such rows before they go; where nobody is
        to hear of them they stay, until a removal comes by."""
        self._ledger = ledger
        self._keys = keys
        self._subjects = subjects
        self._cutoffs = cutoffs
        self._table_state = table_state
        self._masked = masked
        self._keep = keep
        self._rows = 0

    def run(self, tables: Iterable[CatalogEntry], brought: DataFrame) -> int:
        """`brought`: `KEYS` of events that were kept away. What died in the middle is made good by the same again.
        How many rows went."""
        known = {entry.table_schema.table: entry for entry in tables}
        for table in self._subjects.tables:
            if table in known:
                brought = checkpoint(brought.unionByName(self._swept(known[table], brought)).distinct())
        return self._rows

    def _swept(self, entry: CatalogEntry, brought: DataFrame) -> DataFrame:
        """The `KEYS` of the table's rows that are gone."""
        stored = self._table_state(entry.table_schema.table)
        gone, versions = [brought.limit(0)], self._versions(brought)
        for kept in stored.tables:
            # Nothing is pending most of the time.
            if not kept.is_empty():
                gone += [self._of_version(kept, entry, brought, version) for version in versions]
        return reduce(DataFrame.unionByName, gone).distinct()

    def _of_version(self, kept: Silver, entry: CatalogEntry, brought: DataFrame, version: int) -> DataFrame:
        table_schema = entry.table_schema
        mine = brought.where(F.col("key_version") == version)
        hits = rows_referencing(
            with_key_hashes(_rows(kept, entry, self._subjects), self._keys, version), F.broadcast(mine)
        )
        old = checkpoint(with_cutoff_flags(hits, self._cutoffs, table_schema.table).where(BEFORE_CUTOFF))
        keys = old.select("request", F.explode(OWN_KEYS).alias(KEY_HASH)).distinct()
        named = {"table": F.lit(table_schema.table), "key_version": F.lit(version).cast("int")}
        found = checkpoint(keys.withColumns(named).select(*KEYS.names))
        if old.isEmpty():
            return found
        new = checkpoint(found.join(self._ledger.keys(), KEYS.names, "left_anti"))
        requests = [r["request"] for r in new.select("request").distinct().collect()]  # of a slice
        if requests:
            # Before the rows go: what is known of them goes with them.
            self._ledger.append([LedgerEntry(FOUND, r, table=table_schema.table) for r in sorted(requests)], new)
        if table_schema.table in self._masked:
            if self._keep is None:
                return found
            if kept is self._table_state(table_schema.table).silver:
                self._keep(table_schema, old)
        rows = old.dropDuplicates([*table_schema.identity, *kept.version_columns]).select(
            *map(quoted, kept.rows().columns)
        )
        self._rows += retry_on_conflict()(kept.remove, rows.withColumn(ACTION, F.lit(DELETE)), table_schema, {})
        return found

    @staticmethod
    def _versions(brought: DataFrame) -> list[int]:
        found = brought.select("key_version").distinct().orderBy("key_version")
        return [row["key_version"] for row in found.collect()]  # of secret keys


def _rows(kept: Silver, entry: CatalogEntry, subjects: Subjects) -> DataFrame:
    """With what tells a row's life, and whom it names."""
    table_schema: TableSchema = entry.table_schema
    mine = own_keys(table_schema)
    return lived(kept.located(), entry).withColumns(
        {OWN_KEYS: mine, REFERENCES: F.concat(mine, foreign_keys(table_schema, subjects))}
    )


def lived(rows: DataFrame, entry: CatalogEntry) -> DataFrame:
    """Rows of a table, with what tells of which life they are: where the event behind each stands."""
    at = F.col(POSITION_COLUMN)
    # Of several topics nothing tells which the row came from: then its source's position alone does.
    topic = entry.topics[0] if len(entry.topics) == 1 else None
    event = F.struct(F.lit(topic).cast("string").alias("topic"), at["partition"].alias("partition"), at["offset"])
    return rows.withColumns({EVENT_ID: event, "position": at, "op": F.when(at["streamed"] == 0, "r").otherwise("u")})
