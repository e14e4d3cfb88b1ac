package ingest.batches;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/** Statistics of the events of one group. */
final class GroupStats implements Serializable {
    /** `key_names.MOST_KEYS`; how many more there are doesn't count. */
    private static final int MOST_KEYS = 32;

    final String table;
    final Long schemaId;
    final boolean wrapped;
    private final UTF8String tableText;
    private final UTF8String kind;
    private final UTF8String problem;

    private long count;
    private long newest = Long.MIN_VALUE;
    private boolean keyChanges;
    private TreeSet origins = new TreeSet();
    /** The names of the columns in keys, as `KeyNames` gives them. */
    private final TreeSet keys = new TreeSet();
    private long[] lowest, highest, firstRead, lastRead;
    private LogProgress earliest, furthest;
    /** For each partition, one of each task that read it. */
    private final ArrayList runs = new ArrayList();
    /** Values that added to the group's schema, and what they added; incomplete where that isn't known. */
    private final ArrayList values = new ArrayList();
    final HashSet seen = new HashSet();
    private boolean incomplete;

    private transient HashMap byPartition;
    private transient PartitionRun run;
    private transient TopicPartition ofRun;
    private transient UTF8String origin;
    private transient KeyNames keyNames;
    private transient Object lastNames;

    GroupStats(UTF8String table, UTF8String kind, UTF8String problem, Long schemaId, boolean wrapped) {
        this.tableText = table == null ? null : table.clone();
        this.table = table == null ? null : table.toString();
        this.kind = kind == null ? null : kind.clone();
        this.problem = problem == null ? null : problem.clone();
        this.schemaId = schemaId;
        this.wrapped = wrapped;
    }

    /** Makes statistics of the same group without any event. */
    GroupStats(GroupStats other) {
        this(other.tableText, other.kind, other.problem, other.schemaId, other.wrapped);
    }

    boolean is(UTF8String table, UTF8String kind, UTF8String problem, Long schemaId, boolean wrapped) {
        return this.wrapped == wrapped && same(this.schemaId, schemaId) && same(this.kind, kind)
            && same(this.problem, problem) && same(tableText, table);
    }

    private static boolean same(Object one, Object other) {
        return one == null ? other == null : one.equals(other);
    }

    Object key() {
        return Arrays.asList(new Object[] {tableText, kind, problem, schemaId, Boolean.valueOf(wrapped)});
    }

    void observe(InternalRow event, boolean read, TopicPartition partition, long offset) {
        count++;
        long[] position = position(event.getStruct(8, 7));
        lowest = lower(lowest, position);
        highest = higher(highest, position);
        if (read && !event.isNullAt(10)) {
            firstRead = lower(firstRead, position);
        }
        if (!event.isNullAt(10) && event.getBoolean(10)) {
            lastRead = higher(lastRead, position);
        }
        if (!event.isNullAt(14)) {
            newest = Math.max(newest, Math.floorDiv(event.getLong(14), 1000L));
        }
        keyChanges |= event.getBoolean(11);
        addOrigin(event.isNullAt(15) ? null : event.getUTF8String(15));
        if (ofRun != partition) {
            ofRun = partition;
            run = runIn(partition);
        }
        InternalRow progress = event.isNullAt(9) ? null : event.getStruct(9, 3);
        run.observe(offset, progress);
        if (progress != null) {
            earliest = earliest == null || earliest.compare(progress) > 0 ? new LogProgress(progress) : earliest;
            furthest = furthest == null || furthest.compare(progress) < 0 ? new LogProgress(progress) : furthest;
        }
    }

    private void addOrigin(UTF8String of) {
        if (of == null || of.numBytes() == 0 || of.equals(origin)) {
            return;
        }
        origin = of.clone();
        origins.add(origin.toString());
    }

    /** Adds the names of the columns in a change's key. */
    void observeKey(byte[] key) throws IOException {
        if (keyNames == null) {
            keyNames = new KeyNames();
        }
        Object names = keyNames.call(key);
        if (names != null && names != lastNames && keys.size() <= MOST_KEYS) {
            lastNames = names;
            keys.add(names);
        }
    }

    private PartitionRun runIn(TopicPartition partition) {
        if (byPartition == null) {
            byPartition = new HashMap();
        }
        PartitionRun found = (PartitionRun) byPartition.get(partition);
        if (found == null) {
            found = new PartitionRun(partition.topic, partition.number);
            byPartition.put(partition, found);
            runs.add(found);
        }
        return found;
    }

