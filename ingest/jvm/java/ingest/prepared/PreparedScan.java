package ingest.prepared;

import org.apache.spark.rdd.RDD;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.PartitionedFileUtil$;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.reflect.ClassTag$;

/** The result of a plan over files for other files: in one task, one file after the other. */
final class PreparedScan extends RDD {
    private final PreparedPlan plan;
    private final transient Partition[] parts;

    PreparedScan(SparkContext context, PreparedPlan plan, Partition files) {
        super(context, Nil$.MODULE$, ClassTag$.MODULE$.apply(InternalRow.class));
        this.plan = plan;
        this.parts = new Partition[] {files};
    }

    /** Returns all files of an index as one partition. */
    static Partition all(FileIndex files) {
        List found = new ArrayList();
        Seq none = (Seq) (Object) Nil$.MODULE$;
        Iterator folders = files.listFiles(none, none).iterator();
        while (folders.hasNext()) {
            PartitionDirectory folder = (PartitionDirectory) folders.next();
            Iterator all = folder.files().iterator();
            while (all.hasNext()) {
                FileStatusWithMetadata file = (FileStatusWithMetadata) all.next();
                found.add(PartitionedFileUtil$.MODULE$.getPartitionedFile(
                    file, file.getPath(), folder.values(), 0, file.getLen()));
            }
        }
        return new FilePartition(0, (PartitionedFile[]) found.toArray(new PartitionedFile[0]));
    }

    public Partition[] getPartitions() {
        return parts;
    }

    public Iterator compute(Partition split, TaskContext context) {
        return plan.rowsOf(new Partition[] {split}, context);
    }
}
