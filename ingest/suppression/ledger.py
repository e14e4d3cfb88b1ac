"""The ledger of a pipeline's erasures: requests, the keys that they suppress, and what has been removed. Append-only.

Entries are numbered and each holds the hash of the one before, so that changes, gaps and reordering show. Beside an
entry stand rows of kind `KEY`: keyed hashes of the keys that it suppresses, the subject's own and those of rows that
lead to it. The entry holds their digest. Nothing in it identifies a person without the secret keys (`key_file`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.delta import delta_table
from ingest.delta.conflict_retry import retry_on_conflict
from ingest.delta.txn_versions import TxnVersion
from ingest.spark.local_rows import local_rows
from ingest.suppression.cutoff import Cutoff
from ingest.suppression.ledger_chain import NO_ENTRY, Head, LedgerFault, chain_faults

REQUESTED, FOUND, STATE, KEY = "asked", "found", "state", "key"
BEGUN, HELD, RELEASED = "begun", "held", "released"
_SCHEMA = T.StructType(
    [
        T.StructField("pipeline", T.StringType()),
        T.StructField("number", T.LongType()),
        T.StructField("kind", T.StringType()),
        T.StructField("request", T.StringType()),
        T.StructField("at", T.TimestampType()),
        T.StructField("subject", T.StringType()),
        T.StructField("table", T.StringType()),
        T.StructField("key_hash", T.StringType()),
        T.StructField("key_version", T.IntegerType()),
        T.StructField("key_check", T.StringType()),
        T.StructField("reason", T.StringType()),
        T.StructField("cut_off", T.StringType()),
        T.StructField("place", T.StringType()),
        T.StructField("state", T.StringType()),
        T.StructField("upto", T.LongType()),
        T.StructField("evidence", T.StringType()),
        T.StructField("keys", T.LongType()),
        T.StructField("keys_digest", T.StringType()),
        T.StructField("previous", T.StringType()),
        T.StructField("hash", T.StringType()),
    ]
)
_PROPERTIES = delta_table.NO_STATISTICS
KEYS = T.StructType([_SCHEMA[name] for name in ("request", "table", "key_hash", "key_version")])
"""Columns of the keys that requests suppress."""


@dataclass(frozen=True)
class LedgerEntry:
    """An entry; its fields are the table's columns. `kind`: `REQUESTED` (with `subject`, `reason` and `cut_off`),
    `FOUND` (keys of rows that were linked to the subject later), `STATE` (all requests up to entry `upto` have reached
    `state` in `place`; `evidence` is a hash of the counts), `BEGUN` (the row `key_hash` has a new life, from the
    position `state` on; null: from the cutoff on), `HELD` (the source still holds this row; `state`: the position at
    which it moved to this key, or null) or `RELEASED` (it has deleted it). `keys`: number of keys that the entry
    suppresses."""

    kind: str
    request: str
    subject: str | None = None
    table: str | None = None
    key_hash: str | None = None
    key_version: int | None = None
    key_check: str | None = None
    reason: str | None = None
    cut_off: str | None = None
    place: str | None = None
    state: str | None = None
    upto: int | None = None
    evidence: str | None = None
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    pipeline: str = ""
    number: int = 0
    keys: int = 0
    keys_digest: str | None = None
    previous: str = NO_ENTRY.hash

    @property
    def hash(self) -> str:
        """Returns the SHA-256 of all fields."""
        values = {f.name: getattr(self, f.name) for f in fields(self)} | {"at": self.at.astimezone(UTC).isoformat()}
        return hashlib.sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON values, with the hash."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"at": self.at.isoformat(), "hash": self.hash}


@dataclass(frozen=True)
class LedgerState:
    """The entries of a ledger as stored. `hashes`: number → hash. `requests`: number of requests. `reached`: the number
    that the table's log says was written last. `held`: the requests (`REQUESTED`) of subjects that the source still
    holds."""

    hashes: Mapping[int, str]
    requests: int
    reached: int
    faults: Sequence[LedgerFault]
    held: Sequence[LedgerEntry] = ()

    @property
    def head(self) -> Head:
        """Returns the last entry."""
        last = max(self.hashes, default=0)
        return Head(last, self.hashes[last]) if last else NO_ENTRY


class Ledger:
    """The ledger of one pipeline."""

    def __init__(self, spark: SparkSession, path: str, pipeline: str) -> None:
        self._spark = spark
        self._table = delta_table.Table(spark, path)
        self._pipeline = pipeline

    def version(self) -> int:
        """Returns the table's version, which grows with every append; -1 before the first request of any pipeline."""
        return self._table.version() if self._table.exists() else -1

    def entries(self) -> Iterator[LedgerEntry]:
        """Yields the entries by number."""
        for entry, _ in self._entries_with_hash():
            yield entry

    def requests(self) -> dict[str, LedgerEntry]:
        """Returns request → its `REQUESTED` entry."""
        return {e.request: e for e in self.entries() if e.kind == REQUESTED}

    def keys(self, number: int | None = None) -> DataFrame:
        """Returns all suppressed `KEYS`, or those of entry `number`."""
        keys = self._rows().where(F.col("kind") == KEY)
        return (keys if number is None else keys.where(F.col("number") == number)).select(*KEYS.names)

    def keys_after(self, number: int) -> DataFrame:
        """Returns the `KEYS` of the entries after `number`."""
        keys = self._rows().where((F.col("kind") == KEY) & (F.col("number") > number))
        return keys.select(*KEYS.names)

    def last_number(self) -> int:
        """Returns the number of the last entry; 0 before the first."""
        last = self._last()
        return 0 if last is None else int(last["number"])

    def append(self, entries: Sequence[LedgerEntry], keys: DataFrame | None = None) -> list[LedgerEntry]:
        """Appends entries in one commit and returns them as stored. `keys`: `KEYS` of their requests, of which each has
        one entry."""
        suppressed = None if keys is None else keys.select(*KEYS.names).distinct()
        digests = {} if suppressed is None else _digests(suppressed, "request")
        with_digests = [self._with_digest(entry, digests) for entry in entries]
        written: list[LedgerEntry] = retry_on_conflict()(self._append, with_digests, suppressed)
        return written

    def _append(self, entries: Sequence[LedgerEntry], keys: DataFrame | None) -> list[LedgerEntry]:
        last = self._last()
        head = Head(last["number"], last["hash"]) if last is not None else NO_ENTRY
        chained = _chained(entries, head)
        frame = self._frame(chained, keys)
        self._table.commit(frame, txn_version=self._progress(chained[-1].number), properties=_PROPERTIES)
        return chained

    def replace(
        self, rows: DataFrame | None, head: Head, entries: Sequence[LedgerEntry], keys: DataFrame | None
    ) -> None:
        """Replaces the whole ledger by `rows` (of `rows_after`), whose last entry is `head`, and these `entries`, whose
        `keys` are `KEYS`, in one commit. Ledgers of other pipelines in the table stay."""
        digests = {} if keys is None else _digests(keys, "request")
        chained = _chained([self._with_digest(e, digests) for e in entries], head)
        frame = self._frame(chained, keys)
        frame = frame if rows is None else frame.unionByName(rows.select(*_SCHEMA.names))
        others, files = self._table.rows(_SCHEMA).where(F.col("pipeline") != self._pipeline), []
        if self._table.exists():
            frame, files = frame.unionByName(others.select(*_SCHEMA.names)), list(self._table.files().values())
        last = chained[-1].number if chained else head.number
        progress = replace(self._progress(last), must_advance=False)
        self._table.commit(frame, files, txn_version=progress, properties=_PROPERTIES)

    def _frame(self, entries: Sequence[LedgerEntry], keys: DataFrame | None) -> DataFrame:
        """Returns the rows of these entries and of the `keys` of their requests."""
        rows = [{f.name: getattr(e, f.name) for f in fields(e)} | {"hash": e.hash} for e in entries]
        frame = local_rows(self._spark, rows, _SCHEMA)
        if keys is not None:
            numbers = F.broadcast(frame.select("request", "pipeline", "number"))
            key_rows = keys.join(numbers, "request").withColumn("kind", F.lit(KEY))
            nothing = {f.name: F.lit(None).cast(f.dataType) for f in _SCHEMA if f.name not in key_rows.columns}
            frame = frame.unionByName(key_rows.withColumns(nothing))
        return frame.select(*_SCHEMA.names)

    def _progress(self, number: int) -> TxnVersion:
        return TxnVersion(f"ledger of {self._pipeline}", number)

    def _with_digest(self, entry: LedgerEntry, digests: Mapping[Any, tuple[int, str]]) -> LedgerEntry:
        if entry.request not in digests:
            return replace(entry, pipeline=self._pipeline)
        count, digest = digests[entry.request]
        return replace(entry, pipeline=self._pipeline, keys=count, keys_digest=digest)

    def verify(self) -> Iterator[LedgerFault]:
        """Yields entries that were changed, removed or inserted; nothing for an intact ledger."""
        yield from self.state().faults

    def state(self) -> LedgerState:
        """Returns the state of the ledger: reads it whole."""
        if not self._table.exists():
            return LedgerState({}, 0, 0, [])
        entries = list(self._entries_with_hash())
        digests = _digests(self._rows().where(F.col("kind") == KEY), "number")
        faults = list(chain_faults(entries, digests))
        hashes = {entry.number: stored_hash for entry, stored_hash in entries}
        reached, last = self._table.txn_version(f"ledger of {self._pipeline}"), max(hashes, default=0)
        if reached > last:
            faults.append(LedgerFault(reached, f"is missing: the ledger ends at entry {last}"))
        requests = sum(entry.kind == REQUESTED for entry, _ in entries)
        return LedgerState(hashes, requests, reached, faults, held_requests(entry for entry, _ in entries))

    def entries_after(self, number: int) -> list[LedgerEntry]:
        """Returns the entries after `number`."""
        return [entry for entry, _ in self._entries_with_hash(number)]

    def keys_by_entry(self, number: int) -> DataFrame:
        """Returns `number` and `KEYS` of the entries after `number`."""
        keys = self._rows().where((F.col("kind") == KEY) & (F.col("number") > number))
        return keys.select("number", *KEYS.names)

    def rows_of(self, entries: Sequence[LedgerEntry], keys: DataFrame) -> DataFrame:
        """Returns the rows of numbered `entries` and their `keys` (`number` and `KEYS`), for `replace`."""
        columns = {"pipeline": F.lit(self._pipeline), "kind": F.lit(KEY)}
        nothing = {f.name: F.lit(None).cast(f.dataType) for f in _SCHEMA if f.name not in (*keys.columns, *columns)}
        return self._frame(entries, None).unionByName(keys.withColumns(columns | nothing).select(*_SCHEMA.names))

    def _rows(self) -> DataFrame:
        return self._table.rows(_SCHEMA).where(F.col("pipeline") == self._pipeline)

    def _last(self) -> Row | None:
        entries = self._rows().where(F.col("kind") != KEY)
        return entries.orderBy(F.desc("number")).select("number", "hash").first()

    def _entries_with_hash(self, after: int = -1) -> Iterator[tuple[LedgerEntry, str]]:
        """Yields each entry after `after` with the hash that it was stored with."""
        entries = self._rows().where((F.col("kind") != KEY) & (F.col("number") > after)).orderBy("number")
        for row in entries.toLocalIterator():  # a row per request and what became of it
            values: dict[str, Any] = row.asDict()
            stored_hash = values.pop("hash")
            yield LedgerEntry(**values | {"at": values["at"].astimezone(UTC)}), stored_hash