    /** Keeps a value that adds to the schema. `certain`: what it adds is in `seen`. Returns the number of bytes
     * kept. */
    long keep(byte[] value, boolean certain) {
        values.add(value);
        incomplete |= !certain;
        return value == null ? 0 : value.length;
    }

    void join(GroupStats other) {
        count += other.count;
        newest = Math.max(newest, other.newest);
        keyChanges |= other.keyChanges;
        origins.addAll(other.origins);
        if (keys.size() <= MOST_KEYS) {
            keys.addAll(other.keys);
        }
        lowest = lower(lowest, other.lowest);
        highest = higher(highest, other.highest);
        firstRead = lower(firstRead, other.firstRead);
        lastRead = higher(lastRead, other.lastRead);
        earliest = earliest == null || (other.earliest != null && other.earliest.compareTo(earliest) < 0)
            ? other.earliest : earliest;
        furthest = furthest == null || (other.furthest != null && other.furthest.compareTo(furthest) > 0)
            ? other.furthest : furthest;
        runs.addAll(other.runs);
        values.addAll(other.values);
        seen.addAll(other.seen);
        incomplete |= other.incomplete;
    }

    private static long[] position(InternalRow row) {
        return new long[] {row.getInt(0), row.getLong(1), row.getLong(2), row.getLong(3), row.getInt(4),
            row.getLong(5), row.getInt(6)};
    }

    private static long[] lower(long[] one, long[] other) {
        return one == null || (other != null && Arrays.compare(other, one) < 0) ? other : one;
    }

    private static long[] higher(long[] one, long[] other) {
        return one == null || (other != null && Arrays.compare(other, one) > 0) ? other : one;
    }

    /** Returns the statistics by the names of `group_stats.Group`, with `seen` and `values`. */
    Object toMap() {
        PartitionRun first = (PartitionRun) runs.get(0);
        ArrayList partitions = new ArrayList();
        for (int i = 0; i < runs.size(); i++) {
            PartitionRun one = (PartitionRun) runs.get(i);
            first = one.beginsBefore(first) ? one : first;
            partitions.add(one.partition());
        }
        LinkedHashMap stats = new LinkedHashMap();
        stats.put("table", table);
        stats.put("kind", text(kind));
        stats.put("problem", text(problem));
        stats.put("schema_id", schemaId);
        stats.put("wrapped", Boolean.valueOf(wrapped));
        stats.put("count", Long.valueOf(count));
        stats.put("first", first.begin());
        stats.put("first_position", lowest);
        stats.put("last_position", highest);
        stats.put("partitions", partitions);
        stats.put("key_changes", Boolean.valueOf(keyChanges));
        stats.put("last_read", lastRead);
        stats.put("first_read", firstRead);
        stats.put("progress", earliest == null ? null : new Object[] {earliest.toArray(), furthest.toArray()});
        stats.put("goes_back", PartitionRun.goBack(runs));
        stats.put("newest", newest == Long.MIN_VALUE ? null : Long.valueOf(newest));
        stats.put("origins", origins);
        stats.put("keys", keys);
        stats.put("seen", incomplete ? null : new TreeSet(seen));
        stats.put("values", values);
        return stats;
    }

    private static String text(UTF8String stats) {
        return stats == null ? null : stats.toString();
    }
}

/** A partition of a topic, and its last event if that was a delete. */
final class TopicPartition {
    final UTF8String topic;
    final int number;
    UTF8String table;
    private boolean deleted;
    private long offset;
    private byte[] key;

    TopicPartition(UTF8String topic, int number) {
        this.topic = topic;
        this.number = number;
    }

    /** Returns true for a null tombstone right behind its delete. */
    boolean repeats(InternalRow tombstone, long at) {
        return deleted && offset + 1 == at && key != null && !tombstone.isNullAt(12)
            && Arrays.equals(key, tombstone.getBinary(12));
    }

    void observe(boolean isDelete, InternalRow event, long at, UTF8String of) {
        deleted = isDelete;
        if (isDelete) {
            offset = at;
            key = event.isNullAt(12) ? null : event.getBinary(12);
            table = of == null ? null : of.clone();
        }
    }
}
