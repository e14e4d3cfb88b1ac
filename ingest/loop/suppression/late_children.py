"""Removes child rows that arrived before the parent that links them to an erased subject.

Once the parent is known to be an erased subject's, the child rows are removed from silver, and their keys are recorded
in the ledger. A row that has since changed its foreign key shows no trace of the parent: only its events do, and those
are searched when an erasure is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import EVENT_ID, POSITION_COLUMN, quoted
from ingest.delta.conflict_retry import retry_on_conflict
from ingest.lakehouse.catalog import CatalogEntry
from ingest.lakehouse.silver import Silver
from ingest.loop.table_faults import FAULTS, raised
from ingest.merge.actions import ACTION, DELETE
from ingest.merge.table_schema import TableSchema
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

_ROW = "_ingest_row"
"""A stored row as one struct, so that its columns' names can't collide with other columns."""
REQUEST = "_ingest_request"
"""The erasure request of a row that is kept masked."""
Keep = Callable[[TableSchema, DataFrame], None]
"""Takes a table's rows that are about to be removed and have to be replaced by masked ones."""


class LateChildren:
    """The late children in the tables of one pipeline, parents first."""

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
        """`masked`: tables whose rows are masked instead of removed. `keep`: takes such rows before they are removed;
        without it they stay until an erasure masks them."""
        self._ledger = ledger
        self._keys = keys
        self._subjects = subjects
        self._cutoffs = cutoffs
        self._table_state = table_state
        self._masked = masked
        self._keep = keep
        self._rows = 0

    def remove(
        self, entries: Iterable[CatalogEntry], keys: DataFrame, failed: Callable[[str, Exception], None] = raised
    ) -> int:
        """Removes the rows that reference `keys` (columns `KEYS`, of suppressed events), and those that reference rows
        removed so. Returns the number of rows. Run again after a crash it removes what is left. `failed`: takes a table
        and its error, or raises it."""
        by_table = {entry.table_schema.table: entry for entry in entries}
        for table in self._subjects.tables:
            if table in by_table:
                try:
                    keys = checkpoint(keys.unionByName(self._remove_from_table(by_table[table], keys)).distinct())
                except FAULTS as error:
                    failed(table, error)
        return self._rows

    def after_cutoff(self, entry: CatalogEntry, keys: DataFrame) -> DataFrame:
        """Returns those of `keys` (`request`, `KEY_HASH`, `key_version`) whose row the table holds after the cutoff."""
        silver, found = self._table_state(entry.table_schema.table).silver, [keys.limit(0)]
        for version in [] if silver.is_empty() else self._key_versions(keys):
            rows = with_key_hashes(_rows_with_references(silver, entry, self._subjects), self._keys, version)
            own = rows.withColumn(KEY_HASH, F.explode(OWN_KEYS))
            hits = own.join(F.broadcast(keys.where(F.col("key_version") == version)), KEY_HASH)
            flagged = with_cutoff_flags(hits, self._cutoffs, entry.table_schema.table)
            found.append(flagged.where(~F.col(BEFORE_CUTOFF)).select(*keys.columns))
        return reduce(DataFrame.unionByName, found).distinct()

    def _remove_from_table(self, entry: CatalogEntry, keys: DataFrame) -> DataFrame:
        """Returns the `KEYS` of the rows removed from one table."""
        stored = self._table_state(entry.table_schema.table)
        removed, versions = [keys.limit(0)], self._key_versions(keys)
        for part in stored.tables:
            # Mostly nothing is pending.
            if not part.is_empty():
                removed += [self._remove_of_version(part, entry, keys, version) for version in versions]
        return reduce(DataFrame.unionByName, removed).distinct()

    def _remove_of_version(self, part: Silver, entry: CatalogEntry, keys: DataFrame, version: int) -> DataFrame:
        table_schema = entry.table_schema
        of_version = F.broadcast(keys.where(F.col("key_version") == version))
        rows = with_key_hashes(_rows_with_references(part, entry, self._subjects), self._keys, version)
        hits = rows_referencing(rows, of_version)
        children = checkpoint(with_cutoff_flags(hits, self._cutoffs, table_schema.table).where(BEFORE_CUTOFF))
        child_keys = children.select("request", F.explode(OWN_KEYS).alias(KEY_HASH)).distinct()
        origin = {"table": F.lit(table_schema.table), "key_version": F.lit(version).cast("int")}
        found = checkpoint(child_keys.withColumns(origin).select(*KEYS.names))
        if children.isEmpty():
            return found
        new = checkpoint(found.join(self._ledger.keys(), KEYS.names, "left_anti"))
        requests = [r["request"] for r in new.select("request").distinct().collect()]  # of a slice
        if requests:
            # Before the rows are removed: their keys can't be found afterwards.
            self._ledger.append([LedgerEntry(FOUND, r, table=table_schema.table) for r in sorted(requests)], new)
        if table_schema.table in self._masked:
            if self._keep is None:
                return found
            if part is self._table_state(table_schema.table).silver:
                self._keep(table_schema, children.select(f"{_ROW}.*", F.col("request").alias(REQUEST)))
        rows = children.select(f"{_ROW}.*").dropDuplicates([*table_schema.identity, *part.version_columns])
        rows = rows.select(*map(quoted, part.rows().columns))
        self._rows += retry_on_conflict()(part.remove, rows.withColumn(ACTION, F.lit(DELETE)), table_schema, {})
        return found

    @staticmethod
    def _key_versions(keys: DataFrame) -> list[int]:
        found = keys.select("key_version").distinct().orderBy("key_version")
        return [row["key_version"] for row in found.collect()]  # of secret keys


def _rows_with_references(part: Silver, entry: CatalogEntry, subjects: Subjects) -> DataFrame:
    """Returns each stored row as the struct `_ROW`, with `event_columns`, `OWN_KEYS` and `REFERENCES`."""
    table_schema: TableSchema = entry.table_schema
    own = own_keys(table_schema)
    references = F.concat(own, foreign_keys(table_schema, subjects)).alias(REFERENCES)
    return part.located().select(F.struct("*").alias(_ROW), *event_columns(entry), own.alias(OWN_KEYS), references)


def event_columns(entry: CatalogEntry) -> list[Column]:
    """Returns, for stored rows, `EVENT_ID`, `position` and `op` of the event behind each, which a cutoff is compared
    with. The topic is null where the table has several: the source's position alone decides then."""
    at = F.col(POSITION_COLUMN)
    topic = entry.topics[0] if len(entry.topics) == 1 else None
    event = F.struct(F.lit(topic).cast("string").alias("topic"), at["partition"].alias("partition"), at["offset"])
    op = F.when(at["streamed"] == 0, "r").otherwise("u")
    return [event.alias(EVENT_ID), at.alias("position"), op.alias("op")]
