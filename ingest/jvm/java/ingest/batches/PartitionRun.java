package ingest.batches;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/** The events of a group in one partition, as one task read them. */
final class PartitionRun implements Serializable, Comparable {
    private final UTF8String topic;
    private final int partition;
    private long first = Long.MAX_VALUE;
    private long last = Long.MIN_VALUE;
    private LogProgress begin, end;
    private boolean goesBack;
    private boolean disordered;

    PartitionRun(UTF8String topic, int partition) {
        this.topic = topic;
        this.partition = partition;
    }

    void observe(long offset, InternalRow progress) {
        disordered |= offset <= last;
        first = Math.min(first, offset);
        last = Math.max(last, offset);
        if (progress == null) {
            return;
        }
        int compared = end == null ? -1 : end.compare(progress);
        goesBack |= compared > 0;
        if (compared != 0) {
            end = new LogProgress(progress);
        }
        begin = begin == null ? end : begin;
    }

    boolean beginsBefore(PartitionRun other) {
        if (first != other.first) {
            return first < other.first;
        }
        int compared = topic.compareTo(other.topic);
        return compared < 0 || compared == 0 && partition < other.partition;
    }

    public int compareTo(Object with) {
        PartitionRun other = (PartitionRun) with;
        int compared = topic.compareTo(other.topic);
        compared = compared == 0 ? Integer.compare(partition, other.partition) : compared;
        return compared == 0 ? Long.compare(first, other.first) : compared;
    }

    Object begin() {
        return new Object[] {topic.toString(), Integer.valueOf(partition), Long.valueOf(first)};
    }

    Object partition() {
        return new Object[] {topic.toString(), Integer.valueOf(partition)};
    }

    /** Returns whether the source's log goes back in any partition; null where tasks did not read it in order. */
    static Boolean goBack(ArrayList runs) {
        Collections.sort(runs);
        boolean back = false;
        PartitionRun before = null;
        LogProgress sent = null;
        for (int i = 0; i < runs.size(); i++) {
            PartitionRun next = (PartitionRun) runs.get(i);
            boolean goesOn = before != null && next.partition == before.partition && next.topic.equals(before.topic);
            if (next.disordered || goesOn && next.first <= before.last) {
                return null;
            }
            back |= next.goesBack || goesOn && sent != null && next.begin != null && sent.compareTo(next.begin) > 0;
            sent = next.end != null ? next.end : goesOn ? sent : null;
            before = next;
        }
        return Boolean.valueOf(back);
    }
}

/** How far the log of a server had been sent. Comparable among those of one server. */
final class LogProgress implements Serializable {
    private final UTF8String server;
    private final long major;
    private final long minor;

    LogProgress(InternalRow progress) {
        server = progress.getUTF8String(0).clone();
        major = progress.getLong(1);
        minor = progress.getLong(2);
    }

    int compare(InternalRow other) {
        return compare(other.getUTF8String(0), other.getLong(1), other.getLong(2));
    }

    int compareTo(LogProgress other) {
        return compare(other.server, other.major, other.minor);
    }

    private int compare(UTF8String server, long major, long minor) {
        int compared = this.server.compareTo(server);
        compared = compared == 0 ? Long.compare(this.major, major) : compared;
        return compared == 0 ? Long.compare(this.minor, minor) : compared;
    }

    Object toArray() {
        return new Object[] {server.toString(), Long.valueOf(major), Long.valueOf(minor)};
    }
}
