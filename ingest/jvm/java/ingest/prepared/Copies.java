package ingest.prepared;

import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.Deque;
import java.util.concurrent.ConcurrentLinkedDeque;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * Copies of an object that one task at a time can use, such as a plan. Spark reads one for each task; here a copy goes
 * from task to task in a JVM, for to read it from its bytes takes longer than few rows do.
 */
public final class Copies implements Serializable {
    private final byte[] bytes;
    private transient Deque free = new ConcurrentLinkedDeque();

    public Copies(Object original) {
        ByteBuffer written = SparkEnv.get().closureSerializer().newInstance().serialize(original, any());
        this.bytes = new byte[written.remaining()];
        written.get(bytes);
    }

    private void readObject(ObjectInputStream in) throws IOException, ClassNotFoundException {
        in.defaultReadObject();
        free = new ConcurrentLinkedDeque();
    }

    /** Returns a copy that no other task has until it is given back. Its accumulators belong to no task, which it
     * outlives. */
    public Object take() {
        Object kept = free.poll();
        if (kept != null) {
            return kept;
        }
        TaskContext context = TaskContext$.MODULE$.get();
        TaskContext$.MODULE$.unset();
        try {
            ClassLoader loader = Thread.currentThread().getContextClassLoader();
            return SparkEnv.get().closureSerializer().newInstance().deserialize(ByteBuffer.wrap(bytes), loader, any());
        } finally {
            TaskContext$.MODULE$.setTaskContext(context);
        }
    }

    /** Lets the next task take `copy`. One whose task failed, which may have left anything in it, is not given back. */
    public void giveBack(Object copy) {
        free.push(copy);
    }

    private static ClassTag any() {
        return ClassTag$.MODULE$.apply(Object.class);
    }
}
