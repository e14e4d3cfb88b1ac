package ingest.prepared;

import java.nio.ByteBuffer;
import java.util.Deque;
import java.util.concurrent.ConcurrentLinkedDeque;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/** Copies of what Spark would copy to each task, for it is not made for two at a time: each is used by one after the
 * other, as to read another one from its bytes takes longer than few rows do. */
public final class Copies {
    private final byte[] bytes;
    private final Deque free = new ConcurrentLinkedDeque();

    public Copies(Object original) {
        ByteBuffer written = SparkEnv.get().closureSerializer().newInstance().serialize(original, any());
        this.bytes = new byte[written.remaining()];
        written.get(bytes);
    }

    /** One that no other task has, until it comes back. Its counters belong to no task: it outlives them. */
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

    /** Not where its task has failed: who knows what is left in it. */
    public void giveBack(Object copy) {
        free.push(copy);
    }

    private static ClassTag any() {
        return ClassTag$.MODULE$.apply(Object.class);
    }
}
