"""What a slice of bronze holds, before any of it is decoded: tables, schemas, counts. One Spark job, metadata only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingest.batches.schema_novelty import news
from ingest.changelog.envelope import CHANGES, TOMBSTONE
from ingest.changelog.origin import ORIGIN, UNNAMED
from ingest.changelog.position import is_unplaced_read_at
from ingest.evolution.inference import are_whole, column_kinds, images, union_of_kinds
from ingest.merge.key_changes import names_new_key

Coordinates = tuple[str, int, int]
Progress = tuple[str, int, int]
"""How far the log of a server had been sent: its name, and two numbers."""
Kind = tuple[str | None, int | None, bool]
"""What changes that are read alike have in common: their table, their schema, and whether they are wrapped."""
CHANGE = "change"
FEW = 5000
"""Events whose positions are compared one after the other while they are counted."""


@dataclass(frozen=True)
class Group:
    """Events of one table, one schema and one kind. `kind`: "change", or an op that is none. Of null tombstones
    `table` is known where each only repeats the delete right before it."""

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
    """The highest position of a read that says to be a snapshot's last one."""
    first_read: tuple[int, ...] | None = None
    """The lowest position of a snapshot's reads, those of incremental ones left out."""
    progress: tuple[Progress, Progress] | None = None
    """The lowest and the highest one."""
    goes_back: bool | None = None
    """Whether one is lower than one before it in its partition; None where nobody has looked."""
    opened: bool = True
    """Whether every image without a schema could be opened: `kinds` are those of all."""
    known: bool = False
    """Whether each is a change without a schema that was read: plain JSON that names either image once."""
    newest: int | None = None
    """When the last of its changes was made at its source, in milliseconds since 1970."""
    origins: tuple[str, ...] = ()
    """The servers and databases of its events, as far as these name them."""

    @property
    def of(self) -> Kind:
        return self.table, self.schema_id, self.wrapped

    @property
    def snapshot(self) -> tuple[int, ...] | None:
        """Where the reads of a snapshot stand that ends here. All of one stand at one position: where they don't,
        nothing tells what is older than they are."""
        end, first = self.last_read, self.first_read
        return None if end is None or (first is not None and first[:4] != end[:4]) else end

    @property
    def said(self) -> dict[str, Any]:
        """As JSON has it, with the names of columns and none of what may be data: keys of maps in their values."""
        said: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return said

    @staticmethod
    def is_readable(said: Mapping[str, Any]) -> bool:
        """Returns whether `said` is of this version: an older one wrote types of values in place of kinds."""
        return "kinds" in said

    @classmethod
    def heard(cls, said: Mapping[str, Any]) -> Group:
        """Of what another one `said`."""
        return cls(**{name: _tuples(value) for name, value in said.items()})

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.partitions}

    @property
    def may_be_adrift(self) -> bool:
        """Whether a read among them may not tell where it stands."""
        return is_unplaced_read_at(self.first_position)

    @property
    def placed(self) -> bool:
        """Whether the source gave positions to all of them."""
        return any(self.first_position[1:3])


def profiles(events: DataFrame, slice_of: Column, few: bool = False) -> dict[int, list[Group]]:
    """The groups of each slice (`EVENT` rows, told apart by `slice_of`), in the order in which they first appear in
    the transport. `few`: there are so few events that their positions can be compared one after the other."""
    opened, kinds, aggregates = _counting(few)
    told = news(events.sparkSession, F.col("value"), (slice_of.cast("bigint"), F.col("source_table"), _is_wrapped()))
    # Apart: in an aggregate it would be asked, and read, again for each mention.
    asked = events.withColumns({"_told": F.when(_is_schemaless(), told), "_repeated": _repeated(few)})
    asked = asked.withColumn("_news", _is_schemaless() & F.coalesce("_told", F.lit(True)))
    grouped = asked.withColumn("_images", opened).groupBy(slice_of.alias("slice"), *kinds)
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
        )
        found.setdefault(r["slice"], []).append(group)
    return {n: in_order(groups) for n, groups in found.items()}


