"""The ledger: who asked for what to be erased, which keys that concerns, and what has become of it. Append-only.

Entries are numbered, and each holds the hash of the one before: what is changed, missing or put elsewhere shows. Beside
an entry stand rows of `KEY`: hashes of the keys that it fences, a subject's own and those of rows that lead to it. The
entry holds their digest. Nothing here names anybody without the secret keys (`key_file`).
"""

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
from ingest.delta.conflict_retry import again
from ingest.delta.txn_versions import Progress
from ingest.spark.local_rows import local_rows
from ingest.suppression.cutoff import CutOff

ASKED, FOUND, STATE, KEY = "asked", "found", "state", "key"
_BEFORE_THE_FIRST = ""
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
"""Keys that a request fences."""


@dataclass(frozen=True)
class Entry:
    """`kind`: a request is `ASKED` (with its `subject`, reason and cut-off), rows that lead to it are `FOUND` later.
    All that were asked up to the entry `upto` have come to a `STATE` in a `place`, of which `evidence` is a hash.
    `keys`: how many it fences."""

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
    previous: str = _BEFORE_THE_FIRST

    @property
    def hash(self) -> str:
        """Of everything in it."""
        said = {f.name: getattr(self, f.name) for f in fields(self)} | {"at": self.at.astimezone(UTC).isoformat()}
        return hashlib.sha256(json.dumps(said, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


@dataclass(frozen=True)
class Fault:
    """What is wrong with the ledger, and at which entry."""

    number: int
    problem: str


class Ledger:
    """Of one pipeline."""

    def __init__(self, spark: SparkSession, path: str, pipeline: str) -> None:
        self._spark = spark
        self._table = delta_table.Table(spark, path)
        self._pipeline = pipeline

    def version(self) -> int:
        """Grows with whatever is written; -1 before the first request of any pipeline."""
        return self._table.version() if self._table.exists() else -1

    def entries(self) -> Iterator[Entry]:
        """By number."""
        for entry, _ in self._told():
            yield entry

    def asked(self) -> dict[str, Entry]:
        """request → what was asked."""
        return {e.request: e for e in self.entries() if e.kind == ASKED}

    def keys(self, number: int | None = None) -> DataFrame:
        """All `KEYS` that are fenced, or those of one entry."""
        every = self._rows().where(F.col("kind") == KEY)
        return (every if number is None else every.where(F.col("number") == number)).select(*KEYS.names)

    def keys_after(self, number: int) -> DataFrame:
        """Returns the `KEYS` that are fenced by entries after that number."""
        every = self._rows().where((F.col("kind") == KEY) & (F.col("number") > number))
        return every.select(*KEYS.names)

    def last_number(self) -> int:
        """Returns the number of the last entry; 0 before the first."""
        last = self._last()
        return 0 if last is None else int(last["number"])

    def append(self, entries: Sequence[Entry], keys: DataFrame | None = None) -> list[Entry]:
        """In one commit, as they stand in the ledger then. `keys`: `KEYS` of their requests, one entry for each."""
        fenced = None if keys is None else keys.select(*KEYS.names).distinct()
        digests = {} if fenced is None else _digests(fenced, "request")
        counted = [
            replace(e, pipeline=self._pipeline, keys=digests[e.request][0], keys_digest=digests[e.request][1])
            if e.request in digests
            else replace(e, pipeline=self._pipeline)
            for e in entries
        ]
        written: list[Entry] = again()(self._append, counted, fenced)
        return written

    def _append(self, entries: Sequence[Entry], keys: DataFrame | None) -> list[Entry]:
        last = self._last()
        number, previous = (last["number"], last["hash"]) if last is not None else (0, _BEFORE_THE_FIRST)
        chained = []
        for entry in entries:
            number += 1
            chained.append(replace(entry, number=number, previous=previous))
            previous = chained[-1].hash
        rows = [{f.name: getattr(e, f.name) for f in fields(e)} | {"hash": e.hash} for e in chained]
        frame = local_rows(self._spark, rows, _SCHEMA)
        if keys is not None:
            numbers = F.broadcast(frame.select("request", "pipeline", "number"))
            told = keys.join(numbers, "request").withColumn("kind", F.lit(KEY))
            nothing = {f.name: F.lit(None).cast(f.dataType) for f in _SCHEMA if f.name not in told.columns}
            frame = frame.unionByName(told.withColumns(nothing))
        progress = Progress(f"ledger of {self._pipeline}", number)
        self._table.commit(frame.select(*_SCHEMA.names), progress=progress, new=delta_table.NO_STATISTICS)
        return chained

    def verify(self) -> Iterator[Fault]:
        """What was changed, is missing or has come in between; nothing where the ledger is as it was written."""
        digests = _digests(self._rows().where(F.col("kind") == KEY), "number")
        number, previous = 0, _BEFORE_THE_FIRST
        for entry, told in self._told():
            if entry.number != number + 1:
                yield Fault(entry.number, f"follows entry {number}: what stood between is gone, or it was doubled")
            elif entry.previous != previous:
                yield Fault(entry.number, f"does not follow from entry {number} as that is now")
            if entry.hash != told:
                yield Fault(entry.number, "was changed")
            if digests.pop(entry.number, (0, None)) != (entry.keys, entry.keys_digest):
                yield Fault(entry.number, "the keys that it fences are not those that it was written with")
            number, previous = entry.number, told
        yield from (Fault(orphan, "keys are fenced by an entry that is not there") for orphan in sorted(digests))
        if self._table.exists() and (reached := self._table.reached(f"ledger of {self._pipeline}")) > number:
            yield Fault(reached, f"is gone: the ledger ends at entry {number}")

    def _rows(self) -> DataFrame:
        return self._table.rows(_SCHEMA).where(F.col("pipeline") == self._pipeline)

    def _last(self) -> Row | None:
        entries = self._rows().where(F.col("kind") != KEY)
        return entries.orderBy(F.desc("number")).select("number", "hash").first()

    def _told(self) -> Iterator[tuple[Entry, str]]:
        """Each entry, and the hash that it was written with."""
        entries = self._rows().where(F.col("kind") != KEY).orderBy("number")
        for row in entries.toLocalIterator():  # a row per request and what became of it
            told: dict[str, Any] = row.asDict()
            written = told.pop("hash")
            yield Entry(**told | {"at": told["at"].astimezone(UTC)}), written


def newest(entries: Iterable[Entry], place: str) -> int:
    """The number of the last state of a place; 0 where it has none."""
    return max((e.number for e in entries if e.kind == STATE and e.place == place), default=0)


def cut_offs(entries: Iterable[Entry]) -> dict[str, CutOff]:
    """request → up to where its subject's old life goes."""
    return {e.request: CutOff.parsed(e.cut_off) for e in entries if e.cut_off is not None}


def _digests(keys: DataFrame, by: str) -> dict[Any, tuple[int, str]]:
    """How many keys each entry or request has, and a hash of all of them."""
    said = F.concat_ws(":", "table", F.col("key_version").cast("string"), "key_hash")
    whole = F.sha2(F.array_join(F.sort_array(F.collect_list(said)), "\n"), 256)
    found = keys.groupBy(by).agg(F.count(F.lit(1)).alias("count"), whole.alias("digest")).collect()  # a row a request
    return {row[by]: (row["count"], row["digest"]) for row in found}
