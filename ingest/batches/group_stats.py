"""Computes what a slice of bronze holds before any image is decoded: its groups of events, with their tables, schemas
and counts. One Spark job; its result is metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingest.batches.key_names import Keys, key_names, keys_of, union_of_keys
from ingest.changelog.envelope import CHANGES, RESYNCED, TOMBSTONE
from ingest.changelog.origin import ORIGIN, UNNAMED
from ingest.changelog.position import is_unplaced_read_at
from ingest.evolution.inferred.inference import are_parsed, column_kinds, parsed_images, union_of_kinds
from ingest.jvm.schema_novelty import is_novel
from ingest.merge.key_changes import names_new_key

Coordinates = tuple[str, int, int]
Progress = tuple[str, int, int]
"""How far a server's log had been sent: the server's name and two numbers."""
DecodingKey = tuple[str | None, int | None, bool]
"""The table, the schema's id and whether images are wrapped in a payload: events that agree in these are read alike."""
CHANGE = "change"
TABLE_KINDS = (CHANGE, "t", RESYNCED)
"""The kinds of groups that concern the rows of a table."""
TABLE_OPS = (*CHANGES, "t", RESYNCED)
"""The ops of their events."""


@dataclass(frozen=True)
class Group:
    """Statistics of the events of one table, one schema and one kind. `kind`: `change`, or the op of other events.
    `first`: the coordinates of the first event. `kinds`: the kinds of values per column, as `inference.column_kinds`
    gives them. A group of null tombstones has a `table` where each only repeats the delete right before it."""

    table: str | None
    kind: str | None
    problem: str | None
    schema_id: int | None
    wrapped: bool
    count: int
    first: Coordinates
    kinds: str | None
    first_position: tuple[int, ...]
    last_position: tuple[int, ...]
    partitions: tuple[tuple[str, int], ...]
    key_changes: bool = False
    last_read: tuple[int, ...] | None = None
    """Highest position of a snapshot read that is marked as the last of its snapshot."""
    first_read: tuple[int, ...] | None = None
    """Lowest position of snapshot reads, without those of incremental snapshots."""
    progress: tuple[Progress, Progress] | None = None
    """The lowest and the highest progress of its events."""
    goes_back: bool | None = None
    """True where an event's progress is lower than that of one before it in its partition; None where that was not
    compared."""
    opened: bool = True
    """True where every image without a schema could be opened, so that `kinds` covers all."""
    known: bool = False
    """True where all are changes without a schema, in plain JSON that names either image once."""
    newest: int | None = None
    """Source time of the newest change, in milliseconds since 1970."""
    origins: tuple[str, ...] = ()
    """Servers and databases that the events name."""
    keys: Keys = None
    """The names of the columns in the keys of changes; None where that was not counted, or there are too many."""

    @property
    def decoding_key(self) -> DecodingKey:
        return self.table, self.schema_id, self.wrapped

    @property
    def snapshot(self) -> tuple[int, ...] | None:
        """Returns the position of a snapshot that ends in this group; None if none does, or if its reads have several
        positions: then nothing tells which rows are older than they are."""
        end, first = self.last_read, self.first_read
        return None if end is None or (first is not None and first[:4] != end[:4]) else end

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON values. They hold names of columns, but none of what may be data, such as keys of
        maps inside the values."""
        fields: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return fields

    @staticmethod
    def is_readable(stats: Mapping[str, Any]) -> bool:
        """Returns whether `stats` was written by this version: older ones wrote types of values in place of kinds."""
        return "kinds" in stats

    @classmethod
    def from_json(cls, stats: Mapping[str, Any]) -> Group:
        """Returns the group of which `to_json` gave `stats`."""
        return cls(**{name: _tuples(value) for name, value in stats.items()})

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.partitions}

    @property
    def may_have_unplaced_reads(self) -> bool:
        """Returns whether some snapshot read may have no position of its own."""
        return is_unplaced_read_at(self.first_position)

    @property
    def has_positions(self) -> bool:
        """Returns whether the source gave every event a position."""
        return any(self.first_position[1:3])


def groups_by_slice(events: DataFrame, slice_of: Column, is_small: bool = False) -> dict[int, list[Group]]:
    """Returns the groups of each slice, in the order in which they first appear in the transport. `events`: `EVENT`
    rows; `slice_of`: the slice of each. `is_small`: compare positions event by event."""
    opened, kinds, aggregates = _aggregates(is_small)
    novelty = is_novel(
        events.sparkSession, F.col("value"), (slice_of.cast("bigint"), F.col("source_table"), _is_wrapped())
    )
    keys = F.when(F.col("op").isin(*CHANGES), key_names(events.sparkSession, F.col("key")))
    # Columns of their own: within the aggregates a function would be evaluated once per mention.
    marked = events.withColumns(
        {"_novelty": F.when(_is_schemaless(), novelty), "_repeated": _repeated(is_small), "_key_names": keys}
    )
    marked = marked.withColumn("_is_novel", _is_schemaless() & F.coalesce("_novelty", F.lit(True)))
    grouped = marked.withColumn("_images", opened).groupBy(slice_of.alias("slice"), *kinds)
    rows = grouped.agg(*aggregates).collect()  # a row per slice, table and schema
    found: dict[int, list[Group]] = {}
    for r in (row.asDict() for row in rows):
        first = (r["first"]["topic"], r["first"]["partition"], r["first"]["offset"])
        partitions = tuple(sorted((p["topic"], p["partition"]) for p in r["partitions"]))
        seen = (r["count"], first, r["kinds"], tuple(r["lowest"]), tuple(r["highest"]), partitions)
        group = Group(
            r["source_table"],
            r["kind"],
            r["problem"],
            r["schema_id"],
            r["wrapped"],
            *seen,
            r["key_changes"],
            None if r["snapshot"] is None else tuple(r["snapshot"]),
            None if r["read"] is None else tuple(r["read"]),
            None if r["earliest"] is None else (tuple(r["earliest"]), tuple(r["furthest"])),
            r["goes_back"],
            r["opened"],
            r["known"],
            r["newest"],
            tuple(sorted(r["origins"])),
            keys_of(r["keys"]),
        )
        found.setdefault(r["slice"], []).append(group)
    return {n: in_transport_order(groups) for n, groups in found.items()}


@cache
def _aggregates(is_small: bool) -> tuple[Column, tuple[Column, ...], tuple[Column, ...]]:
    """Returns an event's images, the columns to group by and the aggregates. Cached: to build them takes as long as to
    count a small batch."""
    kind = F.when(F.col("op").isin(*CHANGES), CHANGE).otherwise(F.col("op")).alias("kind")
    return (
        parsed_images(F.when(F.col("_is_novel"), F.col("value").cast("string"))),
        (_table(), kind, F.col("problem"), F.col("schema_id"), _is_wrapped().alias("wrapped")),
        (
            F.count(F.lit(1)).alias("count"),
            F.min(F.struct("offset", "topic", "partition")).alias("first"),
            column_kinds(F.col("_images"), F.col("wrapped")).alias("kinds"),
            F.bool_and(~F.col("_is_novel") | are_parsed(F.col("_images"))).alias("opened"),
            F.bool_and(F.col("_novelty").isNotNull()).alias("known"),
            F.min("position").alias("lowest"),
            F.max("position").alias("highest"),
            F.collect_set(F.struct("topic", "partition")).alias("partitions"),
            F.bool_or(names_new_key()).alias("key_changes"),
            F.max(F.when(F.col("ends_snapshot"), F.col("position"))).alias("snapshot"),
            F.min(F.when(_reads_all(), F.col("position"))).alias("read"),
            F.min("progress").alias("earliest"),
            F.max("progress").alias("furthest"),
            (_goes_back() if is_small else F.lit(None).cast("boolean")).alias("goes_back"),
            F.max(F.unix_millis("source_ts")).alias("newest"),
            F.collect_set(F.when(F.col(ORIGIN) != UNNAMED, F.col(ORIGIN))).alias("origins"),
            F.collect_set("_key_names").alias("keys"),
        ),
    )


@cache
def _is_schemaless() -> Column:
    """Returns whether an event is a change without a schema."""
    return F.col("schema_id").isNull() & F.coalesce(F.col("op").isin(*CHANGES), F.lit(False))


@cache
def _reads_all() -> Column:
    """Returns whether an event is a read of a snapshot of all rows at one position of the log."""
    return (F.col("op") == "r") & F.col("ends_snapshot").isNotNull()


@cache
def _table() -> Column:
    return F.coalesce("_repeated", "source_table").alias("source_table")


@cache
def _repeated(is_small: bool) -> Column:
    """Returns the table of a null tombstone right behind its delete, where a source puts it: it brings nothing new.
    Null in large slices."""
    if not is_small:
        return F.lit(None).cast("string")
    before = F.lag(F.struct("op", "key", "offset", F.col("source_table").alias("table")))
    before = before.over(Window.partitionBy("topic", "partition").orderBy("offset"))
    next_to_it = (before["offset"] + 1 == F.col("offset")) & (before["key"] == F.col("key"))
    return F.when((F.col("op") == TOMBSTONE) & (before["op"] == "d") & next_to_it, before["table"])


@cache
def _is_wrapped() -> Column:
    return F.coalesce("wrapped", F.lit(False))


def merged_groups(groups: Iterable[Group]) -> list[Group]:
    """Returns the groups of a slice, given those of its parts in order."""
    found: dict[tuple[Any, ...], list[Group]] = {}
    for group in groups:
        kind = (group.table, group.kind, group.problem, group.schema_id, group.wrapped)
        found.setdefault(kind, []).append(group)
    return in_transport_order(reduce(_merged_group, alike) for alike in found.values())


def _merged_group(one: Group, other: Group) -> Group:
    progress = [p.progress for p in (one, other) if p.progress is not None]
    return replace(
        one,
        count=one.count + other.count,
        first=min(one.first, other.first, key=_place),
        kinds=union_of_kinds(one.kinds, other.kinds),
        first_position=min(one.first_position, other.first_position),
        last_position=max(one.last_position, other.last_position),
        partitions=tuple(sorted({*one.partitions, *other.partitions})),
        key_changes=one.key_changes or other.key_changes,
        last_read=max(filter(None, (one.last_read, other.last_read)), default=None),
        first_read=min(filter(None, (one.first_read, other.first_read)), default=None),
        progress=(min(p[0] for p in progress), max(p[1] for p in progress)) if progress else None,
        goes_back=_goes_back_in(one, other),
        opened=one.opened and other.opened,
        known=one.known and other.known,
        origins=tuple(sorted({*one.origins, *other.origins})),
        keys=union_of_keys(one.keys, other.keys),
        newest=max((n for n in (one.newest, other.newest) if n is not None), default=None),
    )


def _goes_back_in(one: Group, other: Group) -> bool | None:
    """Returns `goes_back` of a group and the part after it. False if neither goes back and the first ends at or before
    the lowest progress of the second; else None, because nothing was compared across them."""
    is_ascending = one.progress is None or other.progress is None or one.progress[1] <= other.progress[0]
    return False if is_ascending and one.goes_back is False and other.goes_back is False else None


def in_transport_order(groups: Iterable[Group]) -> list[Group]:
    return sorted(groups, key=lambda one: _place(one.first))


def _place(coordinates: Coordinates) -> tuple[int, str, int]:
    topic, partition, offset = coordinates
    return offset, topic, partition


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _goes_back() -> Column:
    """Returns the aggregate of whether progress ever decreases within a partition, in the order of offsets."""
    sent = F.when(F.col("progress").isNotNull(), F.struct("topic", "partition", "offset", "progress"))
    events = F.sort_array(F.collect_list(sent))

    def goes_back_at(earlier: Column, later: Column) -> Column:
        same_partition = (earlier["topic"] == later["topic"]) & (earlier["partition"] == later["partition"])
        return same_partition & (later["progress"] < earlier["progress"])

    # The last event is compared with null, which is not counted.
    steps = F.zip_with(events, F.slice(events, 2, F.greatest(F.size(events), F.lit(1))), goes_back_at)
    return F.coalesce(F.exists(steps, lambda step: step), F.lit(False))


def stands_at(coordinates: Sequence[Coordinates]) -> Column:
    """Returns whether an event stands at one of these coordinates."""
    found = F.lit(False)
    for topic, partition, offset in coordinates:
        is_at = (F.col("topic") == topic) & (F.col("partition") == partition) & (F.col("offset") == offset)
        found = found | is_at
    return found


def belongs_to(group: Group) -> Column:
    """Returns whether an event is a change of the group."""
    return has_decoding_key(group.decoding_key)


@lru_cache(maxsize=512)
def has_decoding_key(kind: DecodingKey) -> Column:
    """Returns whether an event is a change with this decoding key."""
    table, schema_id, wrapped = kind
    inside = F.coalesce(F.col("wrapped"), F.lit(False)) == F.lit(wrapped)
    schema = F.col("schema_id").eqNullSafe(F.lit(schema_id).cast("bigint"))
    return F.col("op").isin(*CHANGES) & (F.col("source_table") == table) & schema & inside
