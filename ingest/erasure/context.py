"""What the search and the removal of an erasure share: the pipeline's tables, readers and ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.source_readers import SourceReader, source_readers
from ingest.batches.rules import Rules
from ingest.config import Pipeline
from ingest.delta.conflict_retry import retry_on_conflict
from ingest.lakehouse.bronze import COORDINATES, Bronze
from ingest.lakehouse.catalog import CatalogEntry
from ingest.lakehouse.quarantine import Quarantine
from ingest.loop.table_schemas import TableSchemas
from ingest.pipeline.composition import rules_of
from ingest.reconcile import TableState, table_state
from ingest.suppression.key_file import LedgerKeys, read_keys
from ingest.suppression.ledger import Ledger


@dataclass(frozen=True)
class ErasureContext:
    """One pipeline. `readers`: those that had captured events when the context was made."""

    spark: SparkSession
    pipeline: Pipeline
    rules: Rules
    table_schemas: TableSchemas
    readers: Sequence[SourceReader]
    _table_states: dict[str, TableState] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, spark: SparkSession, pipeline: Pipeline) -> ErasureContext:
        """Returns the context of a pipeline. Reads its catalog and its list of backfills."""
        rules = rules_of(pipeline)
        schemas = TableSchemas(spark, pipeline.name, pipeline.layout, rules)
        readers = source_readers(spark, pipeline)
        return cls(spark, pipeline, rules, schemas, readers)

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.spark, self.pipeline.layout.ledger, self.pipeline.name)

    @cached_property
    def quarantine(self) -> Quarantine:
        return Quarantine(self.spark, self.pipeline.layout.quarantine, self.pipeline.name)

    @cached_property
    def keys(self) -> LedgerKeys:
        """Returns the secret keys of the ledger, read from their file at the first call."""
        assert self.rules.key_file is not None, "the configuration refuses subjects without a key file"
        return read_keys(self.rules.key_file)

    @property
    def subject_tables(self) -> list[CatalogEntry]:
        """Returns the tables whose rows are or lead to subjects."""
        return [e for e in self.table_schemas.entries if self.rules.subjects.has_subject(e.table_schema.table)]

    def table_state(self, table: str) -> TableState:
        if table not in self._table_states:
            history, personal = table in self.rules.history, self.rules.personal.get(table, frozenset())
            layout, name, tuning = self.pipeline.layout, self.pipeline.name, self.rules.tuning
            state = table_state(self.spark, layout, name, table, history, personal, tuning)
            retry_on_conflict()(self.table_schemas.revisions.bring_up, table, state)
            self._table_states[table] = state
        return self._table_states[table]

    def bronze(self, reader: SourceReader) -> Bronze:
        return reader.bronze(self.spark, self.rules)

    @property
    def topic_bronzes(self) -> list[Bronze]:
        """Returns the bronzes whose coordinates are those of the changelog's topics."""
        return [self.bronze(reader) for reader in self.readers if reader.from_topics]

    def emptied_events(self, *columns: str) -> DataFrame:
        """Returns `COORDINATES`, `columns` and `request` of the events that were emptied in `topic_bronzes`, each
        once."""
        events = reduce(DataFrame.unionByName, [bronze.emptied() for bronze in self.topic_bronzes])
        return events.groupBy(*COORDINATES, *columns).agg(F.min("request").alias("request"))
