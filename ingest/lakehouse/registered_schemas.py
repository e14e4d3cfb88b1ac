"""The schemas that a registry gave for a pipeline's records (`system/registered-schemas`).

A schema never changes under its ID, so what is here is not fetched again: records of a sink connector's archive, and of
topics that are captured anew, are decoded without the registry. The rows hold names, types and defaults of columns, and
nothing of a record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.registry.frames import Lookup, SchemaId
from ingest.changelog.registry.registered_schema import Kind, RegisteredSchema
from ingest.delta import delta_table
from ingest.spark.local_rows import local_rows

_REFERENCE = T.StructType([T.StructField("name", T.StringType()), T.StructField("text", T.StringType())])
_SCHEMA = T.StructType(
    [
        T.StructField("pipeline", T.StringType()),
        T.StructField("lookup", T.StringType()),
        T.StructField("id", T.StringType()),
        T.StructField("kind", T.StringType()),
        T.StructField("text", T.StringType()),
        T.StructField("references", T.ArrayType(_REFERENCE)),
        T.StructField("fetched_at", T.TimestampType()),
    ]
)


class RegisteredSchemas:
    """The schemas of one pipeline's records. A schema that two runs fetch at once is there twice."""

    def __init__(self, spark: SparkSession, path: str, pipeline: str) -> None:
        self._spark = spark
        self._table = delta_table.Table(spark, path)
        self._pipeline = pipeline

    def find(self, ids: Collection[SchemaId]) -> dict[SchemaId, RegisteredSchema]:
        """Returns the schemas among these that are known."""
        if not ids or not self._table.exists():
            return {}
        rows = self._table.rows().where(
            (F.col("pipeline") == self._pipeline) & F.col("id").isin(*{i.value for i in ids})
        )
        found = {}
        for row in rows.collect():  # a row per schema
            references = tuple((one["name"], one["text"]) for one in row["references"] or ())
            schema = RegisteredSchema(Kind(row["kind"]), row["text"], references)
            found[SchemaId(Lookup(row["lookup"]), row["id"])] = schema
        return {schema_id: schema for schema_id, schema in found.items() if schema_id in ids}

    def add(self, schemas: Mapping[SchemaId, RegisteredSchema]) -> None:
        """Appends schemas, in one commit."""
        now = datetime.now(UTC)
        rows = [
            {
                "pipeline": self._pipeline,
                "lookup": schema_id.lookup.value,
                "id": schema_id.value,
                "kind": schema.kind.value,
                "text": schema.text,
                "references": [{"name": name, "text": text} for name, text in schema.references],
                "fetched_at": now,
            }
            for schema_id, schema in schemas.items()
        ]
        self._table.commit(local_rows(self._spark, rows, _SCHEMA), properties=delta_table.NO_STATISTICS, is_small=True)
