"""The events of erased subjects' old lives in the histories that a pipeline has read: found without reading all of it.

What was searched for which keys is remembered. So a run opens what has come since, and of the rest those spans that may
name a key that was not looked for there before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.source_readers import SourceReader
from ingest.batches.rules import Rules
from ingest.changelog.change import EVENT_ID
from ingest.config import Pipeline
from ingest.erasure.subject_index import Span, index_of, joined
from ingest.lakehouse.history_facts import HistoryFact, HistoryFacts
from ingest.lakehouse.quarantine import Quarantine
from ingest.loop.event_references import TOMBSTONE_KEYS
from ingest.loop.slices import Slices
from ingest.loop.suppress import Suppression
from ingest.loop.table_schemas import TableSchemas
from ingest.reconcile import TableState
from ingest.spark.checkpoints import checkpoint_scope
from ingest.suppression.key_file import LedgerKeys
from ingest.suppression.ledger import Ledger

READER = "_ingest_reader"
"""Whose bronze an event is in: of two, coordinates may be the same."""
_KIND = "searched"
_SCHEMA = (
    f"{EVENT_ID} struct<topic string, partition int, offset bigint>, request string, table string, "
    f"{TOMBSTONE_KEYS} array<binary>, {READER} string"
)


class OldEvents:
    """Of one run of a removal."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        rules: Rules,
        table_schemas: TableSchemas,
        table_state: Callable[[str], TableState],
        ledger: Ledger,
        keys: LedgerKeys,
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._rules = rules
        self._table_schemas = table_schemas
        self._table_state = table_state
        self._ledger = ledger
        self._keys = keys
        self._quarantine = Quarantine(spark, pipeline.layout.quarantine, pipeline.name)
        self._history = HistoryFacts(spark, pipeline.layout.known_history)
        self._spans: dict[str, list[Span]] = defaultdict(list)
        self._searched: list[Callable[[], None]] = []

    def found(self, source_readers: Iterable[SourceReader]) -> DataFrame:
        """Returns `EVENT_ID`, `request`, `table`, `GRAVES` and `READER` of the events that are there by now."""
        nothing = self._spark.createDataFrame([], _SCHEMA)
        return reduce(
            DataFrame.unionByName, [nothing, *(one for reader in source_readers for one in self._found_in(reader))]
        )

    def spans(self, reader: str) -> list[Span]:
        """Returns the spans of a reader's bronze that hold all of the events found there."""
        return joined(self._spans[reader])

    def remember(self) -> None:
        """To be called once the events that were found are gone: they are not sought again. Raises Contended where
        another removal has run meanwhile: then they are."""
        for step in self._searched:
            step()

    def _found_in(self, reader: SourceReader) -> list[DataFrame]:
        versions = [entry.key_version for entry in self._ledger.requests().values()]
        index = index_of(self._spark, self._pipeline, reader, self._table_schemas, self._keys, versions)
        known = self._history.load(reader.writer, _KIND, index.basis) or HistoryFact(0, {"entry": 0})
        entry, spans = known.facts["entry"], index.spans
        new = {span for span in spans if span.upto > known.through_batch}
        opened = new & {*index.naming(self._ledger.keys())} if new else set[Span]()
        found: list[DataFrame] = []
        while True:
            last = self._ledger.last_number()
            opened |= {*index.rest, *index.naming(self._ledger.keys_after(entry))}
            for span in sorted(opened):
                found += self._found_within(reader, span)
            entry = last
            # Events may have brought keys that are new to the ledger: what names those is sought too, and it may stand
            # in spans that were opened before these keys were known.
            if self._ledger.last_number() == last:
                break
            opened = set()
        upto = spans[-1].upto if spans else 0
        index.forget(self._spans[reader.writer])
        keep = partial(self._history.store, reader.writer, _KIND, index.basis, HistoryFact(upto, {"entry": entry}))
        self._searched += [index.require_unchanged, keep]
        return found

    def _found_within(self, reader: SourceReader, span: Span) -> list[DataFrame]:
        rules = replace(self._rules, columns=reader.columns)
        bronze = reader.bronze(self._spark, rules)
        suppression = Suppression(
            self._spark, self._pipeline.name, rules, self._table_schemas, self._table_state, self._quarantine
        )
        slices = Slices(bronze, rules, self._table_schemas, self._pipeline.batch.merged_at_once)
        found, after = list[DataFrame](), span.after
        while after < span.upto:
            upto = slices.end(after, span.upto)
            with checkpoint_scope():
                read = slices.read(after, upto, slices.profile(after, upto, span.upto), repeated=True)
                # These stay beyond the slice: places of erased events, nothing of what they held.
                told = [one.localCheckpoint() for one in suppression.events_before_cutoff(read.batches, slices.schemas)]
            found += [one.withColumn(READER, F.lit(reader.writer)) for one in told if not one.isEmpty()]
            after = upto
        if found:
            self._spans[reader.writer].append(span)
        return found
