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

/** The one part of an answer needs all parts of what it is made of. */
final class PreparedNeeds extends NarrowDependency {
    private final int parts;

    PreparedNeeds(RDD rows) {
        super(rows);
        this.parts = rows.partitions().length;
    }

    public Seq getParents(int part) {
        return Range$.MODULE$.apply(0, parts);
    }
}

/** Objects in JSON as a list of them. A closure of Scala's would be taken apart before it goes to the task. */
final class PreparedTold extends AbstractFunction2 implements Serializable {
    public Object apply(Object context, Object rows) {
        StringBuilder listed = new StringBuilder("[");
        Iterator all = (Iterator) rows;
        while (all.hasNext()) {
            listed.append(listed.length() == 1 ? "" : ",").append(((InternalRow) all.next()).getUTF8String(0));
        }
        return listed.append("]").toString();
    }
}

/** What a plan with slots makes of the rows that it is given: in one task, and without another plan. */
public final class PreparedQuery extends RDD {
    private PreparedPlan plan;
    private RDD[] given;
    // Known from the start: once its rows are computed, who still asks for its parts finds nothing else here.
    private final transient Partition[] parts;

    private PreparedQuery(PreparedPlan plan, java.util.List frames) {
        this(plan, rowsOf(frames));
    }

    private PreparedQuery(PreparedPlan plan, RDD[] given) {
        super(given[0].context(), needs(given), ClassTag$.MODULE$.apply(InternalRow.class));
        this.plan = plan;
        this.given = given;
        Partition[][] all = new Partition[given.length][];
        for (int i = 0; i < given.length; i++) {
            all[i] = given[i].partitions();
        }
        this.parts = new Partition[] {new PreparedPart(all)};
    }

    /** The columns of frames, one field for each of them. */
    public static StructType columns(java.util.List frames) {
        StructType all = new StructType();
        for (int i = 0; i < frames.size(); i++) {
            all = all.add(String.valueOf(i), ((Dataset) frames.get(i)).schema());
        }
        return all;
    }

    /** For each frame of such columns one over a slot. */
    public static java.util.List slots(SparkSession session, StructType columns) {
        java.util.List made = new java.util.ArrayList();
        for (int i = 0; i < columns.fields().length; i++) {
            StructType own = (StructType) columns.fields()[i].dataType();
            RDD slot = new PreparedSlot(session.sparkContext(), ClassTag$.MODULE$.apply(InternalRow.class));
            made.add(frame(session, DataTypeUtils$.MODULE$.toAttributes(own), slot));
        }
        return made;
    }

    /** The plan of `planned`, a frame made of `slots`; null where it can't be asked again. */
    public static PreparedPlan plan(Dataset planned, java.util.List slots) {
        RDD plan = again(planned);
        return plan == null ? null : prepared(planned, plan, rowsOf(slots));
    }

    /** What `plan`, that of `planned`, is of the rows of these frames; if `once`, they are computed once. */
    public static Dataset answer(Dataset planned, PreparedPlan plan, java.util.List frames, boolean once) {
        RDD rows = new PreparedQuery(plan, frames);
        Seq output = planned.queryExecution().analyzed().output();
        return frame((SparkSession) planned.sparkSession(), output, once ? rows.localCheckpoint() : rows);
    }

    /** The same rows, where each is an object in JSON: a list of them in JSON. */
    public static String told(PreparedPlan plan, java.util.List frames) {
        return ((String[]) ran("few rows told", new PreparedQuery(plan, frames), new PreparedTold(), String.class))[0];
    }

    /** What a task makes of each part of `rows`, in a job that Spark's pages and logs know by this name. */
    public static Object ran(String name, RDD rows, Function2 task, Class kind) {
        rows.context().setCallSite(name);
        try {
            return rows.context().runJob(rows, task, ClassTag$.MODULE$.apply(kind));
        } finally {
            rows.context().clearCallSite();
        }
    }

    /** The plan of `planned`, of the rows of files, each for itself; null where it can't be asked of other files. */
    public static PreparedPlan scan(Dataset planned) {
        RDD plan = again(planned);
        RDD step = plan;
        while (step != null && !(step instanceof FileScanRDD)) {
            Seq below = step.dependencies();
            boolean alone = below.size() == 1 && below.head() instanceof OneToOneDependency;
            step = alone ? ((Dependency) below.head()).rdd() : null;
        }
        return step == null ? null : prepared(planned, plan, new RDD[0]);
    }

    /** What `plan`, that of `planned`, is of these files. */
    public static Dataset scanned(Dataset planned, PreparedPlan plan, FileIndex files) {
        SparkSession session = planned.sparkSession();
        return frame(session, planned.queryExecution().analyzed().output(),
            new PreparedScan(session.sparkContext(), plan, PreparedScan.all(files)));
    }

    private static PreparedPlan prepared(Dataset planned, RDD plan, RDD[] slots) {
        return new PreparedPlan(plan, slots, planned.sparkSession().sessionState().conf());
    }

    /** The rows of a plan, if it may be asked again. */
    private static RDD again(Dataset planned) {
        SparkPlan executed = planned.queryExecution().executedPlan();
        return repeats(executed) ? executed.execute() : null;
    }

    /** Whether a plan may be asked again: what goes from task to task is kept, and would come again as it was. */
    private static boolean repeats(SparkPlan plan) {
        if (plan instanceof Exchange || ((IterableOnceOps) plan.subqueries()).nonEmpty()) {
            return false;
        }
        Iterator below = plan.children().iterator();
        while (below.hasNext()) {
            if (!repeats((SparkPlan) below.next())) {
                return false;
            }
        }
        return true;
    }

    /** These rows, which lie in one part, as a frame. Of unknown size Spark would share them out for a join. */
    private static Dataset frame(SparkSession session, Seq output, RDD rows) {
        Seq none = (Seq) (Object) Nil$.MODULE$;
        Option few = Option.apply(
            new Statistics(BigInt$.MODULE$.apply(64), Option.empty(), AttributeMap$.MODULE$.apply(none), false));
        LogicalPlan plan = new LogicalRDD(
            output, rows, SinglePartition$.MODULE$, none, false, Option.empty(), session, few, Option.empty());
        return Dataset$.MODULE$.ofRows(session, plan);
    }

    /** The rows of a frame: of an answer without a plan of their own. */
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

    private static Seq needs(RDD[] given) {
        List found = (List) (Object) Nil$.MODULE$;
        for (int i = 0; i < given.length; i++) {
            found = new $colon$colon(new PreparedNeeds(given[i]), found);
        }
        return found;
    }

    public Partition[] getPartitions() {
        return parts;
    }

    public Iterator compute(Partition split, TaskContext context) {
        return plan.of(given, ((PreparedPart) split).given, context);
    }

    public void clearDependencies() {
        super.clearDependencies();
        plan = null;
        given = null;
    }
}
