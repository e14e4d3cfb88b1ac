"""The subject index: tells which spans of bronze may contain events that reference a key, so that an erasure doesn't
read the whole history.

A span is a run of consecutive capture batches. Once it is merged, the keys that its events reference are hashed by the
ledger's keyed hash, and seven hexadecimal digits of each hash are stored. A search opens the spans that contain the
digits of its keys, and a few others by chance. Digits are shared by many keys, and no key can be derived from them
without the secret. Spans from which events were erased are dropped and indexed again.

Compaction and rewriting of files keep batch numbers, so spans stay valid. An index made under other settings is
rebuilt."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.backfill.source_readers import SourceReader
from ingest.batches.rules import Rules
from ingest.config import Pipeline
from ingest.delta import compaction, delta_table
from ingest.delta.conflict_retry import concurrent_commit
from ingest.lakehouse import page_index
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.history_facts import HistoryFact, HistoryFacts
from ingest.loop.slices import Slices
from ingest.loop.suppression.event_references import batch_key_references
from ingest.loop.table_faults import FAULTS, reason_of
from ingest.loop.table_schemas import TableSchemas
from ingest.merge.table_schema import TableSchema
from ingest.names import Lakehouse
from ingest.pipeline.composition import rules_of
from ingest.spark.checkpoints import checkpoint, checkpoint_scope
from ingest.suppression.key_file import LedgerKeys
from ingest.suppression.key_references import KEY_HASH, REFERENCES, with_key_hashes
from ingest.suppression.subjects import Subjects

_log = logging.getLogger(__name__)
_KIND = "subject index"
_HEX_DIGITS = 7
_DIGITS = "digits"
_SCHEMA = T.StructType(
    [
        T.StructField("reader", T.StringType()),
        T.StructField("basis", T.StringType()),
        T.StructField("after_batch", T.LongType()),
        T.StructField("upto_batch", T.LongType()),
        T.StructField("key_version", T.IntegerType()),
        T.StructField(_DIGITS, T.IntegerType()),
    ]
)
_STATISTICS = {"delta.dataSkippingStatsColumns": "reader,after_batch"}


class Span(NamedTuple):
    """The batches `after` < batch ≤ `through`."""

    after: int
    through: int


class _TableUnreadable(Exception):
    """The events of one table can't be indexed. The message says which and why."""


