"""Collects the values of subjects' personal columns when their erasure is requested, into a sealed file for each
request. The certificate's scan searches for them: nobody can know every former value of a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.config import Pipeline
from ingest.erasure.places.place import REQUEST
from ingest.erasure.table_events import COLUMN, KIND, VALUE
from ingest.loop.table_faults import FAULTS, FaultyTables
from ingest.proof.needles.collected import CollectedNeedles, CollectedValue
from ingest.proof.needles.sealed_file import SealedFile, destroy_older

_TABLE = "_ingest_table"
_UNSEARCHED = "the table could not be searched when the erasure was requested"
_UNREAD = "its values could not be read when the erasure was requested"
_ENCRYPTED = "its values are encrypted under keys that the erasure destroys"


def collects_values(pipeline: Pipeline) -> bool:
    """Returns True if requests collect the values of their subjects."""
    return pipeline.privacy is not None and pipeline.privacy.needle_days > 0


def sealed_file(pipeline: Pipeline, request: str) -> SealedFile:
    """Returns the sealed file of a request, which need not exist."""
    assert pipeline.privacy is not None, "only a pipeline with `privacy` has requests"
    return SealedFile(pipeline.privacy.needles, pipeline.name, request)


def seal_needles(
    pipeline: Pipeline, requests: Sequence[str], values: Mapping[str, Sequence[DataFrame]], faulty: FaultyTables
) -> None:
    """Writes the sealed file of each request, with its `values` (by table: `REQUEST`, `COLUMN`, `KIND`, `VALUE`), in
    one job for all. The distinct values are in memory. `faulty`: the tables that could not be searched. Raises
    StorageRefused."""
    frames = [frame.withColumn(_TABLE, F.lit(table)) for table, found in values.items() for frame in found]
    by_request: Mapping[str, list[CollectedValue]] = {}
    unread = FaultyTables("read")
    try:
        by_request = _by_request(frames)
    except FAULTS:
        by_request = _table_by_table(values, unread)
    reasons = dict.fromkeys(faulty.reasons, _UNSEARCHED) | dict.fromkeys(unread.reasons, _UNREAD)
    left = tuple(_uncollected(pipeline, reasons))
    for request in requests:
        found = CollectedNeedles(tuple(by_request.get(request, ())), left)
        file = sealed_file(pipeline, request)
        before = file.read()
        # A request of the topic that was not written into the ledger is made once more.
        file.write((found if before is None else CollectedNeedles.from_bytes(before).union(found)).to_bytes())


def _by_request(frames: Sequence[DataFrame]) -> dict[str, list[CollectedValue]]:
    found: dict[str, list[CollectedValue]] = {}
    if frames:
        rows = reduce(DataFrame.unionByName, frames).select(REQUEST, _TABLE, COLUMN, KIND, VALUE).distinct()
        for request, *value in rows.collect():  # the distinct values of the subjects
            found.setdefault(request, []).append(CollectedValue(*value))
    return found


def _table_by_table(values: Mapping[str, Sequence[DataFrame]], unread: FaultyTables) -> dict[str, list[CollectedValue]]:
    """Returns what `_by_request` returns. `unread`: takes the tables of which no values can be read."""
    found: dict[str, list[CollectedValue]] = {}
    for table, frames in values.items():
        try:
            of_table = _by_request([frame.withColumn(_TABLE, F.lit(table)) for frame in frames])
        except FAULTS as error:
            unread.failed(table, error)
            continue
        for request, more in of_table.items():
            found.setdefault(request, []).extend(more)
    return found


def _uncollected(pipeline: Pipeline, reasons: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields the personal columns whose values were not collected, as TABLE.COLUMN, with the reason. `reasons`: of
    tables of which none were."""
    for table, settings in pipeline.tables.items():
        if settings.subject is not None:
            for column in sorted(settings.collected_columns):
                reason = reasons.get(table, _ENCRYPTED if column in settings.shred else None)
                if reason is not None:
                    yield f"{table}.{column}", reason


def destroy_outdated(pipeline: Pipeline) -> int:
    """Destroys the sealed files that are older than the pipeline's file lets them be. Returns their number."""
    privacy = pipeline.privacy
    if privacy is None:
        return 0
    return destroy_older(privacy.needles, pipeline.name, datetime.now(UTC) - timedelta(days=privacy.needle_days))
