"""Archives of sink connectors: lists their objects and reads them as raw records."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from ingest.archive.connect.contents import PARQUET, ObjectContents
from ingest.archive.connect.json_types import footer_schema
from ingest.archive.connect.listing import ConnectorObject, TopicSelection, list_objects, with_end
from ingest.archive.layout import Damage, OnChecked
from ingest.archive.reading import ObjectReader, objects_frame
from ingest.archive.record_lookup import locate_records
from ingest.archive.store import ObjectMissing, ObjectStore
from ingest.changelog.envelope import RECORD
from ingest.errors import ConfigError, SourceRefused
from ingest.spark.arrow_tasks import map_in_arrow

_REMEDY = (
    "restore the object from a version or a copy of the bucket, or take these events from Kafka; a topic that leaves "
    "offsets out needs records that tell theirs (layout aiven, gaps: ignore)"
)
_UNCHECKED = (
    "objects that are missing before the first or after the last one of a topic partition, for nothing names them",
    "what stands in a line, for no hash was written",
)
_KNOWN_ENDS = T.StructType([T.StructField("key", T.StringType()), T.StructField("last", T.LongType())])
_SCHEMAS = T.StructType([T.StructField("key", T.StringType()), T.StructField("schema", T.StringType())])
_PLACE_FIELDS = [f for f in RECORD.fields if f.name in ("topic", "partition", "offset", "timestamp")]
_KEY_AND_HEADERS = [T.StructField("key", T.BinaryType()), T.StructField("headers", T.BinaryType())]
_HEADERS = "array<struct<key: string, value: string>>"
_UNKNOWN_END = (1 << 63) - 1
_WITH_NULLS = {"ignoreNullFields": "false"}


class ConnectorArchive:
    """The archive that the S3 sink connector of `connector` ("confluent" or "aiven") wrote of a pipeline's topics."""

    def __init__(
        self,
        spark: SparkSession,
        store: ObjectStore,
        connector: str,
        selection: TopicSelection,
        gaps: bool,
        timed: bool,
    ) -> None:
        """`gaps`: offsets may be missing. `timed`: records' timestamps are needed.

        Raises ConfigError where they are needed and the connector doesn't write them."""
        if timed and connector == "confluent":
            raise ConfigError(
                "the sink connector of confluent writes no timestamps of records",
                "leave out what needs them: a window (--from, --to), source: {epochs: ...}",
            )
        self._spark = spark
        self._store = store
        self._connector = connector
        self._topics = selection
        contents = ObjectContents(store, connector, selection, gaps, timed)
        self._reader = ObjectReader(ConnectorObject, contents.open_object, _REMEDY)
        left_out = "offsets that no object holds: they may have been written or not" if gaps else None
        self.unchecked: Sequence[str] = (*_UNCHECKED, *([left_out] if left_out else []))

    def objects(self) -> Sequence[ConnectorObject]:
        """Returns the objects by topic, partition and offset. The last one of each partition is read to find its end.

        Raises SourceRefused where there are no objects."""
        found = list_objects(self._store.listed(), self._connector, self._topics)
        if not found:
            raise SourceRefused(
                f"{self._store.uri} holds no object of the pipeline's topics",
                "see whether the archive's uri is the folder in which the connector writes",
            )
        ends = self._ends([o for o in found if o.next_offset < 0])
        return [with_end(o, ends.get(o.key, o.first_offset)) if o.next_offset < 0 else o for o in found]

    def refuse_to_erase(self, coordinates: DataFrame) -> None:
        """Raises ConfigError where an object may hold a record of `coordinates` (`topic`, `partition`, `offset`,
        `request`): ingest does not change objects that a connector wrote."""
        # The last object of a partition has no known end.
        found = [
            replace(o, last_offset=_UNKNOWN_END) if o.next_offset < 0 else o
            for o in list_objects(self._store.listed(), self._connector, self._topics)
        ]
        if not found:
            return
        holding = (
            locate_records(objects_frame(self._spark, ConnectorObject, found), coordinates)
            .select("key")
            .distinct()
            .count()
        )
        if holding:
            raise ConfigError(
                f"{holding} objects in {self._store.uri} may hold records that are to be erased: the sink connector of "
                f"{self._connector} writes them, and ingest only reads them",
                "ask the connector's operator to remove these records in every version of the objects, and scan the "
                "bucket afterwards (ingest scan)",
            )

    def records(self, spark: SparkSession, objects: Sequence[ConnectorObject]) -> DataFrame:
        schemas = self._schemas(spark, objects)
        frames = []
        for text in sorted(set(schemas.values())):
            row_schema = (
                None if not text else from_arrow_schema(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))))
            )
            body = T.StructField("line", T.BinaryType()) if row_schema is None else T.StructField("row", row_schema)
            same_schema = [o for o in objects if schemas[o.key] == text]
            rows = self._reader.rows(spark, same_schema, T.StructType([*_PLACE_FIELDS, *_KEY_AND_HEADERS, body]))
            frames.append(rows.select(*self._columns(row_schema)))
        return reduce(DataFrame.unionByName, frames)

    def damages(
        self, spark: SparkSession, objects: Sequence[ConnectorObject], on_checked: OnChecked = lambda _: None
    ) -> list[Damage]:
        return self._reader.damages(spark, objects, on_checked)

    def _ends(self, objects: Sequence[ConnectorObject]) -> dict[str, int]:
        """Returns key → last offset; without objects that can't be read, which `records` and `damages` report."""
        open_object = self._reader.open_object

        def look(one: ConnectorObject) -> dict[str, Any] | None:
            table, _ = open_object(one)
            return None if table is None else {"key": one.key, "last": table["offset"][-1].as_py()}

        return {row.key: row["last"] for row in _map_objects(self._spark, objects, look, _KNOWN_ENDS)}

    def _schemas(self, spark: SparkSession, objects: Sequence[ConnectorObject]) -> dict[str, str]:
        """Returns key → the serialized schema of a Parquet object as base64; empty for JSON lines."""
        store = self._store

        def look(one: ConnectorObject) -> dict[str, Any] | None:
            try:
                found = footer_schema(store, one.key, PARQUET)
            except (ObjectMissing, pa.ArrowException):
                return None  # `ObjectContents.open_object` reports the damage
            text = "" if found is None else base64.b64encode(found.remove_metadata().serialize()).decode()
            return {"key": one.key, "schema": text}

        lines = {o.key: "" for o in objects}
        candidates = [o for o in objects if not o.key.endswith((".json", ".json.gz"))]
        return lines | {row.key: row.schema for row in _map_objects(spark, candidates, look, _SCHEMAS)}

    def _columns(self, row_schema: T.StructType | None) -> list[Column]:
        key, value, headers = self._parts(row_schema)
        raw = [part.cast("binary").alias(name) for part, name in ((key, "key"), (value, "value"))]
        pairs = F.transform(
            headers, lambda h: F.struct(h["key"].alias("key"), h["value"].cast("binary").alias("value"))
        )
        return [*(F.col(f.name) for f in _PLACE_FIELDS), pairs.alias("headers"), *raw]

    def _parts(self, row_schema: T.StructType | None) -> tuple[Column, Column, Column]:
        """Returns the columns key, value and headers."""
        if self._connector == "confluent":
            parsed = F.from_json(F.col("headers").cast("string"), f"headers {_HEADERS}", {"mode": "FAILFAST"})
            value = _unquoted("line") if row_schema is None else F.to_json("row", _WITH_NULLS)
            return _unquoted("key"), value, parsed["headers"]
        if row_schema is None:
            # A variant keeps numbers exact, which a string field would round; it sorts the fields of objects.
            fields = f"key string, value variant, headers {_HEADERS}"
            record = F.from_json(F.col("line").cast("string"), fields, {"mode": "FAILFAST"})
            return record["key"], record["value"].cast("string"), record["headers"]
        parts = {f.name: (F.col(f"row.{f.name}"), f.dataType) for f in row_schema.fields}
        headers = F.lit(None).cast(_HEADERS)
        if "headers" in parts and isinstance(parts["headers"][1], T.MapType):
            headers = F.map_entries(parts["headers"][0].cast("map<string, string>"))
        key, value = (_json_or_text(*parts[name]) if name in parts else F.lit(None) for name in ("key", "value"))
        return key, value, headers


