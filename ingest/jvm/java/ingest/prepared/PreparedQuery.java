package ingest.prepared;

import org.apache.spark.rdd.RDD;
import java.io.Serializable;
import org.apache.spark.Dependency;
import org.apache.spark.NarrowDependency;
import org.apache.spark.OneToOneDependency;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeMap$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.plans.physical.SinglePartition$;
import org.apache.spark.sql.catalyst.types.DataTypeUtils$;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileScanRDD;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.types.StructType;
import scala.Function2;
import scala.Option;
import scala.collection.IterableOnceOps;
import scala.collection.Iterator;
import scala.collection.immutable.$colon$colon;
import scala.collection.immutable.List;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Range$;
import scala.collection.immutable.Seq;
import scala.math.BigInt$;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction2;

/** The one partition of an answer depends on all partitions of its inputs. */
final class AllPartitions extends NarrowDependency {
    private final int parts;

    AllPartitions(RDD rows) {
        super(rows);
        this.parts = rows.partitions().length;
    }

    public Seq getParents(int part) {
        return Range$.MODULE$.apply(0, parts);
    }
}

/** Joins objects in JSON to one array. Not a lambda: Spark cleans those before it sends them to tasks. */
final class JsonArray extends AbstractFunction2 implements Serializable {
    public Object apply(Object context, Object rows) {
        StringBuilder listed = new StringBuilder("[");
        Iterator all = (Iterator) rows;
        while (all.hasNext()) {
            listed.append(listed.length() == 1 ? "" : ",").append(((InternalRow) all.next()).getUTF8String(0));
        }
        return listed.append("]").toString();
    }
}

/** The result of a plan with slots for given rows: computed in one task, without planning. */
public final class PreparedQuery extends RDD {
    private PreparedPlan plan;
    private RDD[] given;
    // Kept apart from the plan, which is let go once the rows are checkpointed.
    private final transient Partition[] parts;

    private PreparedQuery(PreparedPlan plan, java.util.List frames) {
        this(plan, rowsOf(frames));
    }

    private PreparedQuery(PreparedPlan plan, RDD[] given) {
        super(given[0].context(), allPartitionsOf(given), ClassTag$.MODULE$.apply(InternalRow.class));
        this.plan = plan;
        this.given = given;
        Partition[][] all = new Partition[given.length][];
        for (int i = 0; i < given.length; i++) {
            all[i] = given[i].partitions();
        }
        this.parts = new Partition[] {new PreparedPart(all)};
    }

    /** Returns the schemas of frames, as one field for each. */
    public static StructType columns(java.util.List frames) {
        StructType all = new StructType();
        for (int i = 0; i < frames.size(); i++) {
            all = all.add(String.valueOf(i), ((Dataset) frames.get(i)).schema());
        }
        return all;
    }

    /** Returns a frame over a slot for each of these schemas. */
    public static java.util.List slots(SparkSession session, StructType columns) {
        java.util.List made = new java.util.ArrayList();
        for (int i = 0; i < columns.fields().length; i++) {
            StructType own = (StructType) columns.fields()[i].dataType();
            RDD slot = new PreparedSlot(session.sparkContext(), ClassTag$.MODULE$.apply(InternalRow.class));
            made.add(frame(session, DataTypeUtils$.MODULE$.toAttributes(own), slot));
        }
        return made;
    }

    /** Returns the plan of `planned`, a query over `slots`; null if it can't be run again. */
    public static PreparedPlan plan(Dataset planned, java.util.List slots) {
        RDD plan = repeatable(planned);
        return plan == null ? null : prepared(planned, plan, rowsOf(slots));
    }

    /** Returns the result of `plan`, the plan of `planned`, for these frames. `once`: it is checkpointed. */
    public static Dataset answer(Dataset planned, PreparedPlan plan, java.util.List frames, boolean once) {
        RDD rows = new PreparedQuery(plan, frames);
        Seq output = planned.queryExecution().analyzed().output();
        return frame((SparkSession) planned.sparkSession(), output, once ? rows.localCheckpoint() : rows);
    }

