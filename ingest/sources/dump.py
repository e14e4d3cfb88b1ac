"""A dump of one table as a source: the rows of Parquet files become snapshot reads (op `r`) at the position of the
dump. Any later change of a row wins over them, even if the dump is loaded afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import quoted
from ingest.changelog.dialects.registry import dump_fields
from ingest.changelog.envelope import RECORD
from ingest.changelog.point import Point
from ingest.errors import ConfigError
from ingest.merge.table_schema import TableSchema
from ingest.sources.contract import OffsetRange, Offsets
from ingest.values.render import LOSSLESS_JSON
from ingest.values.types import Kind

_NO_FILES = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
_TYPES: dict[type[T.DataType], str] = {
    T.BooleanType: "boolean",
    T.ByteType: "int8",
    T.ShortType: "int16",
    T.IntegerType: "int32",
    T.LongType: "int64",
    T.FloatType: "float32",
    T.DoubleType: "float64",
    T.StringType: "string",
    T.BinaryType: "bytes",
    T.DateType: "date",
    T.TimestampType: "timestamp_tz",
    T.TimestampNTZType: "timestamp",
}


@dataclass(frozen=True)
class Dump:
    """A dump. `path`: a Parquet file or a folder of them. `at`: the position in the source's log as of which it was
    taken."""

    path: str
    table: str
    at: Point


def _types(table_schema: TableSchema) -> dict[str, str]:
    """Returns column → logical type. `int53` becomes `int64`, since a dump may hold integers beyond a double's 53
    bits."""
    return {c.name: "int64" if c.type.kind is Kind.INT53 else str(c.type) for c in table_schema.columns}


class DumpSource:
    """A dump as a topic named after its table, with a partition per file; a row's offset is its number in the file."""

    def __init__(
        self, spark: SparkSession, dump: Dump, table_schema: TableSchema | None, declared: Mapping[str, Sequence[str]]
    ) -> None:
        """`table_schema`: the table's current columns, whose types win. `declared`: table → declared key.

        Raises ConfigError where no Parquet files can be read, or the key is unknown or missing in them."""
        self._spark = spark
        self._dump = dump
        self._known = {} if table_schema is None else _types(table_schema)
        self._key = list(declared.get(dump.table, () if table_schema is None else table_schema.key))
        try:
            self._columns = spark.read.parquet(dump.path).schema
        except AnalysisException as error:
            if error.getCondition() not in _NO_FILES:
                raise
            raise ConfigError(
                f"no Parquet files can be read at {dump.path}",
                "name a file or a folder of them; write others as Parquet",
            ) from error
        missing = [k for k in self._key if k not in self._columns.names]
        if missing or not self._key:
            raise ConfigError(
                f"the dump of {dump.table} lacks the key {', '.join(missing) or '(none is declared)'}",
                f"dump it with its key, or name that: tables: {{{dump.table}: {{primary_key: […]}}}}",
            )

    @property
    def types(self) -> dict[str, str]:
        """Column → logical type."""
        return {f.name: self._known.get(f.name) or _type(f, self._dump.table) for f in self._columns}

    def pin_end(self) -> None:
        """Does nothing: the files don't change."""

    def pending(self, captured: Offsets, limit: int) -> OffsetRange | None:
        done = captured.get(self._topic, {})
        left = [number for number in range(len(self._files)) if number not in done]
        taken: list[int] = []
        while left and (not taken or sum(self._files[n][1] for n in taken) < limit):
            taken.append(left.pop(0))
        if not taken:
            return None
        behind = sum(self._files[n][1] for n in left)
        end = {n: self._files[n][1] for n in taken}
        return OffsetRange({self._topic: dict.fromkeys(taken, 0)}, {self._topic: end}, behind=behind)

    def read(self, spark: SparkSession, span: OffsetRange) -> DataFrame:
        numbers = span.end[self._topic]
        paths = {self._files[n][0]: n for n in numbers}
        rows = spark.read.schema(self._columns).parquet(*paths)
        number = F.create_map(*(F.lit(v) for pair in paths.items() for v in pair))[F.col("_metadata.file_path")]
        key = F.to_json(F.struct(*map(quoted, self._key)), LOSSLESS_JSON)
        after = F.struct(*map(quoted, self._columns.names)).alias("after")
        value = F.to_json(F.struct(after, F.lit("r").alias("op"), self._source().alias("source")), LOSSLESS_JSON)
        headers = F.lit(None).cast(RECORD["headers"].dataType)
        return rows.select(
            F.lit(self._topic).alias("topic"),
            number.alias("partition"),
            F.col("_metadata.row_index").alias("offset"),
            F.col("_metadata.file_modification_time").alias("timestamp"),
            headers.alias("headers"),
            key.cast("binary").alias("key"),
            value.cast("binary").alias("value"),
        )

    @property
    def _topic(self) -> str:
        return self._dump.table

    @cached_property
    def _files(self) -> list[tuple[str, int]]:
        """(Path, number of rows) of each file, by path."""
        rows = self._spark.read.parquet(self._dump.path).groupBy(F.col("_metadata.file_path").alias("path")).count()
        return sorted((r["path"], r["count"]) for r in rows.collect())  # a row per file

    def _source(self) -> Column:
        """Returns the envelope's `source` block as the connector would write it."""
        schema, _, table = self._dump.table.partition(".")
        position = dump_fields(self._dump.at.major, self._dump.at.minor)
        named = {"schema": schema, "table": table} if table else {}
        source_fields = {**named, **position, "snapshot": "true"}
        return F.struct(*(F.lit(value).alias(name) for name, value in source_fields.items()))


def _type(field: T.StructField, table: str) -> str:
    kind = field.dataType
    if isinstance(kind, T.DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, T.ArrayType):
        return f"array<{_type(T.StructField(field.name, kind.elementType), table)}>"
    if type(kind) not in _TYPES:
        raise ConfigError(
            f"the dump of {table} holds column {field.name} as {kind.simpleString()}, which no table takes",
            "write it as text or JSON",
        )
    return _TYPES[type(kind)]
