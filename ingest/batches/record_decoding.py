"""Decodes records by the schemas of a registry, each of which is fetched once and kept in the lakehouse."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.changelog.registry.decoded import UNKNOWN_SCHEMA, decoding, frames_in
from ingest.changelog.registry.frames import PrefixIds, SchemaId, schema_id
from ingest.changelog.registry.registered_schema import ReadSchema, RegisteredSchema, read_schema
from ingest.errors import ChangelogUnusable, IngestError, SourceRefused
from ingest.jvm.causes import causes
from ingest.jvm.projection import Projection
from ingest.lakehouse.registered_schemas import RegisteredSchemas
from ingest.sources.registry import SchemaRegistry

_LOG = logging.getLogger(__name__)
_RAISED = "USER_RAISED_EXCEPTION"
"""Spark's condition of an error that a query raises itself."""
_PROPERTY = "source.registry.unreadable"


class RecordDecoding:
    """The decoding of one pipeline's records.

    The frames of the first batch are listed by a job of their own. Later batches are decoded by the schemas known by
    then; one with a new schema fails, and is decoded again after `learns_from`."""

    def __init__(
        self,
        kept: RegisteredSchemas,
        registry: SchemaRegistry,
        prefix_ids: PrefixIds | None = None,
        stops_at_unreadable: bool = True,
    ) -> None:
        """`prefix_ids`: the kind of Apicurio's IDs in front of records. `stops_at_unreadable`: raise an error for a
        record whose schema can't be had or read; else it stays as it is."""
        self._kept = kept
        self._registry = registry
        self._prefix_ids = prefix_ids
        self._stops = stops_at_unreadable
        self._schemas: dict[bytes, ReadSchema | None] = {}
        self._projections: Sequence[Projection] = ()

    def of(self, records: DataFrame) -> DataFrame:
        """Returns `RECORD` rows with decoded keys and values.

        Raises Unreachable while the registry is needed and away, SourceRefused for a schema that can't be had or
        read."""
        if not self._projections:
            self._learn(records)
        for projection in self._projections:
            records = projection.of(records)
        return records

    def learns_from(self, error: BaseException, records: DataFrame) -> bool:
        """Returns True if a query of decoded records failed because it met a new schema, after fetching those that
        `records` have. Raises what `of` raises."""
        raised = (cause for cause in causes(error) if cause.condition == _RAISED)
        if not any(cause.parameters.get("errorMessage", "").startswith(UNKNOWN_SCHEMA) for cause in raised):
            return False
        self._learn(records)
        return True

    def _learn(self, records: DataFrame) -> None:
        """Adds the schemas that the records have."""
        framed = records.select("topic", F.explode(frames_in()).alias("frame"))
        found = framed.groupBy("frame").agg(F.min("topic").alias("topic")).collect()  # a row per schema
        new = {bytes(row["frame"]): row["topic"] for row in found if bytes(row["frame"]) not in self._schemas}
        ids = {frame: schema_id(frame, self._prefix_ids) for frame in new}
        registered = self._registered(ids.values())
        for frame, topic in new.items():
            self._schemas[frame] = self._read(ids[frame], registered.get(ids[frame]), topic)
        self._projections = decoding(self._schemas)

    def _registered(self, ids: Iterable[SchemaId]) -> dict[SchemaId, RegisteredSchema]:
        wanted = sorted(set(ids))
        known = self._kept.find(wanted)
        fetched = {one: self._registry.schema(one) for one in wanted if one not in known}
        found = {one: schema for one, schema in fetched.items() if schema is not None}
        if found:
            self._kept.add(found)
        return known | found

    def _read(self, one: SchemaId, registered: RegisteredSchema | None, topic: str) -> ReadSchema | None:
        problem: IngestError
        if registered is None:
            problem = SourceRefused(
                f"a record of topic {topic} has the schema {one}, which the registry at {self._registry.url} lacks",
                f"correct source.registry (url, prefix_ids), restore the schema, or set {_PROPERTY}: quarantine",
            )
        else:
            try:
                return read_schema(registered)
            except ChangelogUnusable as fault:
                remedy = f"{fault.remedy}, or set {_PROPERTY}: quarantine"
                problem = SourceRefused(f"topic {topic}, schema {one}: {fault.problem}", remedy)
        if self._stops:
            raise problem
        _LOG.warning("%s: its records are quarantined", problem.problem)
        return None
