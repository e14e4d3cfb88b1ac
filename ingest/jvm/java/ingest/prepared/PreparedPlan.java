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

/** The one part of an answer, and of a slot: the parts of the rows that each slot is given. A slot has none of its own:
 * it is told where it is filled. */
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

/** Where a plan that was made before its rows were there finds them. */
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

/** A copy of a plan, of which one task at a time has the use: what its slots are filled with is that task's. */
final class PreparedCopy implements Serializable {
    final RDD plan;
    final RDD[] slots;

    PreparedCopy(RDD plan, RDD[] slots) {
        this.plan = plan;
        this.slots = slots;
    }
}

/** What a copy makes of its rows. They may be kept: a plan writes each of its rows over the one before. */
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
        // One that failed, or of which a task has not read all, is not used again.
        plan.free(copy);
        copy = null;
        rows = null;
        return false;
    }

    public Object next() {
        return ((InternalRow) rows.next()).copy();
    }
}

/** A plan with slots. */
public final class PreparedPlan extends SharedByTasks {
    private final Partition[] parts;
    private final Copies copies;
    private final SessionSettings settings;

    /** `settings`: those of the plan's session. */
    PreparedPlan(RDD plan, RDD[] slots, SQLConf settings) {
        super(plan.context());
        this.parts = plan.partitions();
        needed(plan);
        this.copies = new Copies(new PreparedCopy(plan, slots));
        this.settings = new SessionSettings(settings);
    }

    /** What it is of these parts of other rows, each of which is for one of its slots. */
    Iterator of(RDD[] rows, Partition[][] given, TaskContext context) {
        PreparedCopy copy = (PreparedCopy) copies.take();
        for (int i = 0; i < copy.slots.length; i++) {
            ((PreparedSlot) copy.slots[i]).fill(rows[i], given[i]);
        }
        return started(copy, parts, context);
    }

    /** What it is, without a slot, of other parts than its own. */
    Iterator of(Partition[] parts, TaskContext context) {
        return started((PreparedCopy) copies.take(), parts, context);
    }

    private Iterator started(PreparedCopy copy, Partition[] parts, TaskContext context) {
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

    /** What a copy can't find out any more: on what each of its steps depends. */
    private static void needed(RDD step) {
        Iterator below = step.dependencies().iterator();
        while (below.hasNext()) {
            needed(((Dependency) below.next()).rdd());
        }
    }
}

/** All that a plan makes for itself before its first row is made by then. */
final class PreparedStart extends AbstractFunction0 {
    private final Iterator rows;

    PreparedStart(Iterator rows) {
        this.rows = rows;
    }

    public Object apply() {
        return Boolean.valueOf(rows.hasNext());
    }
}
