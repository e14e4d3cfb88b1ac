"""The lives that begin after an erasure, and events that come after a cutoff though no new life has begun.

A create begins a new life. An update of an erased row says that the source still holds it, and is suppressed; so does a
snapshot read, which the pipeline's file lets in or suppresses. An erased row that moves to another key goes on there.
Both the begin of a life and a row that the source still holds get an entry in the ledger, once."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import EVENT_ID
from ingest.changelog.position import POSITION, is_same_source_position
from ingest.spark.checkpoints import checkpoint
from ingest.spark.local_rows import local_rows
from ingest.suppression.before_cutoff import BEFORE_CUTOFF, UNDECIDED, with_cutoff_flags
from ingest.suppression.cutoff import Cutoff
from ingest.suppression.key_references import KEY_HASH, LINKS, MOVED_FROM, OWN_KEYS
from ingest.suppression.ledger import BEGUN, FOUND, HELD, RELEASED, Ledger, LedgerEntry

_IS_ROW, _IS_LINKED, _MOVED_TO = "_ingest_is_row", "_ingest_is_linked", "_ingest_moved_to_keys"
_HAS_BEGUN, _BEGINS, _ARRIVES = "_ingest_has_begun", "_ingest_begins", "_ingest_arrives"
_EVENT = [EVENT_ID, "request"]
_ROW_KEY = ["request", KEY_HASH]
_SHOWN_DIGITS = 16
_Key = tuple[str, str]
"""Request and keyed hash of a row's key."""
_Place = tuple[int, ...]
_log = logging.getLogger(__name__)


def later_events(
    events: DataFrame, ledger_keys: DataFrame, cutoffs: Mapping[str, Cutoff], table: str, is_root: bool
) -> DataFrame | None:
    """Returns a row per event after a cutoff and key of an erased row that it names; None if there are none.

    With `EVENT_ID`, `op`, `position`, `request`, `KEY_HASH`, and whether the row had that key before the event, whether
    it still leads to the subject, and the keys to which it moves.

    `events`: `key_references` of one key version, with hashes. `ledger_keys`: those of that version. `is_root`: rows of
    the table are subjects themselves."""
    changes = events.where(F.col("op").isin("c", "r", "u", "d"))
    named = F.array_union(OWN_KEYS, LINKS)
    hashes = F.broadcast(changes.select(F.explode(named).alias(KEY_HASH)).distinct())
    known = checkpoint(ledger_keys.join(hashes, KEY_HASH, "left_semi"))
    requests = {row["request"] for row in known.select("request").distinct().collect()}  # of a batch
    if not requests:
        return None
    of_table = F.broadcast(known.where(F.col("table") == table).select(*_ROW_KEY).distinct())
    hits = changes.withColumn(KEY_HASH, F.explode(OWN_KEYS)).join(of_table, KEY_HASH)
    links = changes.select(EVENT_ID, F.explode(LINKS).alias(KEY_HASH)).join(F.broadcast(known), KEY_HASH)
    linked = links.select(*_EVENT).distinct().withColumn(_IS_LINKED, F.lit(True))
    cutoffs_here = {request: cutoffs[request] for request in requests & cutoffs.keys()}
    flagged = with_cutoff_flags(hits.join(F.broadcast(linked), _EVENT, "left"), cutoffs_here, table)
    is_moved = F.size(MOVED_FROM) > 0
    # A row that leads nowhere any more is no other subject's.
    leads = F.lit(is_root) | F.coalesce(F.col(_IS_LINKED), F.size(LINKS) == 0)
    return flagged.where(~F.col(BEFORE_CUTOFF) & ~F.col(UNDECIDED)).select(
        *(EVENT_ID, "op", "position", *_ROW_KEY),
        (~is_moved | F.array_contains(MOVED_FROM, F.col(KEY_HASH))).alias(_IS_ROW),
        leads.alias(_IS_LINKED),
        F.when(is_moved, F.array_except(OWN_KEYS, MOVED_FROM)).alias(_MOVED_TO),
    )


