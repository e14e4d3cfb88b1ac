"""The gate of every command that reads events: it starts only on a whole ledger of erasures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from ingest.cli.waiting import retry_while_away
from ingest.config import Pipeline
from ingest.failures.conversion import converting_errors
from ingest.pipeline.ledger_guard import LedgerGuard


@contextmanager
def guarded(spark: SparkSession, pipeline: Pipeline, as_json: bool = False) -> Iterator[None]:
    """Runs the block if the pipeline's ledger is whole, converts exceptions of libraries in it to IngestErrors, and
    copies entries that it has added to the ledger. Waits for the copy's store if that is away.

    Raises LedgerIncomplete if the ledger lacks entries that its copy or its anchor knows, or some were altered."""
    with converting_errors(pipeline):
        guard = LedgerGuard(spark, pipeline)

        def require_whole(_: object) -> None:
            guard.require_whole()

        retry_while_away(spark, pipeline, as_json, require_whole)
        yield
        guard.save()
