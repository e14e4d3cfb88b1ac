package ingest.prepared;

import org.apache.spark.rdd.RDD;
import java.io.Serializable;
import org.apache.spark.Dependency;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf$;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.reflect.ClassTag;
import scala.runtime.AbstractFunction0;

/** The rows of several partitions, one after the other. */
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

/**
 * The one partition of an answer: the partitions of the rows that each slot is filled with. That of a slot
 * is empty.
 */
final class PreparedPart implements Partition {
    final Partition[][] given;

    PreparedPart(Partition[][] given) {
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

/** A leaf of a plan, filled with rows for each run. */
final class PreparedSlot extends RDD {
    private transient RDD rows;
    private transient Partition[] parts;

    PreparedSlot(SparkContext context, ClassTag kind) {
        super(context, Nil$.MODULE$, kind);
    }

    void fill(RDD rows, Partition[] parts) {
        this.rows = rows;
        this.parts = parts;
    }

    public Partition[] getPartitions() {
        return new Partition[] {new PreparedPart(new Partition[0][])};
    }

    public Iterator compute(Partition split, TaskContext context) {
        return new PreparedParts(rows, parts, context);
    }
}

/** A copy of a plan, used by one task at a time: its slots hold that task's rows. */
final class PreparedCopy implements Serializable {
    final RDD plan;
    final RDD[] slots;

    PreparedCopy(RDD plan, RDD[] slots) {
        this.plan = plan;
        this.slots = slots;
    }
}

/** The rows of a run, copied, because a plan reuses its row. */
final class PreparedRows extends AbstractIterator {
    private final PreparedPlan plan;
    private PreparedCopy copy;
    private Iterator rows;

    PreparedRows(PreparedPlan plan, PreparedCopy copy, Iterator rows) {
        this.plan = plan;
        this.copy = copy;
        this.rows = rows;
    }

    public boolean hasNext() {
        if (copy == null) {
            return false;
        }
        if (rows.hasNext()) {
            return true;
        }
        // A copy that failed, or was not read to its end, is not used again.
        plan.free(copy);
        copy = null;
        rows = null;
        return false;
    }

    public Object next() {
        return ((InternalRow) rows.next()).copy();
    }
}

/** A plan whose leaves are slots or files. */
public final class PreparedPlan extends SharedByTasks {
    private final Partition[] parts;
    private final Copies copies;
    private final SessionSettings settings;

    /** `settings`: of the plan's session. */
    PreparedPlan(RDD plan, RDD[] slots, SQLConf settings) {
        super(plan.context());
        this.parts = plan.partitions();
        computeDependencies(plan);
        this.copies = new Copies(new PreparedCopy(plan, slots));
        this.settings = new SessionSettings(settings);
    }

    /** Returns the result for other rows, one RDD and its partitions for each slot. */
    Iterator rowsOf(RDD[] rows, Partition[][] given, TaskContext context) {
        PreparedCopy copy = (PreparedCopy) copies.take();
        for (int i = 0; i < copy.slots.length; i++) {
            ((PreparedSlot) copy.slots[i]).fill(rows[i], given[i]);
        }
        return start(copy, parts, context);
    }

    /** Returns the result of a plan over files for other partitions. */
    Iterator rowsOf(Partition[] parts, TaskContext context) {
        return start((PreparedCopy) copies.take(), parts, context);
    }

    private Iterator start(PreparedCopy copy, Partition[] parts, TaskContext context) {
        PreparedRows answer = new PreparedRows(this, copy, new PreparedParts(copy.plan, parts, context));
        SQLConf$.MODULE$.withExistingConf(settings.conf(), new PreparedStart(answer));
        return answer;
    }

    void free(PreparedCopy copy) {
        for (int i = 0; i < copy.slots.length; i++) {
            ((PreparedSlot) copy.slots[i]).fill(null, null);
        }
        copies.giveBack(copy);
    }

    /** Computes the dependencies of each RDD, which a deserialized copy can't. */
    private static void computeDependencies(RDD step) {
        Iterator below = step.dependencies().iterator();
        while (below.hasNext()) {
            computeDependencies(((Dependency) below.next()).rdd());
        }
    }
}

/** Computes the first row, so that the plan initialises itself under the settings of its session. */
final class PreparedStart extends AbstractFunction0 {
    private final Iterator rows;

    PreparedStart(Iterator rows) {
        this.rows = rows;
    }

    public Object apply() {
        return Boolean.valueOf(rows.hasNext());
    }
}
