package ingest.prepared;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.sql.internal.SQLConf;

/** The settings of a session as tasks over few rows use them. Spark's own SQLConf loses them when it is serialized. */
public final class SessionSettings implements Serializable {
    private final HashMap values;
    private transient SQLConf made;

    public SessionSettings(SQLConf session) {
        synchronized (session.settings()) {
            values = new HashMap(session.settings());
        }
        // Beside the code of its plan, a task generates code that is not cached: for few rows that takes longer than to
        // interpret it.
        values.put("spark.sql.codegen.factoryMode", "NO_CODEGEN");
    }

    public void set(String name, String value) {
        values.put(name, value);
    }

    public synchronized SQLConf conf() {
        if (made == null) {
            SQLConf conf = new SQLConf();
            for (Iterator all = values.entrySet().iterator(); all.hasNext();) {
                Map.Entry entry = (Map.Entry) all.next();
                conf.setConfString((String) entry.getKey(), (String) entry.getValue());
            }
            made = conf;
        }
        return made;
    }
}
