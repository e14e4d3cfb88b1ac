package ingest.batches;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonFactoryBuilder;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;

/**
 * Finds the names of the columns in a record's key. A key of the form of one before it is compared with that, since
 * keys of a table differ in values only; others are parsed.
 */
public final class KeyNames implements UDF1 {
    private static final int RECENT = 4;
    private static final String NONE = "[]";
    private static final List WRAPPED = Arrays.asList("schema", "payload");
    private static final JsonFactory JSON =
        new JsonFactoryBuilder().enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION).build();
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private transient KeyForm[] recent;
    private transient int next;

    /** Returns this as a function of a column. Python's bridge can't choose between the overloads of `udf`. */
    public static UserDefinedFunction function() {
        return functions.udf((UDF1) new KeyNames(), DataTypes.StringType);
    }

    /** Returns the names in the bytes of a key as a JSON array, `[]` where a record has no key. Null where a key names
     * no columns: it is no JSON object, or an empty one. */
    public Object call(Object key) throws IOException {
        return key == null ? NONE : names((byte[]) key);
    }

    private String names(byte[] key) throws IOException {
        if (recent == null) {
            recent = new KeyForm[RECENT];
        }
        for (int i = 0; i < RECENT && recent[i] != null; i++) {
            if (recent[i].has(key)) {
                return recent[i].names;
            }
        }
        String text = new String(key, StandardCharsets.UTF_8);
        ArrayList columns = new ArrayList();
        long begin;
        try {
            begin = parse(text, columns);
        } catch (JsonProcessingException e) {
            return null;
        }
        if (columns.isEmpty()) {
            return null;
        }
        String found = MAPPER.writeValueAsString(columns);
        KeyForm form = new KeyForm(key, (int) begin, columns, found);
        if (begin > 0 && text.length() == key.length && form.has(key)) {
            recent[next] = form;
            next = (next + 1) % RECENT;
        }
        return found;
    }

    /** Adds the names of a key's columns: the fields of its payload, if it has nothing but that and a schema, else its
     * own. Returns the place right behind the brace that opens them; 0 where it is none of this text. Ignores text
     * behind the key, as Spark does. */
    private static long parse(String text, List columns) throws IOException {
        JsonParser parser = JSON.createParser(text);
        if (parser.nextToken() != JsonToken.START_OBJECT) {
            return 0;
        }
        long begin = parser.currentTokenLocation().getCharOffset() + 1;
        long inside = 0;
        boolean isObject = false;
        List payload = null;
        while (parser.nextToken() == JsonToken.FIELD_NAME) {
            String name = parser.currentName();
            columns.add(name);
            JsonToken value = parser.nextToken();
            if (name.equals("payload") && value != JsonToken.VALUE_NULL) {
                payload = new ArrayList();
                isObject = value == JsonToken.START_OBJECT;
                inside = isObject ? parser.currentTokenLocation().getCharOffset() + 1 : 0;
                addNames(parser, value, payload);
            } else {
                parser.skipChildren();
            }
        }
        boolean isWhole = isObject || columns.contains("schema");
        if (payload != null && isWhole && WRAPPED.containsAll(columns)) {
            columns.clear();
            columns.addAll(payload);
            return inside;
        }
        return begin;
    }

    private static void addNames(JsonParser parser, JsonToken value, List names) throws IOException {
        if (value == JsonToken.VALUE_STRING) {
            JsonParser inner = JSON.createParser(parser.getText());
            try {
                addNames(inner, inner.nextToken(), names);
            } catch (JsonProcessingException e) {
                names.clear(); // A text that is no JSON names none.
            }
        } else if (value != JsonToken.START_OBJECT) {
            parser.skipChildren();
        } else {
            while (parser.nextToken() == JsonToken.FIELD_NAME) {
                names.add(parser.currentName());
                parser.nextToken();
                parser.skipChildren();
            }
        }
    }
}

/**
 * The bytes that keys of a table have in common: everything up to the first value, and the names between values. Holds
 * for keys as JsonConverter writes them, with whole numbers and strings of ASCII without escapes.
 */
final class KeyForm {
    final String names;
    private final byte[] key;
    private final int begin;
    private final int closing;
    private final byte[][] columns;

    /** `begin`: the place of the first name in `key`. */
    KeyForm(byte[] key, int begin, List columns, String names) {
        this.names = names;
        this.key = key;
        this.begin = begin;
        this.closing = begin == 1 ? 1 : 2;
        this.columns = new byte[columns.size()][];
        for (int i = 0; i < this.columns.length; i++) {
            this.columns[i] = ((i == 0 ? "\"" : ",\"") + columns.get(i) + "\":").getBytes(StandardCharsets.UTF_8);
        }
    }

    boolean has(byte[] other) {
        if (other.length <= begin || !Arrays.equals(other, 0, begin, key, 0, begin)) {
            return false;
        }
        int at = begin;
        for (int i = 0; i < columns.length; i++) {
            int value = at + columns[i].length;
            if (value >= other.length || !Arrays.equals(other, at, value, columns[i], 0, columns[i].length)) {
                return false;
            }
            at = other[value] == '"' ? pastText(other, value + 1) : pastNumber(other, value);
            if (at < 0) {
                return false;
            }
        }
        return at + closing == other.length && other[at] == '}' && other[other.length - 1] == '}';
    }

    /** Returns the place behind a string's closing quote; -1 where it has other letters than ASCII, or an escape. */
    private static int pastText(byte[] text, int at) {
        while (at < text.length && text[at] >= ' ' && text[at] != '"' && text[at] != '\\') {
            at++;
        }
        return at < text.length && text[at] == '"' ? at + 1 : -1;
    }

    /** Returns the place behind a whole number; -1 where there is none. */
    private static int pastNumber(byte[] text, int at) {
        int first = text[at] == '-' ? at + 1 : at;
        int last = first;
        while (last < text.length && text[last] >= '0' && text[last] <= '9') {
            last++;
        }
        return last > first && (text[first] != '0' || last == first + 1) ? last : -1;
    }
}
