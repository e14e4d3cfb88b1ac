package org.apache.spark.rdd;

import org.apache.spark.NarrowDependency;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
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
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.collection.immutable.List;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Range$;
import scala.collection.immutable.Seq;
import scala.math.BigInt$;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/** The one part of an answer: the parts of the plan, and those of the rows that each slot is given. */
final class PreparedPart implements Partition {
    final Partition[] plan;
    final Partition[][] given;

    PreparedPart(Partition[] plan, Partition[][] given) {
        this.plan = plan;
        this.given = given;
    }

    public int index() {
        return 0;
    }

    public int hashCode() {
        return 0;
    }

    public boolean equals(Object other) {
        return this == other;
    }

    public boolean org$apache$spark$Partition$$super$equals(Object other) {
        return this == other;
    }
}

/** Rows of several parts, one part after the other. */
final class PreparedParts extends AbstractIterator {
    private final RDD rows;
    private final Partition[] parts;
    private final TaskContext context;
    private Iterator open;
    private int next;

    PreparedParts(RDD rows, Partition[] parts, TaskContext context) {
        this.rows = rows;
        this.parts = parts;
        this.context = context;
    }

    public boolean hasNext() {
        while ((open == null || !open.hasNext()) && next < parts.length) {
            open = rows.iterator(parts[next++], context);
        }
        return open != null && open.hasNext();
    }

    public Object next() {
        hasNext();
        return open.next();
    }
}

/** Where a plan that was made before its rows were there finds them: in each task, those that it is given there. */
final class PreparedSlot extends RDD {
    private transient RDD rows;
    private transient Partition[] parts;

    PreparedSlot(SparkContext context, ClassTag kind) {
        super(context, Nil$.MODULE$, kind);
    }

    /** In the task's own copy of the plan. */
    void fill(RDD rows, Partition[] parts) {
        this.rows = rows;
        this.parts = parts;
    }

    public Partition[] getPartitions() {
        return new Partition[] {new PreparedPart(null, null)};
    }

    public Iterator compute(Partition split, TaskContext context) {
        return new PreparedParts(rows, parts, context);
    }
}

/** Rows that may be kept: a plan writes each of its rows over the one before. */
final class PreparedCopies extends AbstractIterator {
    private final Iterator rows;

    PreparedCopies(Iterator rows) {
        this.rows = rows;
    }

    public boolean hasNext() {
        return rows.hasNext();
    }

    public Object next() {
        return ((InternalRow) rows.next()).copy();
    }
}

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

/** What a plan with slots makes of the rows that it is given: in one task, and without another plan. */
public final class Prepared extends RDD {
    private RDD plan;
    private PreparedSlot[] slots;
    private RDD[] given;
    // Known from the start: once its rows are computed, who still asks for its parts finds nothing else here.
    private final transient Partition[] parts;

    private Prepared(RDD plan, PreparedSlot[] slots, RDD[] given) {
        super(plan.context(), needs(plan, given), plan.elementClassTag());
        this.plan = plan;
        this.slots = slots;
        this.given = given;
        Partition[][] all = new Partition[given.length][];
        for (int i = 0; i < given.length; i++) {
            all[i] = given[i].partitions();
        }
        this.parts = new Partition[] {new PreparedPart(plan.partitions(), all)};
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

    /** What `planned`, made of `slots`, is of the rows of other frames; if `once`, they are computed once. */
    public static Dataset answer(Dataset planned, java.util.List slots, java.util.List frames, boolean once) {
        PreparedSlot[] free = new PreparedSlot[slots.size()];
        RDD[] given = new RDD[free.length];
        for (int i = 0; i < free.length; i++) {
            free[i] = (PreparedSlot) rowsOf((Dataset) slots.get(i));
            given[i] = rowsOf((Dataset) frames.get(i));
        }
        RDD rows = new Prepared(planned.queryExecution().toRdd(), free, given);
        Seq output = planned.queryExecution().analyzed().output();
        return frame((SparkSession) planned.sparkSession(), output, once ? rows.localCheckpoint() : rows);
    }

    /** Whether a plan may be asked again: what goes from task to task is kept, and would come again as it was. */
    public static boolean repeats(SparkPlan plan) {
        if (plan instanceof Exchange || plan.subqueries().nonEmpty()) {
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
        Option few = Option.apply(
            new Statistics(BigInt$.MODULE$.apply(64), Option.empty(), AttributeMap$.MODULE$.apply(Nil$.MODULE$), false));
        LogicalPlan plan = new LogicalRDD(
            output, rows, SinglePartition$.MODULE$, Nil$.MODULE$, false, Option.empty(), session, few, Option.empty());
        return Dataset$.MODULE$.ofRows(session, plan);
    }

    private static RDD rowsOf(Dataset frame) {
        LogicalPlan plan = frame.queryExecution().analyzed();
        return plan instanceof LogicalRDD ? ((LogicalRDD) plan).rdd() : frame.queryExecution().toRdd();
    }

    private static Seq needs(RDD plan, RDD[] given) {
        List found = Nil$.MODULE$;
        for (int i = 0; i < given.length; i++) {
            found = found.prepended(new PreparedNeeds(given[i]));
        }
        return found.prepended(new PreparedNeeds(plan));
    }

    public Partition[] getPartitions() {
        return parts;
    }

    public Iterator compute(Partition split, TaskContext context) {
        PreparedPart part = (PreparedPart) split;
        for (int i = 0; i < slots.length; i++) {
            slots[i].fill(given[i], part.given[i]);
        }
        return new PreparedCopies(new PreparedParts(plan, part.plan, context));
    }

    public void clearDependencies() {
        super.clearDependencies();
        plan = null;
        slots = null;
        given = null;
    }
}