    /** Returns the result of a plan whose rows are objects in JSON, as a JSON array. */
    public static String toJson(PreparedPlan plan, java.util.List frames) {
        RDD rows = new PreparedQuery(plan, frames);
        return ((String[]) run("small query as JSON", rows, new JsonArray(), String.class))[0];
    }

    /** Runs a job over the partitions of `rows`. Returns an array of their results. `name`: shown in Spark's UI. */
    public static Object run(String name, RDD rows, Function2 task, Class kind) {
        rows.context().setCallSite(name);
        try {
            return rows.context().runJob(rows, task, ClassTag$.MODULE$.apply(kind));
        } finally {
            rows.context().clearCallSite();
        }
    }

    /** Returns the plan of `planned`, a row-by-row query over files; null if it can't be run over other files. */
    public static PreparedPlan scan(Dataset planned) {
        RDD plan = repeatable(planned);
        RDD step = plan;
        while (step != null && !(step instanceof FileScanRDD)) {
            Seq below = step.dependencies();
            boolean alone = below.size() == 1 && below.head() instanceof OneToOneDependency;
            step = alone ? ((Dependency) below.head()).rdd() : null;
        }
        return step == null ? null : prepared(planned, plan, new RDD[0]);
    }

    /** Returns the result of `plan`, the plan of `planned`, for these files. */
    public static Dataset scanned(Dataset planned, PreparedPlan plan, FileIndex files) {
        SparkSession session = planned.sparkSession();
        return frame(session, planned.queryExecution().analyzed().output(),
            new PreparedScan(session.sparkContext(), plan, PreparedScan.all(files)));
    }

    private static PreparedPlan prepared(Dataset planned, RDD plan, RDD[] slots) {
        return new PreparedPlan(plan, slots, planned.sparkSession().sessionState().conf());
    }

    /** Returns the rows of a plan that can be run again; null for any other. */
    private static RDD repeatable(Dataset planned) {
        SparkPlan executed = planned.queryExecution().executedPlan();
        return isRepeatable(executed) ? executed.execute() : null;
    }

    /** Returns true if a plan can be run again. Shuffles, broadcasts and subqueries keep the rows of their
     * first run. */
    private static boolean isRepeatable(SparkPlan plan) {
        if (plan instanceof Exchange || ((IterableOnceOps) plan.subqueries()).nonEmpty()) {
            return false;
        }
        Iterator below = plan.children().iterator();
        while (below.hasNext()) {
            if (!isRepeatable((SparkPlan) below.next())) {
                return false;
            }
        }
        return true;
    }

    /** Returns a frame of rows in one partition. With a size, for without one Spark would shuffle them for a join. */
    private static Dataset frame(SparkSession session, Seq output, RDD rows) {
        Seq none = (Seq) (Object) Nil$.MODULE$;
        Option few = Option.apply(
            new Statistics(BigInt$.MODULE$.apply(64), Option.empty(), AttributeMap$.MODULE$.apply(none), false));
        LogicalPlan plan = new LogicalRDD(
            output, rows, SinglePartition$.MODULE$, none, false, Option.empty(), session, few, Option.empty());
        return Dataset$.MODULE$.ofRows(session, plan);
    }

    /** Returns the rows of a frame; of an answer without planning. */
    public static RDD rowsOf(Dataset frame) {
        LogicalPlan plan = frame.queryExecution().analyzed();
        return plan instanceof LogicalRDD ? ((LogicalRDD) plan).rdd() : frame.queryExecution().toRdd();
    }

    private static RDD[] rowsOf(java.util.List frames) {
        RDD[] rows = new RDD[frames.size()];
        for (int i = 0; i < rows.length; i++) {
            rows[i] = rowsOf((Dataset) frames.get(i));
        }
        return rows;
    }

    private static Seq allPartitionsOf(RDD[] given) {
        List found = (List) (Object) Nil$.MODULE$;
        for (int i = 0; i < given.length; i++) {
            found = new $colon$colon(new AllPartitions(given[i]), found);
        }
        return found;
    }

    public Partition[] getPartitions() {
        return parts;
    }

    public Iterator compute(Partition split, TaskContext context) {
        return plan.rowsOf(given, ((PreparedPart) split).given, context);
    }

    public void clearDependencies() {
        super.clearDependencies();
        plan = null;
        given = null;
    }
}
