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
 * What is told of the groups of some events (one table, one schema, one kind each), counted while the events pass by on
 * their way to somewhere. Each task has a tally of its own; they are added up where it was made.
 */
public final class BatchStats extends AccumulatorV2 {
    /** Of values that are kept because they tell something new of a shape, in bytes. */
    private static final long MOST_KEPT = 4 << 20;

    private final HashMap groups = new HashMap();
    /** Whether it has counted what is no event of a task, or would have to keep too much. */
    private boolean spoilt;
    private long kept;

    private transient TaskStats passing;

    /** An event passes by: the columns that `tally.py` names. Gives back `batch`. */
    public synchronized long saw(InternalRow event, long batch) {
        if (TaskContext.get() == null) {
            spoilt = true;
        }
        if (!spoilt) {
            if (passing == null) {
                passing = new TaskStats(groups);
            }
            kept += passing.saw(event);
            if (kept > MOST_KEPT) {
                spoil();
            }
        }
        return batch;
    }

    /** An executor sends what it has so far with each heartbeat, while the task goes on. */
    private synchronized void writeObject(ObjectOutputStream out) throws IOException {
        out.defaultWriteObject();
    }

    private void spoil() {
        spoilt = true;
        groups.clear();
        passing = null;
    }

    /** A list of groups as JSON; null where nothing can be told. */
    public String told() throws IOException {
        if (spoilt) {
            return null;
        }
        ArrayList found = new ArrayList();
        for (Iterator all = groups.values().iterator(); all.hasNext();) {
            found.add(((GroupStats) all.next()).told());
        }
        return new ObjectMapper().writeValueAsString(found);
    }

    public boolean isZero() {
        return groups.isEmpty() && !spoilt;
    }

    public AccumulatorV2 copy() {
        BatchStats other = new BatchStats();
        other.merge(this);
        return other;
    }

    /** What a task begins with. */
    public AccumulatorV2 copyAndReset() {
        return new BatchStats();
    }

    public void reset() {
        groups.clear();
        spoilt = false;
        kept = 0;
        passing = null;
    }

    public void add(Object event) {
        throw new UnsupportedOperationException();
    }

    public void merge(AccumulatorV2 other) {
        BatchStats more = (BatchStats) other;
        kept += more.kept;
        if (more.spoilt || spoilt || kept > MOST_KEPT) {
            spoil();
            return;
        }
        for (Iterator all = more.groups.keySet().iterator(); all.hasNext();) {
            Object key = all.next();
            GroupStats mine = (GroupStats) groups.get(key);
            if (mine == null) {
                mine = new GroupStats((GroupStats) more.groups.get(key));
                groups.put(key, mine);
            }
            mine.join((GroupStats) more.groups.get(key));
        }
    }

    /** Spark shows and logs the value of an accumulator: nothing of what it holds. */
    public Object value() {
        return "";
    }

    public String toString() {
        return "tally";
    }
}

/** What a task remembers from event to event. */
final class TaskStats {
    private static final UTF8String CHANGE = UTF8String.fromString("change");
    private static final UTF8String TOMBSTONE = UTF8String.fromString("tombstone");
    private static final Long SLICE = Long.valueOf(0);
    private static final int RECENT = 4;

    private final HashMap groups;
    private final GroupStats[] recent = new GroupStats[RECENT];
    private int next;
    private final HashMap partitions = new HashMap();
    private TopicPartition here;
    private final SchemaNovelty news = new SchemaNovelty();

    TaskStats(HashMap groups) {
        this.groups = groups;
    }

    /** How many bytes of it are kept. */
    long saw(InternalRow event) {
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
        if (here == null || here.number != partition || !here.topic.equals(topic)) {
            here = partition(topic, partition);
        }
        if (letter == 0 && TOMBSTONE.equals(op) && here.repeats(event, offset)) {
            table = here.table;
        }
        here.passed(letter == 'd', event, offset, table);
        GroupStats group = group(table, change ? CHANGE : op, event);
        group.saw(event, letter == 'r', here, offset);
        if (!change || group.schemaId != null) {
            return 0;
        }
        byte[] value = event.isNullAt(13) ? null : event.getBinary(13);
        news.collectInto(group.seen);
        Boolean is = (Boolean) news.call(value, SLICE, group.table, Boolean.valueOf(group.wrapped));
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
        GroupStats asked = new GroupStats(table, kind, problem, schemaId, wrapped);
        GroupStats found = (GroupStats) groups.get(asked.key());
        if (found == null) {
            found = asked;
            groups.put(asked.key(), asked);
        }
        recent[next] = found;
        next = (next + 1) % RECENT;
        return found;
    }
}