def _map_objects(
    spark: SparkSession,
    objects: Sequence[ConnectorObject],
    look: Callable[[ConnectorObject], dict[str, Any] | None],
    schema: T.StructType,
) -> list[Row]:
    """Returns the rows that `look` gives for the objects, at most one each, computed in Spark's tasks."""
    if not objects:
        return []

    def map_batches(listed: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in listed:
            entries = [ConnectorObject(**row) for row in batch.to_pylist()]
            found = [row for entry in entries if (row := look(entry)) is not None]
            if found:
                yield pa.RecordBatch.from_pylist(found)

    return map_in_arrow(
        objects_frame(spark, ConnectorObject, objects), map_batches, schema
    ).collect()  # a row per object


def _unquoted(column: str) -> Column:
    """Returns a JSON line as the record's text: null for `null`, the unquoted text for a JSON string
    (StringConverter)."""
    line = F.col(column).cast("string")
    quoted = F.from_json(F.concat(F.lit('{"it":'), line, F.lit("}")), "it string")["it"]
    # A line that is no JSON passes unchanged; the merge quarantines it.
    return F.when(line == "null", F.lit(None)).when(line.startswith('"'), F.coalesce(quoted, line)).otherwise(line)


def _json_or_text(part: Column, kind: T.DataType) -> Column:
    return F.to_json(part, _WITH_NULLS) if isinstance(kind, T.StructType | T.ArrayType | T.MapType) else part
