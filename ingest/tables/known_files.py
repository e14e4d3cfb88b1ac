"""Rows of files that are known already.

Delta's own way to read given files sends them through a query at every plan, twice where rows of some are marked as
gone: as long as planning the rest, and longer the more files there are. It may be subclassed by who answers at once.
All of it is one call into the JVM: five would take longer than what they do there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ingest.java_source import compiled
from ingest.tables.delta_jvm import delta_classes

_READER = "KnownFilesReader"
_SOURCE = f"""
    import org.apache.hadoop.fs.Path;
    import org.apache.spark.sql.classic.Dataset$;
    import org.apache.spark.sql.classic.SparkSession;
    import org.apache.spark.sql.delta.DeltaLog;
    import org.apache.spark.sql.delta.SnapshotDescriptor;
    import org.apache.spark.sql.delta.files.TahoeBatchFileIndex;
    import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
    import org.apache.spark.sql.execution.datasources.LogicalRelation$;
    import scala.Option;
    import scala.collection.immutable.Seq;

    final class KnownFiles extends TahoeBatchFileIndex {{
        KnownFiles(SparkSession spark, Seq files, DeltaLog log, Path path, SnapshotDescriptor snapshot) {{
            super(spark, "batch", files, log, path, snapshot, false);
        }}

        // No table here is partitioned: a filter on partitions can't ask for fewer.
        public Seq matchingFiles(Seq partitionFilters, Seq dataFilters) {{
            return addFiles();
        }}
    }}

    public final class {_READER} {{
        public Object rows(SparkSession spark, Seq files, DeltaLog log, SnapshotDescriptor snapshot) {{
            KnownFiles index = new KnownFiles(spark, files, log, log.dataPath(), snapshot);
            HadoopFsRelation relation = log.buildHadoopFsRelationWithFileIndex(snapshot, index, Option.empty(), true);
            return Dataset$.MODULE$.ofRows(spark, LogicalRelation$.MODULE$.apply(relation, false));
        }}
    }}
    """


class _Classes:
    """Looked up once per session (`delta_jvm` says why)."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        gateway: Any = spark._sc._gateway
        made = compiled(jvm, _SOURCE).getClassLoader().loadClass(_READER).getConstructors()[0]
        self.reader = made.newInstance(gateway.new_array(jvm.java.lang.Object, 0))
        self.datasets = getattr(getattr(jvm.org.apache.spark.sql.classic, "Dataset$"), "MODULE$")


@cache
def _classes(spark: SparkSession) -> _Classes:
    return _Classes(spark)


def rows_of(spark: SparkSession, log: Any, snapshot: Any, actions: Sequence[Any]) -> DataFrame:
    """The rows of these `AddFile`s of a table, of which `snapshot` is one; their `_metadata` tells where they lie."""
    files = delta_classes(spark).sequence(actions)
    return DataFrame(_classes(spark).reader.rows(spark._jsparkSession, files, log, snapshot), spark)


def planned(spark: SparkSession, plan: Any) -> DataFrame:
    """The rows of a logical plan of Spark's own."""
    return DataFrame(_classes(spark).datasets.ofRows(spark._jsparkSession, plan), spark)
