"""Constructors of Spark's and Delta's classes, which Java calls with arguments by position.

They are those of `VERSIONS`. Another version may have other fields in them, also without an error: before one is added
here, compare each constructor below. Those that the Java sources call are compared by their compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ingest.errors import PrerequisiteMissing
from ingest.jvm.classes import java_class

VERSIONS = {"pyspark": "4.2.*", "delta-spark": "4.4.*"}
"""The packages and their versions. `pyproject.toml` pins the same."""
_SQL = "org.apache.spark.sql"
_DELTA = f"{_SQL}.delta"
_PARQUET = f"{_SQL}.execution.datasources.parquet"


def require_versions() -> None:
    """Raises PrerequisiteMissing where an installed package has another version than `VERSIONS`."""
    for package, supported in VERSIONS.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            continue  # It may come with the cluster.
        if not fnmatch(found, supported):
            raise PrerequisiteMissing(
                f"{package} {found} is installed, and this version of ingest calls constructors of {supported}",
                f"install {package}=={supported}",
            )


def metadata(
    jvm: Any, table_id: str, schema: str, partitions: Any, configuration: Any, created: Any, no_options: Any
) -> Any:
    """Returns Delta's `Metadata` of a Parquet table: id, name, description, format, schemaString, partitionColumns,
    configuration, createdTime."""
    table_format = java_class(jvm, f"{_DELTA}.actions.Format")("parquet", no_options)
    make = java_class(jvm, f"{_DELTA}.actions.Metadata")
    return make(table_id, None, None, table_format, schema, partitions, configuration, created)


def set_transaction(jvm: Any, application: str, number: int, updated: Any) -> Any:
    """Returns Delta's `SetTransaction`: appId, version, lastUpdated."""
    return java_class(jvm, f"{_DELTA}.actions.SetTransaction")(application, number, updated)


def write_operation(jvm: Any, mode: Any, user_metadata: Any, none: Any) -> Any:
    """Returns Delta's `DeltaOperations.Write`: mode, partitionBy, predicate, userMetadata, and five more options."""
    make = java_class(jvm, f"{_DELTA}.DeltaOperations$Write")
    return make(mode, none, none, user_metadata, none, none, none, none, none)


def optimize_operation(jvm: Any, nothing: Any, none: Any) -> Any:
    """Returns Delta's `DeltaOperations.Optimize` of a whole table: predicate, zOrderBy, auto, clusterBy, isFull."""
    return java_class(jvm, f"{_DELTA}.DeltaOperations$Optimize")(nothing, nothing, False, none, False)


def delete_operation(jvm: Any, predicate: Any) -> Any:
    """Returns Delta's `DeltaOperations.Delete`: predicate."""
    return java_class(jvm, f"{_DELTA}.DeltaOperations$Delete")(predicate)


def add_file(
    jvm: Any, path: str, partition_values: Any, size: int, modified: int, statistics: str | None, none: Any
) -> Any:
    """Returns Delta's `AddFile` with a change of data: path, partitionValues, size, modificationTime, dataChange,
    stats, tags, deletionVector, baseRowId, defaultRowCommitVersion, clusteringProvider, and two more options."""
    make = java_class(jvm, f"{_DELTA}.actions.AddFile")
    return make(path, partition_values, size, modified, True, statistics, None, None, none, none, none, none, none)


def batch_file_index(spark: Any, files: Any, log: Any, snapshot: Any) -> Any:
    """Returns Delta's `TahoeBatchFileIndex`: spark, actionType, addFiles, deltaLog, path, snapshot,
    isTimeTravelQuery."""
    make = java_class(spark._jvm, f"{_DELTA}.files.TahoeBatchFileIndex")
    return make(spark._jsparkSession, "batch", files, log, log.dataPath(), snapshot, False)


def vector_context(jvm: Any, store: Any, writer: Any, table: Any, file_id: Any, prefix: str) -> Any:
    """Returns Delta's `DeletionVectorMapperContext`: dvStore, writer, tablePath, fileId, prefix."""
    make = java_class(jvm, f"{_DELTA}.commands.DeletionVectorWriter$DeletionVectorMapperContext")
    return make(store, writer, table, file_id, prefix)


def vector_data(jvm: Any, file: str, present_vector: Any, bitmap: bytes, count: int) -> Any:
    """Returns Delta's `DeletionVectorData`: filePath, deletionVectorId, deletedRowIndexSet, deletedRowIndexCount."""
    return java_class(jvm, f"{_DELTA}.commands.DeletionVectorData")(file, present_vector, bitmap, count)


