"""The ledger of a pipeline's erasures: requests, the keys that they suppress, and what has been removed. Append-only.

Entries are numbered and each holds the hash of the one before, so that changes, gaps and reordering show. Beside an
entry stand rows of kind `KEY`: keyed hashes of the keys that it suppresses, the subject's own and those of rows that
lead to it. The entry holds their digest. Nothing in it identifies a person without the secret keys (`key_file`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
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

REQUESTED, FOUND, STATE, KEY = "asked", "found", "state", "key"
_NO_HASH = ""
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
KEYS = T.StructType([_SCHEMA[name] for name in ("request", "table", "key_hash", "key_version")])
"""Columns of the keys that requests suppress."""


@dataclass(frozen=True)
class LedgerEntry:
    """An entry; its fields are the table's columns. `kind`: `REQUESTED` (with `subject`, `reason` and `cut_off`),
    `FOUND` (keys of rows that were linked to the subject later) or `STATE` (all requests up to entry `upto` have
    reached `state` in `place`; `evidence` is a hash of the counts). `keys`: number of keys that the entry
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
    previous: str = _NO_HASH

    @property
    def hash(self) -> str:
        """Returns the SHA-256 of all fields."""
        values = {f.name: getattr(self, f.name) for f in fields(self)} | {"at": self.at.astimezone(UTC).isoformat()}
        return hashlib.sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


@dataclass(frozen=True)
class LedgerFault:
    """A fault of the ledger, at entry `number`."""

    number: int
    problem: str


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
        with_digests = [
            replace(e, pipeline=self._pipeline, keys=digests[e.request][0], keys_digest=digests[e.request][1])
            if e.request in digests
            else replace(e, pipeline=self._pipeline)
            for e in entries
        ]
        written: list[LedgerEntry] = retry_on_conflict()(self._append, with_digests, suppressed)
        return written

    def _append(self, entries: Sequence[LedgerEntry], keys: DataFrame | None) -> list[LedgerEntry]:
        last = self._last()
        number, previous = (last["number"], last["hash"]) if last is not None else (0, _NO_HASH)
        chained = []
        for entry in entries:
            number += 1
            chained.append(replace(entry, number=number, previous=previous))
            previous = chained[-1].hash
        rows = [{f.name: getattr(e, f.name) for f in fields(e)} | {"hash": e.hash} for e in chained]
        frame = local_rows(self._spark, rows, _SCHEMA)
        if keys is not None:
            numbers = F.broadcast(frame.select("request", "pipeline", "number"))
            key_rows = keys.join(numbers, "request").withColumn("kind", F.lit(KEY))
            nothing = {f.name: F.lit(None).cast(f.dataType) for f in _SCHEMA if f.name not in key_rows.columns}
            frame = frame.unionByName(key_rows.withColumns(nothing))
        progress = TxnVersion(f"ledger of {self._pipeline}", number)
        self._table.commit(frame.select(*_SCHEMA.names), txn_version=progress, properties=delta_table.NO_STATISTICS)
        return chained

    def verify(self) -> Iterator[LedgerFault]:
        """Yields entries that were changed, removed or inserted; nothing for an intact ledger."""
        digests = _digests(self._rows().where(F.col("kind") == KEY), "number")
        number, previous = 0, _NO_HASH
        for entry, stored_hash in self._entries_with_hash():
            if entry.number != number + 1:
                yield LedgerFault(
                    entry.number, f"follows entry {number}: entries between are missing, or it is a duplicate"
                )
            elif entry.previous != previous:
                yield LedgerFault(entry.number, f"does not follow from entry {number}: the previous hash differs")
            if entry.hash != stored_hash:
                yield LedgerFault(entry.number, "was changed")
            if digests.pop(entry.number, (0, None)) != (entry.keys, entry.keys_digest):
                yield LedgerFault(entry.number, "its keys are not those that it was written with")
            number, previous = entry.number, stored_hash
        yield from (LedgerFault(orphan, "has keys, but the entry is missing") for orphan in sorted(digests))
        if self._table.exists() and (reached := self._table.txn_version(f"ledger of {self._pipeline}")) > number:
            yield LedgerFault(reached, f"is missing: the ledger ends at entry {number}")

    def _rows(self) -> DataFrame:
        return self._table.rows(_SCHEMA).where(F.col("pipeline") == self._pipeline)

    def _last(self) -> Row | None:
        entries = self._rows().where(F.col("kind") != KEY)
        return entries.orderBy(F.desc("number")).select("number", "hash").first()

    def _entries_with_hash(self) -> Iterator[tuple[LedgerEntry, str]]:
        """Yields each entry with the hash that it was stored with."""
        entries = self._rows().where(F.col("kind") != KEY).orderBy("number")
        for row in entries.toLocalIterator():  # a row per request and what became of it
            values: dict[str, Any] = row.asDict()
            stored_hash = values.pop("hash")
            yield LedgerEntry(**values | {"at": values["at"].astimezone(UTC)}), stored_hash


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
