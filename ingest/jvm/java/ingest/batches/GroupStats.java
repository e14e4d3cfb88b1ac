package ingest.batches;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/** What is told of the events of one group. */
final class GroupStats implements Serializable {
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
    private long[] lowest, highest, firstRead, lastRead;
    private LogProgress earliest, furthest;
    /** Of each partition, one for each task that saw it. */
    private final ArrayList runs = new ArrayList();
    /** Values of which each told something new of the shape, and what that was; unsure where that isn't known. */
    private final ArrayList values = new ArrayList();
    final HashSet seen = new HashSet();
    private boolean unsure;

    private transient HashMap byPartition;
    private transient PartitionRun run;
    private transient TopicPartition ofRun;
    private transient UTF8String origin;

    GroupStats(UTF8String table, UTF8String kind, UTF8String problem, Long schemaId, boolean wrapped) {
        this.tableText = table == null ? null : table.clone();
        this.table = table == null ? null : table.toString();
        this.kind = kind == null ? null : kind.clone();
        this.problem = problem == null ? null : problem.clone();
        this.schemaId = schemaId;
        this.wrapped = wrapped;
    }

    /** One of the same group that has seen nothing. */
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

    void saw(InternalRow event, boolean read, TopicPartition partition, long offset) {
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
        comesFrom(event.isNullAt(15) ? null : event.getUTF8String(15));
        if (ofRun != partition) {
            ofRun = partition;
            run = runIn(partition);
        }
        InternalRow progress = event.isNullAt(9) ? null : event.getStruct(9, 3);
        run.saw(offset, progress);
        if (progress != null) {
            earliest = earliest == null || earliest.compare(progress) > 0 ? new LogProgress(progress) : earliest;
            furthest = furthest == null || furthest.compare(progress) < 0 ? new LogProgress(progress) : furthest;
        }
    }

    private void comesFrom(UTF8String of) {
        if (of == null || of.numBytes() == 0 || of.equals(origin)) {
            return;
        }
        origin = of.clone();
        origins.add(origin.toString());
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

    /** A value that is news: what is new of it has been `seen`, unless nobody is `certain` of it. How many bytes of it
     * are kept. */
    long keep(byte[] value, boolean certain) {
        values.add(value);
        unsure |= !certain;
        return value == null ? 0 : value.length;
    }

    void join(GroupStats other) {
        count += other.count;
        newest = Math.max(newest, other.newest);
        keyChanges |= other.keyChanges;
        origins.addAll(other.origins);
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
        unsure |= other.unsure;
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

    /** By the names that `profile.Group` has; beside these what was `seen`, and the `values`. */
    Object told() {
        PartitionRun first = (PartitionRun) runs.get(0);
        ArrayList partitions = new ArrayList();
        for (int i = 0; i < runs.size(); i++) {
            PartitionRun one = (PartitionRun) runs.get(i);
            first = one.beginsBefore(first) ? one : first;
            partitions.add(one.partition());
        }
        LinkedHashMap said = new LinkedHashMap();
        said.put("table", table);
        said.put("kind", text(kind));
        said.put("problem", text(problem));
        said.put("schema_id", schemaId);
        said.put("wrapped", Boolean.valueOf(wrapped));
        said.put("count", Long.valueOf(count));
        said.put("first", first.begin());
        said.put("first_position", lowest);
        said.put("last_position", highest);
        said.put("partitions", partitions);
        said.put("key_changes", Boolean.valueOf(keyChanges));
        said.put("last_read", lastRead);
        said.put("first_read", firstRead);
        said.put("progress", earliest == null ? null : new Object[] {earliest.told(), furthest.told()});
        said.put("goes_back", PartitionRun.goBack(runs));
        said.put("newest", newest == Long.MIN_VALUE ? null : Long.valueOf(newest));
        said.put("origins", origins);
        said.put("seen", unsure ? null : new TreeSet(seen));
        said.put("values", values);
        return said;
    }

    private static String text(UTF8String said) {
        return said == null ? null : said.toString();
    }
}

/** A partition of a topic, and the last event that passed by of it, where that was a delete. */
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

    /** Whether a null tombstone stands right behind its delete. */
    boolean repeats(InternalRow tombstone, long at) {
        return deleted && offset + 1 == at && key != null && !tombstone.isNullAt(12)
            && Arrays.equals(key, tombstone.getBinary(12));
    }

    void passed(boolean isDelete, InternalRow event, long at, UTF8String of) {
        deleted = isDelete;
        if (isDelete) {
            offset = at;
            key = event.isNullAt(12) ? null : event.getBinary(12);
            table = of == null ? null : of.clone();
        }
    }
}