def touched_file(jvm: Any, file: str, added: Any, vector: Any, count: int) -> Any:
    """Returns Delta's `TouchedFileWithDV`: inputFilePath, fileLogEntry, newDeletionVector, deletedRows."""
    return java_class(jvm, f"{_DELTA}.commands.TouchedFileWithDV")(file, added, vector, count)


def row_bitmap(jvm: Any, row_number: Any) -> Any:
    """Returns Delta's `BitmapAggregator`: child, mutableAggBufferOffset, inputAggBufferOffset, serialization format."""
    return java_class(jvm, f"{_SQL}.catalyst.expressions.aggregation.BitmapAggregator")(row_number, 0, 0, "Portable")


def object_literal(jvm: Any, value: Any) -> Any:
    """Returns Spark's `Literal` of an object of the JVM: value, dataType, of which an `ObjectType` has: cls."""
    object_type = java_class(jvm, f"{_SQL}.types.ObjectType")(value.getClass())
    return java_class(jvm, f"{_SQL}.catalyst.expressions.Literal")(value, object_type)


def invocation(
    jvm: Any, target: Any, method: str, data_type: Any, arguments: Sequence[Any], nothing: Any, pure: bool
) -> Any:
    """Returns Spark's `Invoke`: targetObject, functionName, dataType, arguments, methodInputTypes, propagateNull,
    returnNullable, isDeterministic."""
    make = java_class(jvm, f"{_SQL}.catalyst.expressions.objects.Invoke")
    return make(target, method, data_type, arguments, nothing, pure, pure, pure)


def json_evaluator(jvm: Any, options: Any, data_type: Any, corrupt: str, time_zone: Any) -> Any:
    """Returns Spark's `JsonToStructsEvaluator`: options, nullableSchema, nameOfCorruptRecord, timeZoneId,
    variantAllowDuplicateKeys."""
    make = java_class(jvm, f"{_SQL}.catalyst.expressions.json.JsonToStructsEvaluator")
    return make(options, data_type, corrupt, time_zone, False)


def function_identifier(jvm: Any, name: str) -> Any:
    """Returns Spark's `FunctionIdentifier` of a function without a database: funcName."""
    return java_class(jvm, f"{_SQL}.catalyst.FunctionIdentifier")(name)


def parquet_schemas(jvm: Any, settings: Any) -> Any:
    """Returns Spark's `SparkToParquetSchemaConverter`: conf."""
    return java_class(jvm, f"{_PARQUET}.SparkToParquetSchemaConverter")(settings)


def proleptic_calendar(jvm: Any) -> Any:
    """Returns Spark's `RebaseSpec` of times in the proleptic Gregorian calendar: mode, originTimeZone."""
    mode = java_class(jvm, f"{_SQL}.internal.LegacyBehaviorPolicy$.MODULE$").CORRECTED()
    return java_class(jvm, f"{_SQL}.catalyst.util.RebaseDateTime$RebaseSpec")(mode, jvm.scala.Option.empty())


def in_filter(jvm: Any, name: str, values: Any) -> Any:
    """Returns Spark's `In` of the sources' filters: attribute, values."""
    return java_class(jvm, f"{_SQL}.sources.In")(name, values)


def parquet_filters(jvm: Any, schema: Any, most_values: int, calendar: Any) -> Any:
    """Returns Spark's `ParquetFilters`: schema, pushDownDate, pushDownTimestamp, pushDownDecimal,
    pushDownStringPredicate, pushDownInFilterThreshold, caseSensitive, datetimeRebaseSpec."""
    make = java_class(jvm, f"{_PARQUET}.ParquetFilters")
    return make(schema, True, True, True, True, most_values, True, calendar)


def logical_relation(jvm: Any, relation: Any) -> Any:
    """Returns Spark's `LogicalRelation`: relation, isStreaming."""
    return java_class(jvm, f"{_SQL}.execution.datasources.LogicalRelation$.MODULE$").apply(relation, False)


def relation_with_options(relation: Any, options: Any, session: Any) -> Any:
    """Returns a copy of a `HadoopFsRelation`: location, partitionSchema, dataSchema, bucketSpec, fileFormat, options,
    sparkSession."""
    location, partitions, columns = relation.location(), relation.partitionSchema(), relation.dataSchema()
    return relation.copy(location, partitions, columns, relation.bucketSpec(), relation.fileFormat(), options, session)


def scan_of_relation(scan: Any, relation: Any) -> Any:
    """Returns a copy of a `LogicalRelation`: relation, output, catalogTable, isStreaming, stream."""
    return scan.copy(relation, scan.output(), scan.catalogTable(), scan.isStreaming(), scan.stream())
