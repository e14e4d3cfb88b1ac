package ingest.json;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.json.JsonToStructsEvaluator;
import org.apache.spark.unsafe.types.UTF8String;

/** Parses a JSON object in bytes as from_json does: plain JSON without Spark's parser, all other by it. */
public final class JsonReader implements Serializable {
    private final PlainRow plain;
    private final JsonToStructsEvaluator parser;

    public JsonReader(PlainRow plain, JsonToStructsEvaluator parser) {
        this.plain = plain;
        this.parser = parser;
    }

    public InternalRow read(byte[] text) {
        InternalRow found = plain.read(text);
        return found == null ? parsed(text) : found;
    }

    /** Copies the row, because the parser reuses it. Synchronized, because the driver may evaluate a column in several
     * threads; tasks have copies of this object. */
    private synchronized InternalRow parsed(byte[] text) {
        InternalRow found = (InternalRow) parser.evaluate(UTF8String.fromBytes(text));
        return found == null ? null : found.copy();
    }

    /** Shown in plans. */
    public String toString() {
        return "json";
    }
}
