"""Finds the events of erased subjects before their cutoffs in the histories that a pipeline has read, without reading
these as a whole.

It remembers which spans were searched for which keys. A run searches new spans, and of the others those that may
reference a key that they were not searched for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.backfill.source_readers import SourceReader
from ingest.changelog.change import EVENT_ID
from ingest.erasure.context import ErasureContext
from ingest.erasure.subject_index import Span, index_of, merge_spans
from ingest.lakehouse.bronze import COORDINATES
from ingest.lakehouse.history_facts import HistoryFact, HistoryFacts
from ingest.loop.slices import Slices
from ingest.loop.suppression.event_references import TOMBSTONE_KEYS
from ingest.loop.suppression.suppress import Suppression
from ingest.loop.table_faults import FaultyTables
from ingest.spark.checkpoints import checkpoint_scope

READER = "_ingest_reader"
"""Column: the reader whose bronze an event is in. Coordinates are unique only within one reader's bronze."""
_KIND = "searched"
_SCHEMA = (
    f"{EVENT_ID} struct<topic string, partition int, offset bigint>, request string, table string, "
    f"{TOMBSTONE_KEYS} array<binary>, {READER} string"
)


class ErasedEvents:
    """The event search of one removal run."""

    def __init__(self, context: ErasureContext, faulty: FaultyTables) -> None:
        """`faulty`: takes the tables that can't be searched, and has those that failed elsewhere."""
        self._context = context
        self._faulty = faulty
        self._history = HistoryFacts(context.spark, context.pipeline.layout.history_facts)
        self._spans: dict[str, list[Span]] = defaultdict(list)
        self._on_erased: list[Callable[[], None]] = []

    @cached_property
    def found(self) -> DataFrame:
        """Returns `EVENT_ID`, `request`, `table`, `TOMBSTONE_KEYS` and `READER` of the events. The first call
        searches."""
        no_events = self._context.spark.createDataFrame([], _SCHEMA)
        return reduce(
            DataFrame.unionByName,
            [no_events, *(events for reader in self._context.readers for events in self._find_in(reader))],
        )

    @property
    def coordinates(self) -> DataFrame:
        """Returns `COORDINATES`, `READER` and `request` of the events, each once, without those of faulty tables."""
        return self._coordinates.where(~F.col("table").isin([*self._faulty.reasons])).drop("table")

    @cached_property
    def _coordinates(self) -> DataFrame:
        coordinates = self.found.select(*(F.col(EVENT_ID)[c].alias(c) for c in COORDINATES), "request", "table", READER)
        once = coordinates.groupBy(*COORDINATES, "table", READER).agg(F.min("request").alias("request"))
        return once.localCheckpoint()

    def counts(self) -> dict[str, int]:
        """Returns reader → number of `coordinates`, of readers that have any."""
        return {r[READER]: r["count"] for r in self.coordinates.groupBy(READER).count().collect()}  # a row per reader

    def of_reader(self, reader: str) -> DataFrame:
        """Returns `coordinates` of the events in a reader's bronze."""
        return self.coordinates.where(F.col(READER) == reader)

    def spans(self, reader: str) -> list[Span]:
        """Returns the spans of a reader's bronze that contain the found events."""
        return merge_spans(self._spans[reader])

    def mark_searched(self) -> None:
        """Records the search as done, unless a table is faulty; call it once the found events have been removed. Raises
        Contended if another removal has run meanwhile: then the events are searched again."""
        for step in () if self._faulty else self._on_erased:
            step()

    def _find_in(self, reader: SourceReader) -> list[DataFrame]:
        context, ledger = self._context, self._context.ledger
        versions = [entry.key_version for entry in ledger.requests().values()]
        index = index_of(context.spark, context.pipeline, reader, context.table_schemas, context.keys, versions)
        searched = self._history.load(reader.writer, _KIND, index.basis) or HistoryFact(0, {"entry": 0})
        entry, spans = searched.facts["entry"], index.spans
        unsearched = {span for span in spans if span.through > searched.through_batch}
        to_search = unsearched & {*index.spans_with(ledger.keys())} if unsearched else set[Span]()
        found: list[DataFrame] = []
        while True:
            last_entry = ledger.last_number()
            to_search |= {*index.unindexed, *index.spans_with(ledger.keys_after(entry))}
            for span in sorted(to_search):
                found += self._find_within(reader, span)
            entry = last_entry
            # Found events may have added keys to the ledger. Spans that were searched before these keys were known
            # have to be searched for them.
            if ledger.last_number() == last_entry:
                break
            to_search = set()
        through = spans[-1].through if spans else 0
        index.drop_spans(self._spans[reader.writer])
        store = partial(self._history.store, reader.writer, _KIND, index.basis, HistoryFact(through, {"entry": entry}))
        self._on_erased += [index.require_unchanged, store]
        return found

    def _find_within(self, reader: SourceReader, span: Span) -> list[DataFrame]:
        context, schemas = self._context, self._context.table_schemas
        rules = replace(context.rules, columns=reader.columns)
        bronze = reader.bronze(context.spark, rules)
        suppression = Suppression(
            context.spark, context.pipeline.name, rules, schemas, context.table_state, context.quarantine
        )
        slices = Slices(bronze, rules, schemas, context.pipeline.batch.merged_at_once)
        found, after = list[DataFrame](), span.after
        while after < span.through:
            through = slices.end(after, span.through)
            with checkpoint_scope():
                read = slices.read(after, through, slices.group_stats(after, through, span.through), repeated=True)
                # Kept beyond the slice: coordinates of erased events, none of their content.
                events_per_table = [
                    events.localCheckpoint()
                    for events in suppression.events_before_cutoff(read.batches, slices.schemas, self._faulty.failed)
                ]
            found += [
                events.withColumn(READER, F.lit(reader.writer)) for events in events_per_table if not events.isEmpty()
            ]
            after = through
        if found:
            self._spans[reader.writer].append(span)
        return found
