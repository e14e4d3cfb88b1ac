"""The table of accounts: the number of events by outcome, per slice and table; its log also tells how far the merge
is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.accounting import CAUGHT_UP, COUNTS, WAITS, Account
from ingest.delta import compaction, delta_table
from ingest.delta.conflict_retry import DELTA_CONFLICTS, overtaken_by_another_run, retry_on_conflict
from ingest.delta.ready_rows import write_ready_file
from ingest.delta.txn_versions import TxnVersion
from ingest.tuning import DEFAULT_TUNING, Tuning

_SCHEMA = T.StructType(
    [
        T.StructField("pipeline", T.StringType()),
        T.StructField("after_batch", T.LongType()),
        T.StructField("upto_batch", T.LongType()),
        T.StructField("committed_at", T.TimestampType()),
        T.StructField("table", T.StringType()),
        *(T.StructField(c, T.LongType()) for c in COUNTS),
        T.StructField("standing", T.StringType()),
        T.StructField("code", T.StringType()),
        T.StructField("reason", T.StringType()),
        T.StructField("ignored", T.StringType()),
    ]
)


_SLICE = "slice of "
"""Prefix of an application of the accounts, whose version is the last batch of the slice that is merged next."""

_SETS_ASIDE = "ingest.setsAside"
"""A property of the table of accounts, set once any table was set aside."""


@dataclass(frozen=True)
class SetAside:
    """A table that can't be merged for now. `after`: the last capture batch that is merged into it. `reason`: with the
    remedy. `events`: number of events that wait in bronze."""

    table: str
    after: int
    code: str
    reason: str
    since: datetime
    events: int


@dataclass(frozen=True)
class WaitingShare:
    """A table's share of a slice that waits in bronze, and why."""

    account: Account
    code: str
    reason: str


@dataclass(frozen=True)
class WaitingSlice:
    """A waiting share with the capture batches of its slice, `after` < batch ≤ `through_batch`."""

    after: int
    through_batch: int
    account: Account


