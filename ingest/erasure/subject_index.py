"""Which spans of bronze may hold events that name a key: what an erasure has to open of a history.

A span is some capture batches in a row. When it was merged, the keys that its events name are hashed by the keyed hash
of the ledger, once, and of each hash seven digits are kept: who looks for a subject opens the spans in which its digits
stand, and few others, so an erasure costs by what it touches. Digits are shared by many keys, and nobody finds a key
behind them without the secret. Of spans out of which events were erased they are taken away, and found anew.

Batches keep their numbers where files are written together or anew, so spans stay what they are. An index that was made
under other settings is made again.
"""

from __future__ import annotations

import hashlib
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
from ingest.delta.compaction import BackgroundCompaction
from ingest.delta.conflict_retry import concurrent_commit
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.history_facts import HistoryFact, HistoryFacts
from ingest.loop.event_references import batch_key_references
from ingest.loop.slices import Slices
from ingest.loop.table_schemas import TableSchemas
from ingest.names import Lakehouse
from ingest.pipeline.composition import rules_of
from ingest.spark.checkpoints import checkpoint, checkpoint_scope
from ingest.suppression.key_file import LedgerKeys
from ingest.suppression.key_references import KEY_HASH, REFERENCES, with_key_hashes

_KIND = "subject index"
_EVENTS = 100_000
"""About so many are in a span, whole batches of them."""
_HEX_DIGITS = 7
_SOUGHT_BY_PAGE = 200
"""Of so many keys the pages are sought that may hold their digits; of more the whole index is read."""
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
    """The batches `after` < batch ≤ `upto`."""

    after: int
    upto: int


