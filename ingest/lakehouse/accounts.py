"""The table of accounts: what became of every event, per merged batch and table; so also how far the merge has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.accounting import CAUGHT_UP, COUNTS, WAITS, Account
from ingest.delta import compaction, delta_table
from ingest.delta.compaction import BackgroundCompaction
from ingest.delta.conflict_retry import DELTA_CONFLICTS, overtaken_by_another_run, retry_on_conflict
from ingest.delta.ready_rows import write_ready_file
from ingest.delta.txn_versions import TxnVersion

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
    ]
)


_SLICE = "slice of "
"""With a mark of accounts: how far the slice goes that is accounted for next under that mark."""

_SETS_ASIDE = "ingest.setsAside"
"""A property of the table of accounts once a table was set aside."""


@dataclass(frozen=True)
class SetAside:
    """A table that can't be merged as it is. `after`: the last capture batch that it holds. `reason`: with the remedy.
    `events`: how many wait in bronze."""

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
    """A share that waits, with the capture batches of its slice."""

    after: int
    through_batch: int
    account: Account


class Accounts:
    """The accounts of one pipeline, in the lakehouse's table of accounts."""

    def __init__(self, spark: SparkSession, path: str, pipeline: str) -> None:
        self._spark = spark
        self._table = delta_table.Table(spark, path)
        self._compaction = BackgroundCompaction(self._table)
        self._pipeline = pipeline
        self._mark = f"accounts of {pipeline}"

    def rows(self) -> DataFrame:
        """Of this pipeline alone."""
        rows = self._table.rows(_SCHEMA)
        # A lakehouse may be older than these columns.
        lacking = {f.name: F.lit(None).cast(f.dataType) for f in _SCHEMA if f.name not in rows.columns}
        return rows.withColumns(lacking).where(F.col("pipeline") == self._pipeline)

    def merged_through(self) -> int:
        """Returns the last capture batch that silver holds; 0 before the first. The log says it, in the mark that each
        commit of these accounts sets; of accounts from before there were such marks the rows are read."""
        if not self._table.exists():
            return 0
        self._table.version()  # Another process may be merging.
        if (reached := self._table.txn_version(self._mark)) > 0:
            return reached
        row = self.rows().agg(F.max("upto_batch").alias("upto")).first()
        return int(row["upto"]) if row and row["upto"] is not None else 0

    def add(
        self, after: int, through_batch: int, accounts: Sequence[Account], waiting: Sequence[WaitingShare] = ()
    ) -> None:
        """The accounts of the capture batches `after` < batch ≤ `through_batch`, in one commit: the batch is merged.
        `waiting`: the shares of tables that are set aside.

        Raises Contended where another run has merged any of them."""
        rows: list[dict[str, Any]] = [asdict(a) for a in accounts]
        rows += [asdict(s.account) | {"standing": WAITS, "code": s.code, "reason": s.reason} for s in waiting]
        self._append(after, through_batch, rows, TxnVersion(self._mark, through_batch, after=after))

    def catch_up(self, after: int, through_batch: int, change: Account) -> None:
        """A table that was set aside has merged its share of these capture batches. `change`: what that changes in the
        accounts. Raises Contended where another run has caught up with any of them."""
        progress = TxnVersion(self._mark_of(change.table), through_batch, after=after)
        self._append(after, through_batch, [asdict(change) | {"standing": CAUGHT_UP}], progress)

    def begun_slice(self, after: int, table: str | None = None) -> int | None:
        """Returns the last batch of the slice after `after` that a run has begun; None where none has. `table`: of a
        slice by which a table that was set aside catches up."""
        through_batch = self._table.txn_version(_SLICE + self._mark_of(table))
        return through_batch if through_batch > after else None

    def begin_slice(self, after: int, through_batch: int, table: str | None = None) -> None:
        """Records the capture batches `after` < batch ≤ `through_batch` as the slice that is merged next. Of tables
        without a key each event counts, so that all runs of the pipeline have to merge the same slices.

        Raises Overtaken where another run has merged any of them or ends the slice at another batch."""
        self._make()
        mark = self._mark_of(table)
        begun = self.begun_slice(after, table)  # Before the accounts: a slice begins after what these hold.
        if begun not in (None, through_batch) or self._table.txn_version(mark) > after:
            raise overtaken_by_another_run("its tables" if table is None else table)
        if begun is None:
            progress = TxnVersion(_SLICE + mark, through_batch, after=after)
            retry_on_conflict(DELTA_CONFLICTS)(self._table.commit, None, txn_version=progress)

    def _mark_of(self, table: str | None) -> str:
        return self._mark if table is None else f"{self._mark}: {table}"

    def _make(self) -> None:
        if not self._table.exists():
            retry_on_conflict(DELTA_CONFLICTS)(self._table.create, _SCHEMA, {})

    def _append(self, after: int, through_batch: int, rows: Sequence[dict[str, Any]], progress: TxnVersion) -> None:
        now = datetime.now(UTC)
        batch = {"pipeline": self._pipeline, "after_batch": after, "upto_batch": through_batch, "committed_at": now}
        self._make()
        file = write_ready_file(self._spark, self._table.path, [batch | row for row in rows], _SCHEMA)
        summary = {"batch": through_batch, "accounts": [{c: row[c] for c in ("table", *COUNTS)} for row in rows]}
        named: dict[str, Any] = {"ready": [file], "user_metadata": summary, "txn_version": progress}
        if any("standing" in row for row in rows) and self._table.property(_SETS_ASIDE) is None:
            # A lakehouse may be older than these columns.
            named |= {"columns": _SCHEMA, "properties": {_SETS_ASIDE: "true"}}
        # Those of other pipelines are in this table too.
        retry_on_conflict(DELTA_CONFLICTS)(self._table.commit, None, **named)

    def set_aside(self) -> dict[str, SetAside]:
        """Returns the tables of which events wait in bronze, by name."""
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
        """Returns the shares of slices that a table which was set aside has yet to merge: the first `most`."""
        if not self._sets_aside():
            return []
        mine = self._waiting().where(F.col("table") == table).orderBy("upto_batch")
        mine = mine if most is None else mine.limit(most)
        return [  # a row per slice
            WaitingSlice(r["after_batch"], r["upto_batch"], Account(table, *(r[c] for c in COUNTS)))
            for r in mine.collect()
        ]

    def total(self, table: str, after: int, through_batch: int) -> Account:
        """Returns what became of a table's events in slices of these capture batches."""
        inside = (F.col("after_batch") >= after) & (F.col("upto_batch") <= through_batch) & (F.col("table") == table)
        row = self.rows().where(inside).agg(*(F.sum(c).alias(c) for c in COUNTS)).first()
        return Account(table, *((row[c] if row else None) or 0 for c in COUNTS))

    def _waiting(self) -> DataFrame:
        """Shares of slices that wait; `done`: the last batch that their table has caught up with."""
        rows = self.rows().where(F.col("standing").isNotNull())
        done = rows.where(F.col("standing") == CAUGHT_UP).groupBy("table").agg(F.max("upto_batch").alias("done"))
        waits = rows.where(F.col("standing") == WAITS).join(F.broadcast(done), "table", "left")
        return waits.withColumn("done", F.coalesce("done", F.lit(0))).where(F.col("upto_batch") > F.col("done"))

    def _sets_aside(self) -> bool:
        """Whether any table ever was set aside. The log says it, so that a start reads no rows."""
        if not self._table.exists():
            return False
        self._table.version()  # Another process may have done so.
        return self._table.property(_SETS_ASIDE) is not None

    def is_unchanged(self) -> bool:
        """Whether nobody else has written since this one did."""
        return self._table.is_unchanged()

    def compact(self) -> bool:
        """Writes small files together, where it is time to. Whether it was."""
        files = compaction.files_due(self._table.files().values(), files_per_size=compaction.FILES_PER_SIZE_UNREAD)
        return self._compaction.compact(
            files, lambda due: self._table.rows_in(due).coalesce(1).sortWithinPartitions("upto_batch")
        )
