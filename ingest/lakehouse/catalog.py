"""The catalog: the silver tables with their paths, keys and columns.

A Delta table with a row for the creation of each table and for each change of its columns; the newest row of a table
counts. It holds names of the source as data, so that none of them gets into a statement or a path.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.delta import delta_table
from ingest.delta.txn_versions import TxnVersion
from ingest.errors import ConfigError
from ingest.evolution.policies import TableColumn
from ingest.merge.table_schema import TableSchema
from ingest.names import nearest
from ingest.spark.local_rows import local_rows
from ingest.values.columns import Column, Encoding, WireType
from ingest.values.types import Kind, OutOfRange, parse

_SCHEMA = T.StructType(
    [
        T.StructField("pipeline", T.StringType()),
        T.StructField("table", T.StringType()),
        T.StructField("revision", T.LongType()),
        T.StructField("path", T.StringType()),
        T.StructField("primary_key", T.ArrayType(T.StringType())),
        T.StructField("columns", T.StringType()),
        T.StructField("topics", T.ArrayType(T.StringType())),
        T.StructField("origin", T.StringType()),
    ]
)


@dataclass(frozen=True)
class CatalogEntry:
    """A table in the catalog. `topics`: those that its changes have come from. `origin`: its server and database
    (`changelog.origin`); empty if the source names none."""

    pipeline: str
    path: str
    table_schema: TableSchema
    revision: int
    topics: tuple[str, ...]
    origin: str = ""


@dataclass(frozen=True)
class Revision:
    """An entry of the past, and the time at which it was written."""

    entry: CatalogEntry
    at: datetime


class Catalog:
    """The catalog of a lakehouse."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._table = delta_table.Table(spark, path)
        # Tables are merged in parallel; two first appends would both create the table.
        self._commit_lock = threading.Lock()

    def entries(self, pipeline: str | None = None) -> list[CatalogEntry]:
        """Returns the newest entry of each table of one pipeline, or of all, by pipeline and table."""
        if not self._table.exists():
            return []
        rows = _with_origin(self._table.rows())
        if pipeline is not None:
            rows = rows.where(F.col("pipeline") == pipeline)
        newest = rows.groupBy("pipeline", "table").agg(
            F.max_by(F.struct(*_SCHEMA.names), F.col("revision")).alias("entry")
        )
        found = newest.select("entry.*").orderBy("pipeline", "table").collect()  # one row per table
        return [_entry(r) for r in found]

    def revisions(self, pipeline: str) -> list[Revision]:
        """Returns all entries of the pipeline's tables, past ones included, by table and revision."""
        if not self._table.exists():
            return []
        at = F.unix_millis("_metadata.file_modification_time").alias("at")
        rows = _with_origin(self._table.rows_in(self._table.files().values()).select("*", at))
        # One row per change of a schema.
        found = rows.where(F.col("pipeline") == pipeline).orderBy("table", "revision").collect()
        return [Revision(_entry(r), datetime.fromtimestamp(r["at"] / 1000, UTC)) for r in found]

    def entry(self, pipeline: str, table: str) -> CatalogEntry:
        """Returns the newest entry of one table. Raises ConfigError, with similar names, if there is no such table."""
        return self.require(pipeline, [table])[0]

    def require(self, pipeline: str, tables: Sequence[str]) -> list[CatalogEntry]:
        """Returns the newest entries of these tables. Raises ConfigError as `entry` does."""
        known = {entry.table_schema.table: entry for entry in self.entries(pipeline)}
        for table in tables:
            if table not in known:
                otherwise = "see its tables with: ingest status PIPELINE" if known else "it has none yet"
                raise ConfigError(f"{table} is no table of pipeline {pipeline}", nearest(table, known, otherwise))
        return [known[table] for table in tables]

    def record(self, entry: CatalogEntry) -> None:
        """Appends an entry. Raises Contended if another writer has recorded this revision."""
        table_schema = entry.table_schema
        columns = [_column_to_json(c) for c in table_schema.columns]
        row = {
            "pipeline": entry.pipeline,
            "table": table_schema.table,
            "revision": entry.revision,
            "path": entry.path,
            "primary_key": list(table_schema.key),
            "columns": json.dumps(columns, ensure_ascii=False),
            "topics": list(entry.topics),
            "origin": entry.origin or None,
        }
        frame = local_rows(self._spark, [row], _SCHEMA)
        with self._commit_lock:
            older = self._table.exists() and not _has_origin(self._table.rows())
            version = TxnVersion(entry.path, entry.revision)
            self._table.commit(frame, txn_version=version, columns=_SCHEMA if older else None)


def _has_origin(rows: DataFrame) -> bool:
    """Returns True unless the catalog is older than the column of origins."""
    return "origin" in rows.columns


def _with_origin(rows: DataFrame) -> DataFrame:
    return rows if _has_origin(rows) else rows.withColumn("origin", F.lit(None).cast("string"))


def _entry(row: Row) -> CatalogEntry:
    table_schema = TableSchema(row.table, tuple(row.primary_key), _columns_from_json(row["columns"]))
    return CatalogEntry(row.pipeline, row.path, table_schema, row.revision, tuple(row.topics), row.origin or "")


def _columns_from_json(text: str) -> tuple[TableColumn, ...]:
    found: list[dict[str, Any]] = json.loads(text)
    return tuple(
        TableColumn(c["name"], parse(c["type"]), _default_of(c), _sealed_column(c), c.get("inferred", False))
        for c in found
    )


def _column_to_json(column: TableColumn) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": column.name, "type": str(column.type)}
    if column.inferred:
        fields["inferred"] = True
    if column.filled is not None:
        fields["default"] = column.filled.default
        fields["default_wire"] = _wire_to_json(column.filled.wire)
    if column.sealed is not None:
        fields["sealed"] = {"type": str(column.sealed.type), "wire": _wire_to_json(column.sealed.wire)}
    return fields


def _default_of(fields: dict[str, Any]) -> Column | None:
    if "default_wire" not in fields:
        return None
    wire = _wire_from_json(fields["default_wire"])
    return Column(fields["name"], wire, parse(fields["type"]), False, fields["default"], True)


def _sealed_column(fields: dict[str, Any]) -> Column | None:
    if "sealed" not in fields:
        return None
    return Column(fields["name"], _wire_from_json(fields["sealed"]["wire"]), parse(fields["sealed"]["type"]))


def _wire_to_json(wire: WireType) -> dict[str, Any]:
    fields = asdict(wire)
    return {**fields, "encoding": wire.encoding.name, "elements": [_wire_to_json(e) for e in wire.elements]}


def _wire_from_json(fields: dict[str, Any]) -> WireType:
    elements = tuple(_wire_from_json(e) for e in fields["elements"])
    names = tuple(fields["names"])
    encoding, number = Encoding[fields["encoding"]], Kind(fields["number"])
    times = OutOfRange(fields.get("out_of_range", OutOfRange.CLAMP))
    return WireType(encoding, number, fields["digits"], fields["checked"], elements, names, times)