class SubjectIndex:
    """Of one reader's bronze."""

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
        """`rules`: with the types that the events don't tell. `versions`: of secrets by which keys are looked for
        beside the newest one."""
        self._spark = spark
        self._table = delta_table.Table(spark, lakehouse.subject_index)
        self._history = HistoryFacts(spark, lakehouse.known_history)
        self._accounts = Accounts(spark, lakehouse.accounts, reader)
        self._reader = reader
        self._bronze = bronze
        self._rules = rules
        self._table_schemas = table_schemas
        self._keys = keys
        self._versions = sorted({keys.newest, *versions})

    @cached_property
    def basis(self) -> str:
        """What the index depends on beside the events: other settings make another one."""
        subjects = self._rules.subjects
        known = [
            (e.table_schema.table, e.table_schema.key)
            for e in self._table_schemas.entries
            if subjects.leads(e.table_schema.table)
        ]
        checks = [(version, self._keys.check(version)) for version in self._versions]
        told = (subjects, self._rules.primary_keys, self._rules.fold_case, self._rules.placeholder, known, checks)
        text = repr((told, self._rules.view, self._rules.columns, self._bronze.identity))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def last(self) -> int:
        """The last batch of bronze."""
        return self._bronze.last_batch()

    @cached_property
    def spans(self) -> list[Span]:
        """The spans that are indexed, in their order: all that is merged. What isn't yet is indexed on the first
        call."""
        known = self._history.load(self._reader, _KIND, self.basis)
        there = [Span(*one) for one in known.facts["spans"]] if known is not None else []
        merged = min(self.last, self._accounts.merged_through())
        found = list(there)
        for gap in _gaps(there, merged):
            found += self._indexed(gap)
        found.sort()
        if found != there:
            self._keep(found)
            self._fold()
        return found

    @property
    def rest(self) -> list[Span]:
        """What is captured and not merged yet, which is not indexed either."""
        end = self.spans[-1].upto if self.spans else 0
        return [Span(end, self.last)] if end < self.last else []

    def naming(self, keys: DataFrame) -> list[Span]:
        """Returns the indexed spans that may hold events that name one of `keys` (`KEY_HASH`, `key_version`), in their
        order."""
        if not self.spans:
            return []
        wanted = checkpoint(keys.select("key_version", _digits(F.col(KEY_HASH)).alias(_DIGITS)).distinct())
        mine = self._pages_of(wanted).join(F.broadcast(wanted), ["key_version", _DIGITS], "left_semi")
        found = mine.select("after_batch", "upto_batch").distinct().collect()  # a row per span
        return sorted({Span(*row) for row in found} & {*self.spans})

    def require_unchanged(self) -> None:
        """Raises Contended where another run has changed the index since it was read here: what was looked for may have
        been missed."""
        known = self._history.load(self._reader, _KIND, self.basis)
        if [Span(*one) for one in (known.facts["spans"] if known is not None else ())] != self.spans:
            raise concurrent_commit(self._table.path)

    def forget(self, spans: Sequence[Span]) -> None:
        """Takes away what is known of these spans: events were erased out of them. The next search indexes them
        anew."""
        gone = {*spans} & {*self.spans}
        if not gone:
            return
        # Before their digits go: who dies in between finds them again.
        self._keep([span for span in self.spans if span not in gone])
        firsts = [span.after for span in gone]
        self._table.delete((F.col("reader") == self._reader) & F.col("after_batch").isin(firsts))

    def _keep(self, spans: list[Span]) -> None:
        upto = spans[-1].upto if spans else 0
        self._history.store(self._reader, _KIND, self.basis, HistoryFact(upto, {"spans": spans}))
        self.__dict__["spans"] = spans

    def _fold(self) -> None:
        """Writes small files together, where it is time to: each run that finds something new adds some."""
        if self._table.exists():
            files = compaction.files_due(self._table.files().values(), files_per_size=compaction.FILES_PER_SIZE_UNREAD)
            BackgroundCompaction(self._table).compact(files, lambda due: _sorted(self._table.rows_in(due)))

    def _mine(self) -> DataFrame:
        rows = self._table.rows(_SCHEMA)
        return rows.where((F.col("reader") == self._reader) & (F.col("basis") == self.basis))

    def _pages_of(self, wanted: DataFrame) -> DataFrame:
        """Returns the rows of this index that may have the digits of `wanted`: of few keys those in the Parquet pages
        that a filter by their statistics leaves, else all."""
        some = wanted.select(_DIGITS).limit(_SOUGHT_BY_PAGE + 1).collect()  # digits of few keys
        if not some or len(some) > _SOUGHT_BY_PAGE:
            return self._mine()
        # Parquet tests an IN of more than ten values by its ends alone: equalities are tested one by one.
        return self._mine().where(_any([F.col(_DIGITS) == row[_DIGITS] for row in some]))

    def _indexed(self, gap: Span) -> Iterator[Span]:
        slices = Slices(self._bronze, self._rules, self._table_schemas, _EVENTS)
        after = gap.after
        while after < gap.upto:
            upto = slices.end(after, gap.upto)
            with checkpoint_scope():
                self._index(slices, Span(after, upto), gap.upto)
            yield Span(after, upto)
            after = upto

    def _index(self, slices: Slices, span: Span, last: int) -> None:
        groups = slices.profile(span.after, span.upto, last)
        leads = self._rules.subjects.leads
        if not any(group.table is None or leads(group.table) for group in groups):
            return
        read = slices.read(span.after, span.upto, groups, repeated=True)
        found = []
        for batch in read.batches:
            if not leads(batch.table):
                continue
            mentions = batch_key_references(batch, slices.schemas, self._table_schemas, self._rules)
            if mentions is not None:
                rows = checkpoint(mentions)
                found += [self._digits_in(rows, version) for version in self._versions]
        if found:
            told = {"reader": F.lit(self._reader), "basis": F.lit(self.basis)}
            told |= {"after_batch": F.lit(span.after).cast("long"), "upto_batch": F.lit(span.upto).cast("long")}
            rows = reduce(DataFrame.unionByName, found).distinct().withColumns(told).select(*_SCHEMA.names)
            self._table.commit(_sorted(rows), properties=_STATISTICS)

    def _digits_in(self, mentions: DataFrame, version: int) -> DataFrame:
        hashes = with_key_hashes(mentions, self._keys, version).select(F.explode(REFERENCES).alias(KEY_HASH))
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
    """Returns the index of a pipeline's reader: the same for whoever asks. `versions`: of the secrets by which the
    ledger knows keys."""
    rules = replace(rules_of(pipeline), columns=reader.columns)
    bronze = reader.bronze(spark, rules)
    known = {version for version in versions if version is not None}
    return SubjectIndex(spark, pipeline.layout, reader.writer, bronze, rules, table_schemas, keys, known)


def joined(spans: Iterable[Span]) -> list[Span]:
    """Returns the same batches in as few spans as there can be."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.after <= found[-1].upto:
            found[-1] = Span(found[-1].after, max(span.upto, found[-1].upto))
        else:
            found.append(span)
    return found


def _gaps(spans: Sequence[Span], last: int) -> Iterator[Span]:
    """What these spans leave out up to the batch `last`."""
    end = 0
    for span in spans:
        if span.after > end:
            yield Span(end, span.after)
        end = span.upto
    if end < last:
        yield Span(end, last)


def _sorted(rows: DataFrame) -> DataFrame:
    return rows.select(*_SCHEMA.names).coalesce(1).sortWithinPartitions("reader", "key_version", _DIGITS)


def _any(conditions: Sequence[Column]) -> Column:
    """Returns the disjunction, as a tree that isn't deep."""
    half = len(conditions) // 2
    return _any(conditions[:half]) | _any(conditions[half:]) if half else conditions[0]


def _digits(key_hash: Column) -> Column:
    return F.conv(F.substring(key_hash, 1, _HEX_DIGITS), 16, 10).cast("int")