class LaterLives:
    """The later lives of the erased subjects of one pipeline."""

    def __init__(
        self,
        spark: SparkSession,
        ledger: Ledger,
        suppresses_reads: bool,
        fold_anew: Callable[[str], None],
        living: Callable[[str, DataFrame], DataFrame],
    ) -> None:
        """`suppresses_reads`: snapshot reads of erased rows are suppressed; else they begin a life. `fold_anew`: takes
        a table in which updates of a life may have been suppressed, as its begin comes after them. `living`: returns
        those rows of `request`, `KEY_HASH` and `key_version` that a table holds in a life after the cutoff."""
        self._spark = spark
        self._ledger = ledger
        self._suppresses_reads = suppresses_reads
        self._fold_anew = fold_anew
        self._living = living
        self._number = 0
        self._version = -1
        self._begun: dict[_Key, _Place | None] = {}
        self._held: set[_Key] = set()
        self._ever_held: set[_Key] = set()
        self._arrived: dict[_Key, _Place] = {}

    def suppressed(
        self, events: DataFrame, key_version: int, cutoffs: Mapping[str, Cutoff], table: str, is_root: bool
    ) -> list[DataFrame]:
        """Returns the `EVENT_ID` of the events after the cutoffs that are to be suppressed, in one frame or more.
        `events`, `cutoffs`, `is_root`: as for `later_events`."""
        found = list[DataFrame]()
        while True:
            keys = self._ledger.keys().where(F.col("key_version") == key_version)
            later = later_events(events, keys, cutoffs, table, is_root)
            if later is None:
                return found
            dead, has_moved = self._suppressed(later.withColumn("key_version", F.lit(key_version)), table)
            found.append(dead)
            if not has_moved:
                return found

    def _suppressed(self, later: DataFrame, table: str) -> tuple[DataFrame, bool]:
        """Returns the `EVENT_ID` of those of `later_events` that are to be suppressed, and whether keys were recorded
        in the ledger to which erased rows have moved, so that other events may have become later ones."""
        later = checkpoint(later)
        self._refresh()
        held = frozenset(self._ever_held)
        rows, moves_here = later.where(_IS_ROW), later.where(~F.col(_IS_ROW) & (F.col("op") == "u"))
        of_others = moves_here.join(rows.select(*_EVENT), _EVENT, "left_anti")
        self._begin(self._without_arrivals(rows.where(F.col("op") == "c")).unionByName(of_others), table, held)
        self._know_living(rows, table)
        dead = self._dead(rows)
        while self._begin(moves_here.join(dead.select(*_EVENT), _EVENT, "left_anti"), table, held):
            dead = self._dead(rows)
        self._hold(dead.where(F.col("op") != "d"), table)
        self._release(rows, table)
        has_moved = self._move(dead.where(F.size(_MOVED_TO) > 0), table)
        if not self._suppresses_reads:
            self._begin(dead.where(F.col("op") == "r"), table, held)
            dead = self._dead(rows)
        return checkpoint(dead.where(F.col("op") != "d").select(EVENT_ID).distinct()), has_moved

    def _dead(self, rows: DataFrame) -> DataFrame:
        """Returns the events of rows that lead to the subject and have no new life at their positions."""
        joined = rows.join(F.broadcast(self._places(self._begun, _BEGINS)), _ROW_KEY, "left")
        lives = F.col(_HAS_BEGUN) & (F.col(_BEGINS).isNull() | (F.col("position") >= F.col(_BEGINS)))
        return checkpoint(joined.where(~F.coalesce(lives, F.lit(False)) & F.col(_IS_LINKED)).select(*rows.columns))

    def _without_arrivals(self, creates: DataFrame) -> DataFrame:
        """Returns the creates without those by which Debezium writes an erased row under another key."""
        if not self._arrived:
            return creates
        joined = creates.join(F.broadcast(self._places(self._arrived, _ARRIVES)), _ROW_KEY, "left")
        is_arrival = F.coalesce(is_same_source_position(F.col("position"), F.col(_ARRIVES)), F.lit(False))
        return joined.where(~is_arrival).select(*creates.columns)

    def _places(self, places: Mapping[_Key, _Place | None], name: str) -> DataFrame:
        """Returns rows of `request`, `KEY_HASH`, true as `_HAS_BEGUN`, and the position, called `name`."""
        text = T.StringType()
        types = {"request": text, KEY_HASH: text, _HAS_BEGUN: T.BooleanType(), name: POSITION}
        schema = T.StructType([T.StructField(column, type_) for column, type_ in types.items()])
        rows = [
            {"request": request, KEY_HASH: key_hash, _HAS_BEGUN: True, name: at and _position(at)}
            for (request, key_hash), at in places.items()
        ]
        return local_rows(self._spark, rows, schema)

    def _know_living(self, rows: DataFrame, table: str) -> None:
        """Records the lives of rows that the table holds. Older versions recorded no begin of a life."""
        named = rows.select(*_ROW_KEY, "key_version").distinct()
        keys = {(row["request"], row[KEY_HASH]) for row in named.collect()}  # of erased rows that a batch names
        if keys - self._ever_held - self._begun.keys():
            found = self._living(table, named).collect()
            begins = {(row["request"], row[KEY_HASH]): (None, row["key_version"]) for row in found}
            self._append(BEGUN, {key: of for key, of in begins.items() if key not in self._begun}, table)

    def _begin(self, events: DataFrame, table: str, held: Collection[_Key]) -> bool:
        """Records that the rows of these events have a new life from their first event on. Returns False if that is
        known. `held`: rows of which events were suppressed before, which may be of that life."""
        first = events.groupBy(*_ROW_KEY, "key_version").agg(F.min("position").alias("first"))
        begins = {
            (row["request"], row[KEY_HASH]): (tuple(row["first"]), row["key_version"])
            for row in first.collect()  # a row per row of a subject that is back
        }
        new = {key: begin for key, begin in begins.items() if self._is_earlier(key, begin[0])}
        if not new.keys().isdisjoint(held):
            self._fold_anew(table)
        self._append(BEGUN, new, table)
        return bool(new)

    def _is_earlier(self, key: _Key, position: _Place) -> bool:
        known = self._begun.get(key)
        return key not in self._begun or (known is not None and position < known)

    def _hold(self, dead: DataFrame, table: str) -> None:
        """Records and logs that the source still holds the rows of these events."""
        rows = dead.select(*_ROW_KEY, "key_version").distinct().collect()  # of rows that the source holds
        found = {(row["request"], row[KEY_HASH]): (None, row["key_version"]) for row in rows}
        new = {key: of for key, of in found.items() if key not in self._held}
        for request, key_hash in new:
            _log.warning(
                "the source still holds a row of an erased subject in %s: key %s…, request %s. Delete it at the "
                "source, then request the erasure again",
                table,
                key_hash[:_SHOWN_DIGITS],
                request,
            )
        self._append(HELD, new, table)

    def _release(self, rows: DataFrame, table: str) -> None:
        """Records of which held rows the last event is a delete, or a create, before which there was one."""
        last = rows.groupBy(*_ROW_KEY, "key_version").agg(F.max_by("op", "position").alias("op"))
        ended = last.where(F.col("op").isin("c", "d")).collect()  # a row per row of a subject
        found = {(row["request"], row[KEY_HASH]): (None, row["key_version"]) for row in ended}
        self._append(RELEASED, {key: of for key, of in found.items() if key in self._held}, table)

    def _move(self, moves: DataFrame, table: str) -> bool:
        """Records the keys to which erased rows move, and that the source still holds them there. Returns False if all
        are known."""
        targets = moves.select("request", F.explode(_MOVED_TO).alias(KEY_HASH), "key_version", "position")
        last = targets.groupBy(*_ROW_KEY, "key_version").agg(F.max("position").alias("position")).collect()
        found = {(row["request"], row[KEY_HASH]): (tuple(row["position"]), row["key_version"]) for row in last}
        new = {key: of for key, of in found.items() if key not in self._arrived}
        if not new:
            return False
        keys = targets.select("request", F.lit(table).alias("table"), KEY_HASH, "key_version").distinct()
        requests = sorted({request for request, _ in new})
        self._note(self._ledger.append([LedgerEntry(FOUND, request, table=table) for request in requests], keys))
        self._append(HELD, new, table)
        return True

    def _append(self, kind: str, found: Mapping[_Key, tuple[_Place | None, int]], table: str) -> None:
        """Appends an entry for each row. `found`: its key → a position, None for none, and the version of its hash."""
        entries = [
            LedgerEntry(kind, request, table=table, key_hash=key_hash, key_version=version, state=json.dumps(at))
            for (request, key_hash), (at, version) in sorted(found.items())
        ]
        if entries:
            self._note(self._ledger.append(entries))

    def _refresh(self) -> None:
        version = self._ledger.version()
        if version != self._version:
            self._note(self._ledger.entries_after(self._number))
            self._version = version

    def _note(self, entries: Iterable[LedgerEntry]) -> None:
        for entry in entries:
            self._number = max(self._number, entry.number)
            key = (entry.request, entry.key_hash or "")
            if entry.kind in (BEGUN, HELD):
                numbers = json.loads(entry.state or "null")
                at = None if numbers is None else tuple(numbers)
            if entry.kind == HELD:
                self._held.add(key)
                self._ever_held.add(key)
                self._arrived |= {} if at is None else {key: at}
            elif entry.kind == RELEASED:
                self._held.discard(key)
            elif entry.kind == BEGUN:
                known = self._begun.get(key, at)
                self._begun[key] = None if at is None or known is None else min(at, known)


def _position(numbers: _Place) -> dict[str, int]:
    return dict(zip(POSITION.names, numbers, strict=True))
