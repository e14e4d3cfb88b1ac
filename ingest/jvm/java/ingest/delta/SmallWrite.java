package ingest.delta;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.apache.spark.SparkContext;
import ingest.prepared.Copies;
import ingest.prepared.PreparedQuery;
import ingest.prepared.SessionSettings;
import ingest.prepared.SharedByTasks;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.actions.AddCDCFile;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.stats.DeltaFileStatistics;
import org.apache.spark.sql.delta.stats.DeltaJobStatisticsTracker;
import org.apache.spark.sql.execution.datasources.OutputWriter;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.WriteTaskStatsTracker;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics$;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableJobConf;
import scala.Option;
import scala.collection.IterableOnceOps;
import scala.collection.Iterator;
import scala.collection.MapOps;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction0;
import scala.runtime.AbstractFunction2;

/** A file that a task writes, once there is a row for it. `folder`: the table's; `name`: its own in there. */
final class SmallFile {
    final String name;
    private final Path path;
    private final SmallWrite kind;
    private final TaskAttemptContext attempt;
    private OutputWriter writer;

    SmallFile(SmallWrite kind, TaskAttemptContext attempt, String folder, String name) {
        this.kind = kind;
        this.attempt = attempt;
        this.name = name + "-" + UUID.randomUUID() + "-c000" + kind.factory.getFileExtension(attempt);
        this.path = new Path(folder, this.name);
    }

    /** Whether there was none before. */
    boolean write(InternalRow row) {
        boolean first = writer == null;
        if (first) {
            writer = kind.factory.newInstance(path.toString(), kind.columns, attempt);
        }
        writer.write(row);
        return first;
    }

    /** Its bytes; 0 where there is no file. */
    long close() throws java.io.IOException {
        if (writer == null) {
            return 0;
        }
        writer.close();
        return path.getFileSystem(attempt.getConfiguration()).getFileStatus(path).getLen();
    }
}

/** One part's rows in files, of which `FileAction`s tell. */
final class SmallFileWriter extends AbstractFunction0 {
    private final SmallWrite kind;
    private final String folder;
    private final Iterator rows;

    SmallFileWriter(SmallWrite kind, String folder, Iterator rows) {
        this.kind = kind;
        this.folder = folder;
        this.rows = rows;
    }

    public Object apply() {
        TaskAttemptContext attempt = new TaskAttemptContextImpl(kind.settings.value(), new TaskAttemptID());
        SmallFile table = new SmallFile(kind, attempt, folder, "part-00000");
        SmallFile changes = new SmallFile(kind, attempt, folder, "_change_data/cdc-00000");
        Object statistics = kind.statistics.take();
        WriteTaskStatsTracker told = ((DeltaJobStatisticsTracker) statistics).newTaskInstance();
        while (rows.hasNext()) {
            InternalRow row = (InternalRow) rows.next();
            if (kind.changeType >= 0 && !row.isNullAt(kind.changeType)) {
                changes.write(row);
            } else {
                if (table.write(row)) {
                    told.newFile(table.name);
                }
                told.newRow(table.name, row);
            }
        }
        List actions = new ArrayList();
        try {
            long size = table.close();
            if (size > 0) {
                DeltaFileStatistics found = (DeltaFileStatistics) told.getFinalStats(0);
                String text = (String) ((MapOps) found.stats()).valuesIterator().next();
                actions.add(new AddFile(table.name, Map$.MODULE$.empty(), size, System.currentTimeMillis(), true,
                    text, null, null, Option.empty(), Option.empty(), Option.empty(), Option.empty(),
                    Option.empty()));
            }
            size = changes.close();
            if (size > 0) {
                actions.add(new AddCDCFile(changes.name, Map$.MODULE$.empty(), size, null, null));
            }
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
        kind.statistics.giveBack(statistics);
        return actions.toArray();
    }
}

/** What a task does with a part. */
final class SmallWriteTask extends AbstractFunction2 implements java.io.Serializable {
    private final SmallWrite kind;
    private final String folder;

    SmallWriteTask(SmallWrite kind, String folder) {
        this.kind = kind;
        this.folder = folder;
    }

    public Object apply(Object context, Object rows) {
        return SQLConf$.MODULE$.withExistingConf(kind.session.conf(), new SmallFileWriter(kind, folder, (Iterator) rows));
    }
}

/** How few rows with certain columns become files of tables with certain properties. */
public final class SmallWrite extends SharedByTasks {
    private static final int KEPT = 256;
    private static final String[] COUNTED = {"numFiles", "numOutputBytes", "numOutputRows"};
    private static final Map ALL = new LinkedHashMap(16, 0.75f, true);
    // What a table may say of itself and be written to here. What else there is asks for more than rows in files.
    private static final List KNOWN = Arrays.asList(new String[] {
        "delta.enableChangeDataFeed", "delta.enableDeletionVectors", "delta.dataSkippingStatsColumns",
        "delta.dataSkippingNumIndexedCols", "delta.checkpointInterval", "delta.logRetentionDuration",
        "delta.deletedFileRetentionDuration"});

