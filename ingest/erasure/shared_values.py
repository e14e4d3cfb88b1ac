"""Which of the values that were collected of an erased subject belong to others as well: asked of the data after the
removal, for all values at once.

Others are subjects of which no key is in the ledger, and later lives. What is left of an erased life is none of them:
it must not make its own values pass for somebody else's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import EVENT_ID
from ingest.erasure.context import ErasureContext
from ingest.erasure.table_events import COLUMN, VALUE, TableEvents, rules_of_readers
from ingest.proof.needles.terms import Needle
from ingest.spark.checkpoints import checkpoint, checkpoint_scope
from ingest.spark.local_rows import local_rows
from ingest.suppression.before_cutoff import BEFORE_CUTOFF, UNDECIDED, with_cutoff_flags
from ingest.suppression.key_references import KEY_HASH, REFERENCES, rows_referencing, with_key_hashes
from ingest.suppression.ledger import cutoffs

_NUMBER, _TEXT = "_ingest_number", "_ingest_text"
_TEXTS = T.StructType([T.StructField(_NUMBER, T.IntegerType()), T.StructField(_TEXT, T.StringType())])
_WHOLE = T.StructType([*_TEXTS.fields, T.StructField(COLUMN, T.StringType())])


@dataclass(frozen=True)
class SharedNeedles:
    """Numbers of needles. `whole`: of those that events of others have in the same column. `within`: of those that they
    hold anywhere."""

    whole: frozenset[int] = field(default_factory=frozenset)
    within: frozenset[int] = field(default_factory=frozenset)


def shared_needles(context: ErasureContext, needles: Sequence[Needle]) -> SharedNeedles:
    """Returns which of the needles events of others hold. No plan shows a value."""
    if not needles or not context.readers:
        return SharedNeedles()
    with checkpoint_scope():
        rules = rules_of_readers(context)
        events = reduce(DataFrame.unionByName, [r.bronze(context.spark, rules).rows() for r in context.readers])
        changes = events.where(F.col("source_table").isin(*rules.subjects.tables) & F.col("value").isNotNull())
        rows = [{_NUMBER: number, _TEXT: text} for number, needle in enumerate(needles) for text in needle.written]
        texts = F.broadcast(local_rows(context.spark, rows, _TEXTS).withColumn(_TEXT, F.lower(_TEXT)))
        holds = F.lower(F.col("value").cast("string")).contains(F.col(_TEXT))
        event = F.struct("topic", "partition", "offset").alias(EVENT_ID)
        hits = checkpoint(changes.join(texts, holds).select(event, _NUMBER).distinct())
        ids = checkpoint(hits.select(EVENT_ID).distinct())
        if ids.isEmpty():
            return SharedNeedles()
        coordinates = ids.select(f"{EVENT_ID}.*")
        found = TableEvents(context, changes.join(coordinates, coordinates.columns, "left_semi"))
        whole, within = set[int](), set[int]()
        for table in found.tables:
            others = _of_others(context, found, table)
            if others is not None:
                within |= _numbers(hits.join(others, EVENT_ID, "left_semi"))
                whole |= _equal(context, found, table, needles, others)
        return SharedNeedles(frozenset(whole), frozenset(within))


def _of_others(context: ErasureContext, events: TableEvents, table: str) -> DataFrame | None:
    """Returns `EVENT_ID` of the events of a table that belong to others; None if the table has none. Those that lead to
    nobody are not others'."""
    references = events.references(table)
    if references is None:
        return None
    rows = checkpoint(references.where(F.size(REFERENCES) > 0))
    requests = context.ledger.requests()
    before = []
    for version in sorted({entry.key_version for entry in requests.values() if entry.key_version is not None}):
        known = context.ledger.keys().where(F.col("key_version") == version).select("request", KEY_HASH).distinct()
        erased = rows_referencing(with_key_hashes(rows, context.keys, version), known)
        flagged = with_cutoff_flags(erased, cutoffs(requests.values()), table)
        before.append(flagged.where(F.col(BEFORE_CUTOFF) | F.col(UNDECIDED)).select(EVENT_ID))
    others = rows.select(EVENT_ID).distinct()
    return checkpoint(others.join(reduce(DataFrame.unionByName, before), EVENT_ID, "left_anti") if before else others)


def _equal(
    context: ErasureContext, events: TableEvents, table: str, needles: Sequence[Needle], others: DataFrame
) -> set[int]:
    """Returns the numbers of the needles that these events of `others` have as a whole value of the same column."""
    of_table = [(number, n) for number, n in enumerate(needles) if n.table == table and n.json is not None]
    coordinates = others.select(f"{EVENT_ID}.*")
    values = events.values(table, {needle.column for _, needle in of_table}, coordinates) if of_table else None
    if values is None:
        return set()
    rows = [{_NUMBER: number, _TEXT: needle.json, COLUMN: needle.column} for number, needle in of_table]
    wanted = F.broadcast(local_rows(context.spark, rows, _WHOLE).withColumn(_TEXT, F.lower(_TEXT)))
    same = (values[COLUMN] == wanted[COLUMN]) & (F.lower(values[VALUE]) == wanted[_TEXT])
    return _numbers(values.join(wanted, same))


def _numbers(rows: DataFrame) -> set[int]:
    return {row[0] for row in rows.select(_NUMBER).distinct().collect()}  # at most one a needle
