"""The owner of a table is the server and database whose changes it holds. Events of another one under the same table
name are refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.batches.group_stats import TABLE_KINDS, TABLE_OPS, groups_by_slice
from ingest.batches.table_batch import TableBatch
from ingest.changelog.envelope import BATCH
from ingest.changelog.origin import ORIGIN, UNNAMED, former_origin, origin_in_words, origins_differ

_log = logging.getLogger(__name__)
OTHER_DATABASE = "other-database"


@dataclass(frozen=True)
class OwnedBatch:
    """A batch without foreign events. `owner`: the table's server and database; empty where no event has named one.
    `foreign`: the events of others, each with its `reason`; `refused`: their number."""

    batch: TableBatch
    owner: str
    foreign: DataFrame | None = None
    refused: int = 0


def owned_batch(
    batch: TableBatch, owner: str | None, names: Mapping[str, str], topics: Sequence[str] = ()
) -> OwnedBatch:
    """Splits a batch by owner. `owner`: empty or None where none is recorded; then it is the first one in the
    transport. `names`: renamed origin → its former name. `topics`: topics whose events the table holds already."""
    seen = {o for group in batch.groups for o in group.origins} | set(batch.tombstone_origins)
    before = {origin: former_origin(origin, names) for origin in sorted(seen)}
    if not owner and seen and topics:
        # The table was created by a version that recorded no owners.
        owner = former_origin(_first(batch, batch.history(), topics), names)
    if not owner:
        several = len(set(before.values())) > 1
        owner = former_origin(_first(batch, batch.events), names) if several else next(iter(before.values()), UNNAMED)
    foreign = [origin for origin, was in before.items() if origins_differ(owner, was)]
    if not foreign:
        return OwnedBatch(batch, owner)
    return _split(batch, owner, foreign)


def _first(batch: TableBatch, events: DataFrame, topics: Sequence[str] = ()) -> str:
    """Returns the first origin in the transport that any of these events of the table names. `topics`: the topics that
    they lie in, if known."""
    named = events.where(_is_of_table(batch) & (F.col(ORIGIN) != UNNAMED))
    if len(topics) == 1:
        named = named.where(F.col("topic") == topics[0]).limit(1)
    row = named.agg(F.min_by(ORIGIN, F.struct(BATCH, "offset", "topic", "partition")).alias("first")).first()
    return UNNAMED if row is None or row["first"] is None else str(row["first"])


def _is_of_table(batch: TableBatch) -> Column:
    return (F.col("source_table") == batch.table) & F.col("op").isin(*TABLE_OPS)


def _split(batch: TableBatch, owner: str, foreign: Sequence[str]) -> OwnedBatch:
    is_foreign = _is_of_table(batch) & F.coalesce(F.col(ORIGIN).isin(*foreign), F.lit(False))
    own_events = batch.events.where(~F.coalesce(is_foreign, F.lit(False)))
    own_groups = [
        g for g in groups_by_slice(own_events.where(_is_of_table(batch)), F.lit(0)).get(0, []) if g.kind in TABLE_KINDS
    ]
    foreign_events = [batch.events.where(is_foreign)]
    tombstones, foreign_tombstones = batch.tombstones, 0
    if tombstones is not None:
        own_topics = own_events.where(_is_of_table(batch)).select("topic")
        topics = foreign_events[0].select("topic").distinct().join(own_topics, "topic", "left_anti")
        is_foreign_tombstone = F.col(ORIGIN).isin(*foreign) | ((F.col(ORIGIN) == UNNAMED) & F.col("_is_foreign"))
        marked = tombstones.join(F.broadcast(topics.withColumn("_is_foreign", F.lit(True))), "topic", "left")
        marked = marked.withColumn("_is_foreign", F.coalesce(is_foreign_tombstone, F.lit(False))).localCheckpoint()
        foreign_rows = marked.where("_is_foreign").drop("_is_foreign").select(*tombstones.columns)
        tombstones, foreign_tombstones = (
            marked.where(~F.col("_is_foreign")).select(*tombstones.columns),
            foreign_rows.count(),
        )
        foreign_events.append(foreign_rows)
    refused = sum(g.count for g in batch.groups) - sum(g.count for g in own_groups) + foreign_tombstones
    owned = replace(
        batch,
        groups=own_groups,
        events=own_events,
        tombstones=tombstones,
        tombstone_count=batch.tombstone_count - foreign_tombstones,
        history=partial(_without, batch.history, is_foreign),
    )
    _log.warning("%s: %d events of a batch are refused", _reason(batch.table, owner, foreign[0]), refused)
    columns = batch.events.columns
    reason = _reasons(batch.table, owner, foreign)
    refused_events = [frame.select(*columns).withColumn("reason", reason) for frame in foreign_events]
    return OwnedBatch(owned, owner, reduce(DataFrame.unionByName, refused_events), refused)


def _without(history: Callable[[], DataFrame], is_foreign: Column) -> DataFrame:
    return history().where(~F.coalesce(is_foreign, F.lit(False)))


def _reasons(table: str, owner: str, foreign: Sequence[str]) -> Column:
    pairs = [F.lit(text) for origin in foreign for text in (origin, _reason(table, owner, origin))]
    # A null tombstone in a foreign topic may name no origin.
    return F.coalesce(F.element_at(F.create_map(*pairs), F.col(ORIGIN)), pairs[1])


def _reason(table: str, owner: str, other: str) -> str:
    return (
        f"table {table} is that of {origin_in_words(owner)}; the event is of {origin_in_words(other)} → name tables "
        "by their origin (source: {table_names: server.schema.table}) and fold them anew (ingest backfill PIPELINE "
        f'--rebuild); or, if it is the same database under another name, source: {{renamed: {{"{other}": "{owner}"}}}}'
    )
