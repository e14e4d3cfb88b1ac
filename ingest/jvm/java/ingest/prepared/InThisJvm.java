package ingest.prepared;

import java.io.Serializable;
import java.lang.ref.WeakReference;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.UUID;

/** What tasks that run in the driver's JVM find there by its name: to read it anew from its bytes would take longer than
 * what they do with it. Who gives it to a task keeps it until the task is done. */
public abstract class InThisJvm implements Serializable {
    private static final Map HERE = new HashMap();

    private final String name = UUID.randomUUID().toString();

    protected InThisJvm() {
        synchronized (HERE) {
            Iterator all = HERE.values().iterator();
            while (all.hasNext()) {
                if (((WeakReference) all.next()).get() == null) {
                    all.remove();
                }
            }
            HERE.put(name, new WeakReference(this));
        }
    }

    // Not private: Janino would give it another name.
    protected Object readResolve() {
        Object found;
        synchronized (HERE) {
            WeakReference kept = (WeakReference) HERE.get(name);
            found = kept == null ? null : kept.get();
        }
        if (found == null) {
            throw new IllegalStateException(getClass().getName() + " is gone: who gave it to this task has let it go");
        }
        return found;
    }
}