class SubjectIndex:
    """The index of one reader's bronze."""

    def __init__(
        self,
        spark: SparkSession,
        lakehouse: Lakehouse,
        reader: str,
        bronze: Bronze,
        rules: Rules,
        table_schemas: TableSchemas,
        keys: LedgerKeys,
        versions: Iterable[int] = (),
    ) -> None:
        """`rules`: including types that the events don't tell. `versions`: of the secrets to hash by, besides the
        newest."""
        self._spark = spark
        self._table = delta_table.Table(spark, lakehouse.subject_index, rules.tuning)
        self._history = HistoryFacts(spark, lakehouse.history_facts)
        self._accounts = Accounts(spark, lakehouse.accounts, reader)
        self._reader = reader
        self._bronze = bronze
        self._rules = rules
        self._table_schemas = table_schemas
        self._keys = keys
        self._versions = sorted({keys.newest, *versions})

    @cached_property
    def basis(self) -> str:
        """Returns a hash of the settings that the index depends on. Other settings make another index."""
        subjects = self._rules.subjects
        tables = [
            (e.table_schema.table, e.table_schema.key, _types(e.table_schema, subjects))
            for e in self._table_schemas.entries
            if subjects.has_subject(e.table_schema.table)
        ]
        checks = [(version, self._keys.check(version)) for version in self._versions]
        settings = (subjects, self._rules.primary_keys, self._rules.fold_case, self._rules.placeholder, tables, checks)
        text = repr((settings, self._rules.view, self._rules.columns, self._bronze.identity))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def last(self) -> int:
        """Returns the last batch of bronze."""
        return self._bronze.last_batch()

    @cached_property
    def spans(self) -> list[Span]:
        """Returns the indexed spans in order. The first call indexes all merged batches that are not indexed yet, up to
        one with a table that can't be read."""
        fact = self._history.load(self._reader, _KIND, self.basis)
        indexed = [Span(*one) for one in fact.facts["spans"]] if fact is not None else []
        merged = min(self.last, self._accounts.merged_through())
        spans = list(indexed)
        for gap in _gaps(indexed, merged):
            spans += self._index_gap(gap)
        spans.sort()
        if spans != indexed:
            self._store_spans(spans)
            self._compact()
        return spans

    @property
    def unindexed(self) -> list[Span]:
        """Returns the batches that are not indexed: those that are captured and not merged yet, and those with a table
        that can't be read."""
        return [*_gaps(self.spans, self.last)]

    def spans_with(self, keys: DataFrame) -> list[Span]:
        """Returns the indexed spans, in order, that may contain events that reference one of `keys` (`KEY_HASH`,
        `key_version`)."""
        if not self.spans or not self._table.exists():
            return []
        wanted = checkpoint(keys.select("key_version", _digits(F.col(KEY_HASH)).alias(_DIGITS)).distinct())
        rows, _ = page_index.matching(self._table, [_DIGITS, "key_version"], wanted)
        mine = rows.where((F.col("reader") == self._reader) & (F.col("basis") == self.basis))
        found = mine.select("after_batch", "upto_batch").distinct().collect()  # a row per span
        return sorted({Span(*row) for row in found} & {*self.spans})

    def require_unchanged(self) -> None:
        """Raises Contended if another run has changed the index since it was read here: the search may have missed
        events."""
        fact = self._history.load(self._reader, _KIND, self.basis)
        if [Span(*one) for one in (fact.facts["spans"] if fact is not None else ())] != self.spans:
            raise concurrent_commit(self._table.path)

    def drop_spans(self, spans: Sequence[Span]) -> None:
        """Drops these spans after events were erased from them. The next search indexes them again."""
        dropped = {*spans} & {*self.spans}
        if not dropped:
            return
        # Before the digits are deleted: a run that is killed in between indexes the spans again.
        self._store_spans([span for span in self.spans if span not in dropped])
        first_batches = [span.after for span in dropped]
        self._table.delete((F.col("reader") == self._reader) & F.col("after_batch").isin(first_batches))

    def _store_spans(self, spans: list[Span]) -> None:
        through = spans[-1].through if spans else 0
        self._history.store(self._reader, _KIND, self.basis, HistoryFact(through, {"spans": spans}))
        self.__dict__["spans"] = spans

    def _compact(self) -> None:
        """Compacts small files if due: each run that finds something new adds some."""
        if self._table.exists():
            files_per_size = self._rules.tuning.append_only_files_per_size
            files = compaction.files_due(self._table.files().values(), files_per_size=files_per_size)
            compaction.compact(self._table, files, lambda due: _sorted(self._table.rows_in(due)))

    def _index_gap(self, gap: Span) -> Iterator[Span]:
        span_events = self._rules.tuning.subject_index_span_events
        slices = Slices(self._bronze, self._rules, self._table_schemas, span_events)
        after = gap.after
        while after < gap.through:
            through = slices.end(after, gap.through)
            try:
                with checkpoint_scope():
                    self._index(slices, Span(after, through), gap.through)
            except _TableUnreadable as unreadable:
                _log.warning("batches from %d on are searched whole: %s", after, unreadable)
                return
            yield Span(after, through)
            after = through

    def _index(self, slices: Slices, span: Span, last: int) -> None:
        groups = slices.group_stats(span.after, span.through, last)
        has_subject = self._rules.subjects.has_subject
        if not any(group.table is None or has_subject(group.table) for group in groups):
            return
        read = slices.read(span.after, span.through, groups, repeated=True)
        digit_frames = []
        for batch in read.batches:
            if not has_subject(batch.table):
                continue
            try:
                references = batch_key_references(batch, slices.schemas, self._table_schemas, self._rules)
                rows = None if references is None else checkpoint(references)
            except FAULTS as error:
                if (reason := reason_of(batch.table, error, "searched")) is None:
                    raise
                raise _TableUnreadable(reason.text) from error
            if rows is not None:
                digit_frames += [self._digits_of_references(rows, version) for version in self._versions]
        if digit_frames:
            columns = {"reader": F.lit(self._reader), "basis": F.lit(self.basis)}
            columns |= {"after_batch": F.lit(span.after).cast("long"), "upto_batch": F.lit(span.through).cast("long")}
            rows = reduce(DataFrame.unionByName, digit_frames).distinct().withColumns(columns).select(*_SCHEMA.names)
            self._table.commit(_sorted(rows), properties=_STATISTICS)

    def _digits_of_references(self, references: DataFrame, version: int) -> DataFrame:
        hashes = with_key_hashes(references, self._keys, version).select(F.explode(REFERENCES).alias(KEY_HASH))
        number = F.lit(version).cast("int").alias("key_version")
        return hashes.where(F.col(KEY_HASH).isNotNull()).select(number, _digits(F.col(KEY_HASH)).alias(_DIGITS))


def index_of(
    spark: SparkSession,
    pipeline: Pipeline,
    reader: SourceReader,
    table_schemas: TableSchemas,
    keys: LedgerKeys,
    versions: Iterable[int | None],
) -> SubjectIndex:
    """Returns the index of a pipeline's reader, the same for every caller. `versions`: of the secrets by which the
    ledger knows keys."""
    rules = replace(rules_of(pipeline), columns=reader.columns)
    bronze = reader.bronze(spark, rules)
    key_versions = {version for version in versions if version is not None}
    return SubjectIndex(spark, pipeline.layout, reader.writer, bronze, rules, table_schemas, keys, key_versions)


def _types(table_schema: TableSchema, subjects: Subjects) -> tuple[str, ...]:
    """Returns the types of the columns whose values are hashed: those of the key, and of the links to subjects."""
    hashed = {*table_schema.key, *subjects.links.get(table_schema.table, {})}
    return tuple(f"{c.name} {c.type}" for c in table_schema.columns if c.name in hashed)


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Returns the same batches in the fewest spans."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.after <= merged[-1].through:
            merged[-1] = Span(merged[-1].after, max(span.through, merged[-1].through))
        else:
            merged.append(span)
    return merged


def _gaps(spans: Sequence[Span], last: int) -> Iterator[Span]:
    """Yields the batches up to `last` that these spans leave out."""
    end = 0
    for span in spans:
        if span.after > end:
            yield Span(end, span.after)
        end = span.through
    if end < last:
        yield Span(end, last)


def _sorted(rows: DataFrame) -> DataFrame:
    return rows.select(*_SCHEMA.names).coalesce(1).sortWithinPartitions("reader", "key_version", _DIGITS)


def _digits(key_hash: Column) -> Column:
    return F.conv(F.substring(key_hash, 1, _HEX_DIGITS), 16, 10).cast("int")
