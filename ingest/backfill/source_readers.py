"""The writers of a pipeline's bronze tables: its stream, and each backfill from another source, with a bronze of its
own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, SparkSession

from ingest.backfill.backfill import event_filter_of
from ingest.batches.rules import Rules
from ingest.config import Pipeline
from ingest.lakehouse.backfills import Backfills
from ingest.lakehouse.bronze import Bronze
from ingest.pipeline.composition import rules_of

DUMP, MASK = "dump", "mask"
"""Sources of backfills whose events have no coordinates in a topic: the rows of a dump, and the masked rows that an
erasure leaves."""
_FROM_TOPICS = ("archive", "kafka")


@dataclass(frozen=True)
class SourceReader:
    """One that captures events of a pipeline. `writer`: the name in its accounts. `path`: of its bronze. `columns`:
    table → declared column types, for events without a schema. `from_topics`: True if its coordinates are those of the
    changelog's topics."""

    writer: str
    path: str
    columns: Mapping[str, Mapping[str, str]]
    from_topics: bool = True
    event_filter: Column | None = None
    """The filter of the events of its bronze that it merges; None for all."""

    def bronze(self, spark: SparkSession, rules: Rules) -> Bronze:
        """Returns the bronze table that it writes to."""
        return Bronze(spark, self.path, rules.epochs, rules.names, rules.tuning)


def source_readers(spark: SparkSession, pipeline: Pipeline) -> list[SourceReader]:
    """Returns the readers of a pipeline, the stream first."""
    layout, declared = pipeline.layout, dict(rules_of(pipeline).columns)
    found = [SourceReader(pipeline.name, layout.bronze(pipeline.name), declared)]
    for backfill in Backfills(spark, layout.backfills, pipeline.name).all():
        if (source := backfill.request["source"]) in (*_FROM_TOPICS, DUMP, MASK):
            columns = declared | backfill.request.get("types", {})
            path = layout.backfilled(pipeline.name, backfill.number)
            event_filter = event_filter_of(backfill.request)
            found.append(SourceReader(backfill.writer, path, columns, source in _FROM_TOPICS, event_filter))
    return found
