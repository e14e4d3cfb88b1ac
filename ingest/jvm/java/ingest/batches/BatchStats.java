package ingest.batches;

import com.fasterxml.jackson.databind.ObjectMapper;
import ingest.json.SchemaNovelty;
import java.io.IOException;
import java.io.ObjectOutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.AccumulatorV2;

/**
 * Statistics of the events of a batch by group (table, schema, kind of event), gathered while they are written. An
 * accumulator: Spark adds up those of the tasks in the driver.
 */
public final class BatchStats extends AccumulatorV2 {
    /** Limit of the bytes of values that are kept because they add to a schema. */
    private static final long MOST_KEPT_BYTES = 4 << 20;

    private final HashMap groups = new HashMap();
    /** True if it observed an event outside of a task, or would have to keep too many bytes. */
    private boolean incomplete;
    private long keptBytes;

    private transient TaskStats task;

    /** Counts an event, whose fields `batch_stats.py` lists. Returns `batch`. */
    public synchronized long observe(InternalRow event, long batch) throws IOException {
        if (TaskContext.get() == null) {
            incomplete = true;
        }
        if (!incomplete) {
            if (task == null) {
                task = new TaskStats(groups);
            }
            keptBytes += task.observe(event);
            if (keptBytes > MOST_KEPT_BYTES) {
                giveUp();
            }
        }
        return batch;
    }

    /** An executor sends what it has so far with each heartbeat, while the task goes on. */
    private synchronized void writeObject(ObjectOutputStream out) throws IOException {
        out.defaultWriteObject();
    }

    private void giveUp() {
        incomplete = true;
        groups.clear();
        task = null;
    }

    /** Returns the groups as a JSON array; null if not all events could be counted. */
    public String toJson() throws IOException {
        if (incomplete) {
            return null;
        }
        ArrayList found = new ArrayList();
        for (Iterator all = groups.values().iterator(); all.hasNext();) {
            found.add(((GroupStats) all.next()).toMap());
        }
        return new ObjectMapper().writeValueAsString(found);
    }

    public boolean isZero() {
        return groups.isEmpty() && !incomplete;
    }

    public AccumulatorV2 copy() {
        BatchStats other = new BatchStats();
        other.merge(this);
        return other;
    }

    /** Makes the empty accumulator of a task. */
    public AccumulatorV2 copyAndReset() {
        return new BatchStats();
    }

    public void reset() {
        groups.clear();
        incomplete = false;
        keptBytes = 0;
        task = null;
    }

    public void add(Object event) {
        throw new UnsupportedOperationException();
    }

    public void merge(AccumulatorV2 other) {
        BatchStats added = (BatchStats) other;
        keptBytes += added.keptBytes;
        if (added.incomplete || incomplete || keptBytes > MOST_KEPT_BYTES) {
            giveUp();
            return;
        }
        for (Iterator all = added.groups.keySet().iterator(); all.hasNext();) {
            Object key = all.next();
            GroupStats stats = (GroupStats) groups.get(key);
            if (stats == null) {
                stats = new GroupStats((GroupStats) added.groups.get(key));
                groups.put(key, stats);
            }
            stats.join((GroupStats) added.groups.get(key));
        }
    }

    /** Returns nothing of what it holds: Spark shows and logs the values of accumulators. */
    public Object value() {
        return "";
    }

    public String toString() {
        return "batch statistics";
    }
}

/** The state of one task between events. */
final class TaskStats {
    private static final UTF8String CHANGE = UTF8String.fromString("change");
    private static final UTF8String TOMBSTONE = UTF8String.fromString("tombstone");
    private static final Long SLICE = Long.valueOf(0);
    private static final int RECENT = 4;

    private final HashMap groups;
    private final GroupStats[] recent = new GroupStats[RECENT];
    private int next;
    private final HashMap partitions = new HashMap();
    private TopicPartition current;
    private final SchemaNovelty novelty = new SchemaNovelty();

    TaskStats(HashMap groups) {
        this.groups = groups;
    }

    /** Counts an event. Returns the number of its bytes that are kept. */
    long observe(InternalRow event) throws IOException {
        UTF8String op = event.isNullAt(1) ? null : event.getUTF8String(1);
        int letter = 0;
        if (op != null && op.numBytes() == 1) {
            letter = op.getByte(0);
        }
        boolean change = letter == 'c' || letter == 'u' || letter == 'd' || letter == 'r';
        UTF8String table = event.isNullAt(0) ? null : event.getUTF8String(0);
        UTF8String topic = event.getUTF8String(5);
        int partition = event.getInt(6);
        long offset = event.getLong(7);
        if (current == null || current.number != partition || !current.topic.equals(topic)) {
            current = partition(topic, partition);
        }
        if (letter == 0 && TOMBSTONE.equals(op) && current.repeats(event, offset)) {
            table = current.table;
        }
        current.observe(letter == 'd', event, offset, table);
        GroupStats group = group(table, change ? CHANGE : op, event);
        group.observe(event, letter == 'r', current, offset);
        if (change) {
            group.observeKey(event.isNullAt(12) ? null : event.getBinary(12));
        }
        if (!change || group.schemaId != null) {
            return 0;
        }
        byte[] value = event.isNullAt(13) ? null : event.getBinary(13);
        novelty.collectInto(group.seen);
        Boolean is = (Boolean) novelty.call(value, SLICE, group.table, Boolean.valueOf(group.wrapped));
        return is == null || is.booleanValue() ? group.keep(value, is != null) : 0;
    }

    private TopicPartition partition(UTF8String topic, int number) {
        Object key = Arrays.asList(new Object[] {topic.toString(), Integer.valueOf(number)});
        TopicPartition found = (TopicPartition) partitions.get(key);
        if (found == null) {
            found = new TopicPartition(topic.clone(), number);
            partitions.put(key, found);
        }
        return found;
    }

    private GroupStats group(UTF8String table, UTF8String kind, InternalRow event) {
        UTF8String problem = event.isNullAt(2) ? null : event.getUTF8String(2);
        Long schemaId = event.isNullAt(3) ? null : Long.valueOf(event.getLong(3));
        boolean wrapped = event.getBoolean(4);
        for (int i = 0; i < RECENT; i++) {
            if (recent[i] != null && recent[i].is(table, kind, problem, schemaId, wrapped)) {
                return recent[i];
            }
        }
        GroupStats made = new GroupStats(table, kind, problem, schemaId, wrapped);
        GroupStats found = (GroupStats) groups.get(made.key());
        if (found == null) {
            found = made;
            groups.put(made.key(), made);
        }
        recent[next] = found;
        next = (next + 1) % RECENT;
        return found;
    }
}