class Accounts:
    """The accounts of one pipeline, in the lakehouse's table of accounts."""

    def __init__(self, spark: SparkSession, path: str, pipeline: str, tuning: Tuning = DEFAULT_TUNING) -> None:
        self._spark = spark
        self._table = delta_table.Table(spark, path, tuning)
        self._pipeline = pipeline
        self._application = f"accounts of {pipeline}"

    def rows(self) -> DataFrame:
        """Returns the accounts of this pipeline."""
        rows = self._table.rows(_SCHEMA)
        # The table may be older than some columns.
        missing = {f.name: F.lit(None).cast(f.dataType) for f in _SCHEMA if f.name not in rows.columns}
        return rows.withColumns(missing).where(F.col("pipeline") == self._pipeline)

    def merged_through(self) -> int:
        """Returns the last capture batch that is merged; 0 before the first. It is the `TxnVersion` of these accounts,
        or is read from the rows of accounts that are older than those."""
        if not self._table.exists():
            return 0
        self._table.version()  # Another process may be merging.
        if (reached := self._table.txn_version(self._application)) > 0:
            return reached
        row = self.rows().agg(F.max("upto_batch").alias("through_batch")).first()
        return int(row["through_batch"]) if row and row["through_batch"] is not None else 0

    def add(
        self, after: int, through_batch: int, accounts: Sequence[Account], waiting: Sequence[WaitingShare] = ()
    ) -> None:
        """Adds the accounts of the capture batches `after` < batch ≤ `through_batch`, which are merged with this
        commit. `waiting`: the shares of tables that are set aside.

        Raises Contended if another run has merged any of these batches."""
        rows = [_row(a) for a in accounts]
        rows += [_row(s.account) | {"standing": WAITS, "code": s.code, "reason": s.reason} for s in waiting]
        self._append(after, through_batch, rows, TxnVersion(self._application, through_batch, after=after))

    def catch_up(self, after: int, through_batch: int, change: Account) -> None:
        """Records that a table that was set aside has merged its share of these capture batches. `change`: the
        correction of the accounts. Raises Contended if another run has caught up with any of these batches."""
        version = TxnVersion(self._application_of(change.table), through_batch, after=after)
        self._append(after, through_batch, [_row(change) | {"standing": CAUGHT_UP}], version)

    def begun_slice(self, after: int, table: str | None = None) -> int | None:
        """Returns the last batch of the slice after `after` that a run has begun; None if none has. `table`: the slice
        is one by which this table catches up."""
        through_batch = self._table.txn_version(_SLICE + self._application_of(table))
        return through_batch if through_batch > after else None

    def begin_slice(self, after: int, through_batch: int, table: str | None = None) -> None:
        """Records the capture batches `after` < batch ≤ `through_batch` as the slice that is merged next. All runs
        of the pipeline have to merge the same slices, because in tables without a key every event counts.

        Raises Overtaken if another run has merged any of them or ends the slice at another batch."""
        self._create()
        application = self._application_of(table)
        begun = self.begun_slice(after, table)  # Before the accounts: a slice begins after what these hold.
        if begun not in (None, through_batch) or self._table.txn_version(application) > after:
            raise overtaken_by_another_run("its tables" if table is None else table)
        if begun is None:
            version = TxnVersion(_SLICE + application, through_batch, after=after)
            retry_on_conflict(DELTA_CONFLICTS)(self._table.commit, None, txn_version=version)

    def _application_of(self, table: str | None) -> str:
        return self._application if table is None else f"{self._application}: {table}"

    def _create(self) -> None:
        if not self._table.exists():
            retry_on_conflict(DELTA_CONFLICTS)(self._table.create, _SCHEMA, {})

    def _append(self, after: int, through_batch: int, rows: Sequence[dict[str, Any]], version: TxnVersion) -> None:
        now = datetime.now(UTC)
        batch = {"pipeline": self._pipeline, "after_batch": after, "upto_batch": through_batch, "committed_at": now}
        self._create()
        file = write_ready_file(self._spark, self._table.path, [batch | row for row in rows], _SCHEMA)
        summary = {"batch": through_batch, "accounts": [{c: row[c] for c in ("table", *COUNTS)} for row in rows]}
        options: dict[str, Any] = {"ready": [file], "user_metadata": summary, "txn_version": version}
        # The table may be older than some columns.
        if any("standing" in row for row in rows) and self._table.property(_SETS_ASIDE) is None:
            options |= {"columns": _SCHEMA, "properties": {_SETS_ASIDE: "true"}}
        elif any(row["ignored"] for row in rows) and "ignored" not in self._table.rows().columns:
            options |= {"columns": _SCHEMA}
        # Other pipelines write to this table too.
        retry_on_conflict(DELTA_CONFLICTS)(self._table.commit, None, **options)

    def ignored(self, table: str) -> dict[str, int]:
        """Returns changes of a table → the number of events that they had no effect on."""
        if not self._table.exists():
            return {}
        counts = F.from_json("ignored", "map<string,bigint>")
        found = self.rows().where(F.col("table") == table).select(F.explode(counts).alias("change", "events"))
        # A row per change.
        return {
            r["change"]: r["events"] for r in found.groupBy("change").agg(F.sum("events").alias("events")).collect()
        }

    def set_aside(self) -> dict[str, SetAside]:
        """Returns the tables that are set aside, by name."""
        if not self._sets_aside():
            return {}
        waiting = (
            self._waiting()
            .groupBy("table")
            .agg(
                F.min(F.greatest("after_batch", "done")).alias("after"),
                F.min("committed_at").alias("since"),
                F.max_by(F.struct("code", "reason"), "upto_batch").alias("last"),
                F.sum("quarantined").alias("events"),
            )
        )
        return {
            r["table"]: SetAside(
                r["table"], r["after"], r["last"]["code"], r["last"]["reason"], r["since"].astimezone(UTC), r["events"]
            )
            for r in waiting.collect()  # a row per table
        }

    def waiting(self, table: str, most: int | None = None) -> list[WaitingSlice]:
        """Returns the waiting shares of a table that is set aside, or the first `most` of them, by slice."""
        if not self._sets_aside():
            return []
        shares = self._waiting().where(F.col("table") == table).orderBy("upto_batch")
        shares = shares if most is None else shares.limit(most)
        return [  # a row per slice
            WaitingSlice(r["after_batch"], r["upto_batch"], Account(table, *(r[c] for c in COUNTS)))
            for r in shares.collect()
        ]

    def total(self, table: str, after: int, through_batch: int) -> Account:
        """Returns the sum of a table's accounts in the slices of these capture batches."""
        inside = (F.col("after_batch") >= after) & (F.col("upto_batch") <= through_batch) & (F.col("table") == table)
        row = self.rows().where(inside).agg(*(F.sum(c).alias(c) for c in COUNTS)).first()
        counts: dict[str, Any] = {c: (row[c] if row else None) or 0 for c in COUNTS}
        return Account(table, **counts)

    def _waiting(self) -> DataFrame:
        """Returns the waiting shares with `done`: the last batch with which their table has caught up."""
        rows = self.rows().where(F.col("standing").isNotNull())
        done = rows.where(F.col("standing") == CAUGHT_UP).groupBy("table").agg(F.max("upto_batch").alias("done"))
        waits = rows.where(F.col("standing") == WAITS).join(F.broadcast(done), "table", "left")
        return waits.withColumn("done", F.coalesce("done", F.lit(0))).where(F.col("upto_batch") > F.col("done"))

    def _sets_aside(self) -> bool:
        """Returns True if any table was ever set aside: from the log, so that a start reads no rows."""
        if not self._table.exists():
            return False
        self._table.version()  # Another process may have done so.
        return self._table.property(_SETS_ASIDE) is not None

    def is_unchanged(self) -> bool:
        """Returns True if no other writer has committed since this one did."""
        return self._table.is_unchanged()

    def compact(self) -> bool:
        """Compacts small files if that is due. Returns True if it was due."""
        files_per_size = self._table.tuning.append_only_files_per_size
        files = compaction.files_due(self._table.files().values(), files_per_size=files_per_size)
        return compaction.compact(
            self._table, files, lambda due: self._table.rows_in(due).coalesce(1).sortWithinPartitions("upto_batch")
        )


def _row(account: Account) -> dict[str, Any]:
    """Returns the columns of an account."""
    ignored = {change: int(events) for change, events in account.ignored}
    return {
        "table": account.table,
        **{c: getattr(account, c) for c in COUNTS},
        "ignored": json.dumps(ignored, ensure_ascii=False) if ignored else None,
    }
