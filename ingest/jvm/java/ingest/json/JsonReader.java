package ingest.json;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.json.JsonToStructsEvaluator;
import org.apache.spark.unsafe.types.UTF8String;

/** What from_json makes of a JSON object in bytes: read plainly where that is certain to come to the same. */
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

    /** Tasks have copies of their own, but Spark's driver may evaluate a column in several threads: the parser hands
     * out the same row again and again. */
    private synchronized InternalRow parsed(byte[] text) {
        InternalRow found = (InternalRow) parser.evaluate(UTF8String.fromBytes(text));
        return found == null ? null : found.copy();
    }

    /** Where a plan is shown. */
    public String toString() {
        return "json";
    }
}
