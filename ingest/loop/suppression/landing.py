"""Empties the events of erased subjects before they are stored, in every bronze: at or below a cutoff, nothing of them
but their coordinates gets into a file. What a batch can't tell yet, the merge suppresses and the next erasure empties.
"""

from __future__ import annotations

import logging
from functools import partial, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batches.group_stats import Group
from ingest.batches.rules import Rules
from ingest.changelog.change import EVENT_ID
from ingest.changelog.envelope import emptied_event
from ingest.lakehouse.bronze import COORDINATES, Bronze
from ingest.lakehouse.bronze.arriving import BronzeWithArriving
from ingest.lakehouse.quarantine import Quarantine
from ingest.loop.slices import Slices
from ingest.loop.suppression.suppress import Suppression
from ingest.loop.table_faults import FaultyTables
from ingest.loop.table_schemas import TableSchemas
from ingest.names import Lakehouse
from ingest.reconcile import table_state
from ingest.spark.checkpoints import checkpoint

_REQUEST = "_ingest_request"
_log = logging.getLogger(__name__)


class Landing:
    """The landing of the events of one pipeline. It reads no event before the first request."""

    def __init__(self, spark: SparkSession, pipeline: str, lakehouse: Lakehouse, rules: Rules) -> None:
        self._spark = spark
        self._rules = rules
        self._table_schemas = TableSchemas(spark, pipeline, lakehouse, rules)
        self._faulty = FaultyTables("searched for events of erased subjects")
        self._suppression = Suppression(
            spark,
            pipeline,
            rules,
            self._table_schemas,
            partial(table_state, spark, lakehouse, pipeline),
            Quarantine(spark, lakehouse.quarantine, pipeline, rules.tuning),
        )

    @property
    def is_needed(self) -> bool:
        """Returns whether any erasure has been requested."""
        return self._suppression.has_requests

    def emptied(self, events: DataFrame, bronze: Bronze, batch: int, size: int) -> tuple[DataFrame, list[Group] | None]:
        """Returns the events of a batch with those of erased lives emptied. And the statistics of all, if they are
        known by now: not where there was nothing to look for, and not after events were emptied. `bronze`: where the
        batch goes. `size`: its number of events, at most."""
        if not self.is_needed:
            return events, None
        rules, arriving = self._rules, checkpoint(events)
        with_arriving = BronzeWithArriving(
            self._spark, bronze.folder, arriving, batch, size, rules.epochs, rules.names, rules.tuning
        )
        slices = Slices(with_arriving, rules, self._table_schemas, max(size, 1))
        groups = slices.group_stats(batch - 1, batch, batch)
        if not self._suppression.may_suppress(groups):
            return arriving, groups
        # A merge may have changed tables since, perhaps in another process.
        self._table_schemas.revisions.refresh()
        read = slices.read(batch - 1, batch, groups, repeated=True)
        found = self._suppression.events_before_cutoff(read.batches, slices.schemas, self._faulty.failed)
        if not found:
            return arriving, groups
        places = [F.col(EVENT_ID)[name].alias(name) for name in COORDINATES]
        erased = reduce(DataFrame.unionByName, [frame.select(*places, "request") for frame in found])
        erased = checkpoint(erased.groupBy(*COORDINATES).agg(F.min("request").alias(_REQUEST)))
        count = erased.count()
        if not count:
            return arriving, groups
        _log.info("%d events of erased subjects are stored without their content", count)
        values = emptied_event(F.col(_REQUEST))
        joined = arriving.join(F.broadcast(erased), COORDINATES, "left")
        is_erased = F.col(_REQUEST).isNotNull()
        columns = [
            F.when(is_erased, values[name]).otherwise(F.col(name)).alias(name) if name in values else F.col(name)
            for name in events.columns
        ]
        return joined.select(*columns), None