def held_requests(entries: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """Returns the requests of subjects of which the source still holds a row, and whose erasure was not requested again
    since. `entries`: all, by number."""
    requests: dict[str, LedgerEntry] = {}
    held: dict[tuple[str, str | None], LedgerEntry] = {}
    for entry in entries:
        row = entry.request, entry.key_hash
        if entry.kind == REQUESTED:
            requests[entry.request] = entry
            subject = entry.table, entry.key_hash
            held = {of: request for of, request in held.items() if (request.table, request.key_hash) != subject}
        elif entry.kind == HELD and entry.request in requests:
            held[row] = requests[entry.request]
        elif entry.kind == RELEASED:
            held.pop(row, None)
    return list({request.request: request for request in held.values()}.values())


def _chained(entries: Sequence[LedgerEntry], head: Head) -> list[LedgerEntry]:
    """Returns the entries, numbered after `head`, each with the hash of the one before."""
    chained = []
    for entry in entries:
        chained.append(replace(entry, number=head.number + 1, previous=head.hash))
        head = Head(chained[-1].number, chained[-1].hash)
    return chained


def last_state_number(entries: Iterable[LedgerEntry], place: str) -> int:
    """Returns the number of the last `STATE` entry of a place; 0 if there is none."""
    return max((e.number for e in entries if e.kind == STATE and e.place == place), default=0)


def cutoffs(entries: Iterable[LedgerEntry]) -> dict[str, Cutoff]:
    """Returns request → cutoff."""
    return {e.request: Cutoff.from_json(e.cut_off) for e in entries if e.cut_off is not None}


def _digests(keys: DataFrame, by: str) -> dict[Any, tuple[int, str]]:
    """Returns, per value of column `by`, the number of keys and a hash of all of them."""
    key = F.concat_ws(":", "table", F.col("key_version").cast("string"), "key_hash")
    digest = F.sha2(F.array_join(F.sort_array(F.collect_list(key)), "\n"), 256)
    rows = keys.groupBy(by).agg(F.count(F.lit(1)).alias("count"), digest.alias("digest")).collect()  # a row a request
    return {row[by]: (row["count"], row["digest"]) for row in rows}