    final OutputWriterFactory factory;
    final SerializableJobConf settings;
    final Copies statistics;
    final StructType columns;
    final SessionSettings session;
    final int changeType;

    private SmallWrite(OptimisticTransaction transaction, Dataset frame) throws java.io.IOException {
        super(frame.sparkSession().sparkContext());
        SparkSession spark = frame.sparkSession();
        Metadata metadata = transaction.metadata();
        DeltaLog log = transaction.deltaLog();
        Job job = Job.getInstance(spark.sessionState().newHadoopConfWithOptions(
            (scala.collection.immutable.Map) ((MapOps) metadata.configuration()).concat(log.options())));
        this.columns = frame.schema().asNullable();
        this.factory = log.fileFormat(transaction.protocol(), metadata)
            .prepareWrite(spark, job, (scala.collection.immutable.Map) Map$.MODULE$.empty(), columns);
        this.settings = new SerializableJobConf(new JobConf(job.getConfiguration()));
        Option tracker = (Option) transaction.getOptionalStatsTrackerAndStatsCollection(
            frame.queryExecution().analyzed().output(), log.dataPath(), new StructType(), frame)._1();
        this.statistics = new Copies(tracker.get());
        this.session = new SessionSettings(spark.sessionState().conf());
        session.set("spark.databricks.delta.collectStats.fallbackToInterpretedProjection", "true");
        this.changeType = Arrays.asList(columns.fieldNames()).indexOf("_change_type");
    }

    /** The rows of `frame` as files of the transaction's table, a file for each part of them: `FileAction`s; null where
     * the table asks for more than that. */
    public static List written(OptimisticTransaction transaction, Dataset frame) throws java.io.IOException {
        if (!suits(transaction.metadata())) {
            return null;
        }
        SmallWrite kind = of(transaction, frame);
        RDD rows = PreparedQuery.rowsOf(frame);
        SmallWriteTask task = new SmallWriteTask(kind, transaction.deltaLog().dataPath().toString());
        Object[] parts = (Object[]) PreparedQuery.ran("few rows written", rows, task, Object[].class);
        List actions = new ArrayList();
        long files = 0, bytes = 0, count = 0;
        for (int i = 0; i < parts.length; i++) {
            actions.addAll(Arrays.asList((Object[]) parts[i]));
        }
        for (int i = 0; i < actions.size(); i++) {
            if (actions.get(i) instanceof AddFile) {
                AddFile file = (AddFile) actions.get(i);
                files++;
                bytes += file.size();
                count += ((Number) file.numLogicalRecords().get()).longValue();
            }
        }
        tell(transaction, rows.context(), new long[] {files, bytes, count});
        return actions;
    }

    /** What the table's history says of the commit. */
    private static void tell(OptimisticTransaction transaction, SparkContext context, long[] counts) {
        scala.collection.immutable.Map told = (scala.collection.immutable.Map) Map$.MODULE$.empty();
        for (int i = 0; i < counts.length; i++) {
            SQLMetric metric = SQLMetrics$.MODULE$.createMetric(context, COUNTED[i]);
            metric.set(counts[i]);
            told = (scala.collection.immutable.Map) told.updated(COUNTED[i], metric);
        }
        transaction.registerSQLMetrics(SparkSession.active(), told);
    }

    /** Made once for all tables alike. */
    private static SmallWrite of(OptimisticTransaction transaction, Dataset frame) throws java.io.IOException {
        List alike = Arrays.asList(new Object[] {
            frame.schema(), transaction.metadata().configuration(), transaction.metadata().schemaString(),
            Integer.valueOf(System.identityHashCode(frame.sparkSession()))});
        synchronized (ALL) {
            SmallWrite kind = (SmallWrite) ALL.get(alike);
            if (kind == null) {
                kind = new SmallWrite(transaction, frame);
                ALL.put(alike, kind);
                if (ALL.size() > KEPT) {
                    ALL.remove(ALL.keySet().iterator().next());
                }
            }
            return kind;
        }
    }

    private static boolean suits(Metadata metadata) {
        Iterator keys = ((MapOps) metadata.configuration()).keysIterator();
        while (keys.hasNext()) {
            String key = (String) keys.next();
            if (!key.startsWith("ingest.") && !KNOWN.contains(key)) {
                return false;
            }
        }
        // A column of which more is said is generated, checked or counted.
        for (int i = 0; i < metadata.schema().fields().length; i++) {
            if (!metadata.schema().fields()[i].metadata().equals(org.apache.spark.sql.types.Metadata.empty())) {
                return false;
            }
        }
        return ((IterableOnceOps) metadata.partitionColumns()).isEmpty();
    }
}
