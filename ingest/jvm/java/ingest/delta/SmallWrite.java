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

/** A file that a task opens at its first row. `folder`: the table's; `name`: the beginning of the file's name. */
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

    /** Writes a row. Returns true for the first one. */
    boolean write(InternalRow row) {
        boolean first = writer == null;
        if (first) {
            writer = kind.factory.newInstance(path.toString(), kind.columns, attempt);
        }
        writer.write(row);
        return first;
    }

    /** Closes the file and returns its size in bytes; 0 if there is none. */
    long close() throws java.io.IOException {
        if (writer == null) {
            return 0;
        }
        writer.close();
        return path.getFileSystem(attempt.getConfiguration()).getFileStatus(path).getLen();
    }
}

/** Writes the rows of one partition. Returns the actions of its files. */
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
        WriteTaskStatsTracker tracker = ((DeltaJobStatisticsTracker) statistics).newTaskInstance();
        while (rows.hasNext()) {
            InternalRow row = (InternalRow) rows.next();
            if (kind.changeType >= 0 && !row.isNullAt(kind.changeType)) {
                changes.write(row);
            } else {
                if (table.write(row)) {
                    tracker.newFile(table.name);
                }
                tracker.newRow(table.name, row);
            }
        }
        List actions = new ArrayList();
        try {
            long size = table.close();
            if (size > 0) {
                DeltaFileStatistics found = (DeltaFileStatistics) tracker.getFinalStats(0);
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

/** Runs SmallFileWriter in a task. */
final class SmallWriteTask extends AbstractFunction2 implements java.io.Serializable {
    private final SmallWrite kind;
    private final String folder;

    SmallWriteTask(SmallWrite kind, String folder) {
        this.kind = kind;
        this.folder = folder;
    }

    public Object apply(Object context, Object rows) {
        SmallFileWriter writer = new SmallFileWriter(kind, folder, (Iterator) rows);
        return SQLConf$.MODULE$.withExistingConf(kind.session.conf(), writer);
    }
}

/**
 * Writes few rows to files of a Delta table, each by the task that computes its rows. One instance serves all tables
 * with the same columns and properties.
 */
public final class SmallWrite extends SharedByTasks {
    private static final int MOST_INSTANCES = 256;
    private static final String[] METRICS = {"numFiles", "numOutputBytes", "numOutputRows"};
    private static final Map INSTANCES = new LinkedHashMap(16, 0.75f, true);
    // Properties that a table may have to be written here. Others may require more of a writer.
    private static final List SUPPORTED = Arrays.asList(new String[] {
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

    /** Writes `frame` to new files of the transaction's table, one for each partition. Returns their `FileAction`s;
     * null if the table requires more of a writer. */
    public static List written(OptimisticTransaction transaction, Dataset frame) throws java.io.IOException {
        if (!isSupported(transaction.metadata())) {
            return null;
        }
        SmallWrite kind = of(transaction, frame);
        RDD rows = PreparedQuery.rowsOf(frame);
        SmallWriteTask task = new SmallWriteTask(kind, transaction.deltaLog().dataPath().toString());
        Object[] parts = (Object[]) PreparedQuery.run("small write", rows, task, Object[].class);
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
        registerMetrics(transaction, rows.context(), new long[] {files, bytes, count});
        return actions;
    }

    /** Registers the metrics that the table's history shows for the commit. */
    private static void registerMetrics(OptimisticTransaction transaction, SparkContext context, long[] counts) {
        scala.collection.immutable.Map metrics = (scala.collection.immutable.Map) Map$.MODULE$.empty();
        for (int i = 0; i < counts.length; i++) {
            SQLMetric metric = SQLMetrics$.MODULE$.createMetric(context, METRICS[i]);
            metric.set(counts[i]);
            metrics = (scala.collection.immutable.Map) metrics.updated(METRICS[i], metric);
        }
        transaction.registerSQLMetrics(SparkSession.active(), metrics);
    }

    /** Returns the instance for tables like this one. */
    private static SmallWrite of(OptimisticTransaction transaction, Dataset frame) throws java.io.IOException {
        List key = Arrays.asList(new Object[] {
            frame.schema(), transaction.metadata().configuration(), transaction.metadata().schemaString(),
            Integer.valueOf(System.identityHashCode(frame.sparkSession()))});
        synchronized (INSTANCES) {
            SmallWrite kind = (SmallWrite) INSTANCES.get(key);
            if (kind == null) {
                kind = new SmallWrite(transaction, frame);
                INSTANCES.put(key, kind);
                if (INSTANCES.size() > MOST_INSTANCES) {
                    INSTANCES.remove(INSTANCES.keySet().iterator().next());
                }
            }
            return kind;
        }
    }

    private static boolean isSupported(Metadata metadata) {
        Iterator keys = ((MapOps) metadata.configuration()).keysIterator();
        while (keys.hasNext()) {
            String key = (String) keys.next();
            if (!key.startsWith("ingest.") && !SUPPORTED.contains(key)) {
                return false;
            }
        }
        // Generated, constrained, identity and mapped columns have metadata.
        for (int i = 0; i < metadata.schema().fields().length; i++) {
            if (!metadata.schema().fields()[i].metadata().equals(org.apache.spark.sql.types.Metadata.empty())) {
                return false;
            }
        }
        return ((IterableOnceOps) metadata.partitionColumns()).isEmpty();
    }
}
