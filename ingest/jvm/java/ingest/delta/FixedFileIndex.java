package ingest.delta;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.SnapshotDescriptor;
import org.apache.spark.sql.delta.files.TahoeBatchFileIndex;
import scala.collection.immutable.Seq;

/** An index of given files that answers at once. Delta's own filters them by a query at every plan. */
public final class FixedFileIndex extends TahoeBatchFileIndex {
    public FixedFileIndex(SparkSession spark, Seq files, DeltaLog log, Path path, SnapshotDescriptor snapshot) {
        super(spark, "batch", files, log, path, snapshot, false);
    }

    /** Returns all files. No table here is partitioned, so a filter on partitions can't select fewer. */
    public Seq matchingFiles(Seq partitionFilters, Seq dataFilters) {
        return addFiles();
    }
}
