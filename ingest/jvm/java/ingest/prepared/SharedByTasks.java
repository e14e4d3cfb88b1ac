package ingest.prepared;

import java.io.Serializable;
import java.lang.ref.WeakReference;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.UUID;
import org.apache.spark.SparkContext;

/**
 * An object that tasks get without reading it from its bytes where they run in the driver's JVM: to read it would take
 * longer than what they do with it. There it goes to a task by its name, and has to be referenced by the driver until
 * the task is done. Executors get its bytes.
 */
public abstract class SharedByTasks implements Serializable {
    private static final Map INSTANCES = new HashMap();

    private final transient String name;

    protected SharedByTasks(SparkContext context) {
        if (!context.isLocal()) {
            name = null;
            return;
        }
        name = UUID.randomUUID().toString();
        synchronized (INSTANCES) {
            Iterator all = INSTANCES.values().iterator();
            while (all.hasNext()) {
                if (((WeakReference) all.next()).get() == null) {
                    all.remove();
                }
            }
            INSTANCES.put(name, new WeakReference(this));
        }
    }

    protected final Object writeReplace() {
        return name == null ? this : new Reference(getClass().getName(), name);
    }

    private static final class Reference implements Serializable {
        private final String kind;
        private final String name;

        Reference(String kind, String name) {
            this.kind = kind;
            this.name = name;
        }

        private Object readResolve() {
            Object found;
            synchronized (INSTANCES) {
                WeakReference instance = (WeakReference) INSTANCES.get(name);
                found = instance == null ? null : instance.get();
            }
            if (found == null) {
                throw new IllegalStateException(kind + " is gone: the driver no longer references it");
            }
            return found;
        }
    }
}
