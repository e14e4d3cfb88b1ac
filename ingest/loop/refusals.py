"""Quarantines the events of a batch that can't be merged into their table."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.group_stats import CHANGE, Group, belongs_to
from ingest.batches.table_batch import TableBatch
from ingest.batches.table_owner import OTHER_DATABASE
from ingest.changelog.change import CODE, EVENT_ID, REASON
from ingest.changelog.refusal import NO_KEY
from ingest.evolution.policies import ColumnConflict
from ingest.lakehouse.quarantine import Quarantine
from ingest.loop.table_schemas import Refused


class Refusals:
    """Adds events to the quarantine, each with its table, a code and a reason."""

    def __init__(self, quarantine: Quarantine) -> None:
        self._quarantine = quarantine

    def of_other_databases(self, batch: TableBatch, foreign: DataFrame) -> None:
        """Quarantines events of another server or database, which have their `reason` already."""
        self._add(batch, foreign.withColumn("code", F.lit(OTHER_DATABASE)))

    def of_changes(self, batch: TableBatch, refused: DataFrame) -> None:
        """Quarantines the events of refused changes, each with the `CODE` and `REASON` of its change."""
        reasons = refused.select(F.col(f"{EVENT_ID}.*"), F.col(CODE).alias("code"), F.col(REASON).alias("reason"))
        self._add(batch, batch.events.join(F.broadcast(reasons), ["topic", "partition", "offset"]))

    def of_groups(self, batch: TableBatch, refused: Refused) -> int:
        """Quarantines the groups that don't fit into their table. Returns the number of their events."""
        for group, conflicts in refused.items():
            self._add_conflicting(batch, group, conflicts)
        return sum(group.count for group in refused)

    def of_all_changes(self, batch: TableBatch, refused: Refused, reason: str) -> int:
        """Quarantines all changes of a table that has no known key, or none of its columns. Returns their number.
        `refused`: groups that have reasons of their own. `reason`: of all others."""
        changed = [group for group in batch.groups if group.kind == CHANGE]
        for group in changed:
            if group in refused:
                self._add_conflicting(batch, group, refused[group])
            else:
                self._add_group(batch, group, NO_KEY, reason)
        return sum(group.count for group in changed)

    def _add_conflicting(self, batch: TableBatch, group: Group, conflicts: Sequence[ColumnConflict]) -> None:
        self._add_group(batch, group, conflicts[0].code, "; ".join(str(one) for one in conflicts))

    def _add_group(self, batch: TableBatch, group: Group, code: str, reason: str) -> None:
        events = batch.events.where(belongs_to(group))
        self._add(batch, events.withColumn("code", F.lit(code)).withColumn("reason", F.lit(reason)))

    def _add(self, batch: TableBatch, events: DataFrame) -> None:
        self._quarantine.add(events.withColumn("table", F.lit(batch.table)))