@cache
def _counting(few: bool) -> tuple[Column, tuple[Column, ...], tuple[Column, ...]]:
    """The images of an event, what tells groups apart, and what is told of each. Kept: writing them down takes as long
    as to count a small batch."""
    kind = F.when(F.col("op").isin(*CHANGES), CHANGE).otherwise(F.col("op")).alias("kind")
    return (
        images(F.when(F.col("_news"), F.col("value").cast("string"))),
        (_table(), kind, F.col("problem"), F.col("schema_id"), _is_wrapped().alias("wrapped")),
        (
            F.count(F.lit(1)).alias("count"),
            F.min(F.struct("offset", "topic", "partition")).alias("first"),
            column_kinds(F.col("_images"), F.col("wrapped")).alias("kinds"),
            F.bool_and(~F.col("_news") | are_whole(F.col("_images"))).alias("opened"),
            F.bool_and(F.col("_told").isNotNull()).alias("known"),
            F.min("position").alias("lowest"),
            F.max("position").alias("highest"),
            F.collect_set(F.struct("topic", "partition")).alias("partitions"),
            F.bool_or(names_new_key()).alias("key_changes"),
            F.max(F.when(F.col("ends_snapshot"), F.col("position"))).alias("snapshot"),
            F.min(F.when(_reads_all(), F.col("position"))).alias("read"),
            F.min("progress").alias("earliest"),
            F.max("progress").alias("furthest"),
            (_goes_back() if few else F.lit(None).cast("boolean")).alias("goes_back"),
            F.max(F.unix_millis("source_ts")).alias("newest"),
            F.collect_set(F.when(F.col(ORIGIN) != UNNAMED, F.col(ORIGIN))).alias("origins"),
        ),
    )


@cache
def _is_schemaless() -> Column:
    """Whether it is a change that brings no schema."""
    return F.col("schema_id").isNull() & F.coalesce(F.col("op").isin(*CHANGES), F.lit(False))


@cache
def _reads_all() -> Column:
    """Whether it is a read of a snapshot that reads rows as they are at one point of the log."""
    return (F.col("op") == "r") & F.col("ends_snapshot").isNotNull()


@cache
def _table() -> Column:
    return F.coalesce("_repeated", "source_table").alias("source_table")


@cache
def _repeated(few: bool) -> Column:
    """The table of a null tombstone that stands right behind its delete, where a source puts it: all that it says is
    known. Where there are many events nobody looks."""
    if not few:
        return F.lit(None).cast("string")
    before = F.lag(F.struct("op", "key", "offset", F.col("source_table").alias("table")))
    before = before.over(Window.partitionBy("topic", "partition").orderBy("offset"))
    next_to_it = (before["offset"] + 1 == F.col("offset")) & (before["key"] == F.col("key"))
    return F.when((F.col("op") == TOMBSTONE) & (before["op"] == "d") & next_to_it, before["table"])


@cache
def _is_wrapped() -> Column:
    return F.coalesce("wrapped", F.lit(False))


def together(groups: Iterable[Group]) -> list[Group]:
    """The groups of a slice out of those of its parts."""
    found: dict[tuple[Any, ...], list[Group]] = {}
    for group in groups:
        kind = (group.table, group.kind, group.problem, group.schema_id, group.wrapped)
        found.setdefault(kind, []).append(group)
    return in_order(reduce(_both, alike) for alike in found.values())


def _both(one: Group, other: Group) -> Group:
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
        newest=max((n for n in (one.newest, other.newest) if n is not None), default=None),
    )


def _goes_back_in(one: Group, other: Group) -> bool | None:
    """Of a group and its part that comes after it: between them nobody has looked, but the one may end before."""
    apart = one.progress is None or other.progress is None or one.progress[1] <= other.progress[0]
    return False if apart and one.goes_back is False and other.goes_back is False else None


def in_order(groups: Iterable[Group]) -> list[Group]:
    return sorted(groups, key=lambda one: _place(one.first))


def _place(coordinates: Coordinates) -> tuple[int, str, int]:
    topic, partition, offset = coordinates
    return offset, topic, partition


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _goes_back() -> Column:
    """Aggregate: whether the log goes back anywhere, event by event in the order of each partition."""
    sent = F.when(F.col("progress").isNotNull(), F.struct("topic", "partition", "offset", "progress"))
    events = F.sort_array(F.collect_list(sent))

    def back(earlier: Column, later: Column) -> Column:
        there = (earlier["topic"] == later["topic"]) & (earlier["partition"] == later["partition"])
        return there & (later["progress"] < earlier["progress"])

    # The last one is followed by none, which is no step back.
    steps = F.zip_with(events, F.slice(events, 2, F.greatest(F.size(events), F.lit(1))), back)
    return F.coalesce(F.exists(steps, lambda step: step), F.lit(False))


def at(coordinates: Sequence[Coordinates]) -> Column:
    """Selects the events at these coordinates."""
    found = F.lit(False)
    for topic, partition, offset in coordinates:
        here = (F.col("topic") == topic) & (F.col("partition") == partition) & (F.col("offset") == offset)
        found = found | here
    return found


def belongs_to(group: Group) -> Column:
    """Selects the events of a group of changes."""
    return of_kind(group.of)


@lru_cache(maxsize=512)
def of_kind(kind: Kind) -> Column:
    """Selects the changes of a kind."""
    table, schema_id, wrapped = kind
    inside = F.coalesce(F.col("wrapped"), F.lit(False)) == F.lit(wrapped)
    schema = F.col("schema_id").eqNullSafe(F.lit(schema_id).cast("bigint"))
    return F.col("op").isin(*CHANGES) & (F.col("source_table") == table) & schema & inside
