package org.apache.spark.rdd;

import java.io.Serializable;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentLinkedDeque;
import org.apache.spark.Dependency;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf$;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;
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

/** The one part of a slot. What is in it, the slot is told where it is filled. */
final class PreparedPlace implements Partition {
    public int index() {
        return 0;
    }

    public int hashCode() {
        return 0;
    }

    public boolean equals(Object other) {
        return other instanceof PreparedPlace;
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
        return new Partition[] {new PreparedPlace()};
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

/** A plan with slots, and its copies. To tasks, which run in the same JVM, goes its name alone: to read a plan anew from
 * its bytes takes longer than to ask it of a few rows. */
public final class PreparedPlan implements Serializable {
    private static final String INTERPRETED = "spark.sql.codegen.factoryMode";
    private static final Map HERE = new HashMap();

    private final String name = UUID.randomUUID().toString();
    private final transient Partition[] parts;
    private final transient byte[] bytes;
    private final transient SQLConf settings;
    private final transient Deque free = new ConcurrentLinkedDeque();

    /** `settings`: those of the plan's session. */
    PreparedPlan(RDD plan, RDD[] slots, SQLConf settings) {
        this.parts = plan.partitions();
        needed(plan);
        ByteBuffer written = SparkEnv.get().closureSerializer().newInstance()
            .serialize(new PreparedCopy(plan, slots), kind());
        this.bytes = new byte[written.remaining()];
        written.get(bytes);
        // What a task generates of code beside that of the plan, it generates anew each time: longer than few rows take.
        this.settings = settings.clone();
        this.settings.setConfString(INTERPRETED, "NO_CODEGEN");
        synchronized (HERE) {
            // Of plans that nobody asks any more.
            java.util.Iterator all = HERE.values().iterator();
            while (all.hasNext()) {
                if (((WeakReference) all.next()).get() == null) {
                    all.remove();
                }
            }
            HERE.put(name, new WeakReference(this));
        }
    }

    // Not private: Janino would give it another name.
    Object readResolve() {
        synchronized (HERE) {
            return ((WeakReference) HERE.get(name)).get();
        }
    }

    /** What it is of these parts of other rows, each of which is for one of its slots. */
    Iterator of(RDD[] rows, Partition[][] given, TaskContext context) {
        Object kept = free.poll();
        PreparedCopy copy = kept == null ? copied(context) : (PreparedCopy) kept;
        for (int i = 0; i < copy.slots.length; i++) {
            ((PreparedSlot) copy.slots[i]).fill(rows[i], given[i]);
        }
        PreparedRows answer = new PreparedRows(this, copy, new PreparedParts(copy.plan, parts, context));
        SQLConf$.MODULE$.withExistingConf(settings, new PreparedStart(answer));
        return answer;
    }

    void free(PreparedCopy copy) {
        for (int i = 0; i < copy.slots.length; i++) {
            ((PreparedSlot) copy.slots[i]).fill(null, null);
        }
        free.push(copy);
    }

    /** The counters of a copy belong to no task: it outlives them. */
    private PreparedCopy copied(TaskContext context) {
        TaskContext$.MODULE$.unset();
        try {
            ClassLoader loader = Thread.currentThread().getContextClassLoader();
            return (PreparedCopy) SparkEnv.get().closureSerializer().newInstance()
                .deserialize(ByteBuffer.wrap(bytes), loader, kind());
        } finally {
            TaskContext$.MODULE$.setTaskContext(context);
        }
    }

    /** What a copy can't find out any more: on what each of its steps depends. */
    private static void needed(RDD step) {
        Iterator below = step.dependencies().iterator();
        while (below.hasNext()) {
            needed(((Dependency) below.next()).rdd());
        }
    }

    private static ClassTag kind() {
        return ClassTag$.MODULE$.apply(PreparedCopy.class);
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
