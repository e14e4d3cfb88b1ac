package ingest.json;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.VariantType;

/**
 * Reads a JSON object into a struct of strings, integers, doubles, booleans and structs of these, as from_json does.
 * Where it can't be certain of the same result it returns null: let from_json read those.
 */
public final class PlainRow implements Serializable {
    static final int LONG = 0, INT = 1, SHORT = 2, BYTE = 3, DOUBLE = 4, BOOLEAN = 5, STRING = 6, STRUCT = 7;
    /** Types of which only a null is read, and types of which nothing is. */
    static final int OTHER = 8, UNREAD = 9;
    private static final int LONGEST = 1 << 20;

    final byte[][] names;
    final int[] kinds;
    final PlainRow[] structs;
    /** The field that last followed each field, and the first one: mostly the next object has the same order. A guess,
     * so several threads may write it. */
    final int[] followers;
    /** Hash table of the fields by name: a field's number plus one, 0 where free. A wide table has thousands. */
    final int[] slots;

    /** Number of fields after which an object needs no further reading. */
    final int all;

    private final boolean certain;

    /** `unread`: the field that from_json fills with text that it can't parse. `known`: each text has been validated
     * before, and names no field of an object twice. */
    public PlainRow(StructType type, String unread, boolean known) {
        StructField[] fields = type.fields();
        names = new byte[fields.length][];
        kinds = new int[fields.length];
        structs = new PlainRow[fields.length];
        followers = new int[fields.length + 1];
        HashSet seen = new HashSet();
        boolean clear = true;
        int readable = 0;
        for (int i = 0; i < fields.length; i++) {
            String name = fields[i].name();
            // from_json replaces invalid UTF-8 by this character.
            clear &= seen.add(name) && name.indexOf('\ufffd') < 0 && unescaped(name);
            names[i] = name.getBytes(StandardCharsets.UTF_8);
            DataType kind = fields[i].dataType();
            kinds[i] = name.equals(unread) ? UNREAD : kindOf(kind);
            structs[i] = kinds[i] == STRUCT ? new PlainRow((StructType) kind, null, false) : null;
            clear &= structs[i] == null || structs[i].certain;
            readable += kinds[i] == UNREAD ? 0 : 1;
        }
        slots = new int[Integer.highestOneBit(fields.length + 1) * 4];
        for (int i = 0; i < names.length; i++) {
            int slot = PlainValue.hash(names[i], 0, names[i].length) & slots.length - 1;
            while (slots[slot] != 0) {
                slot = slot + 1 & slots.length - 1;
            }
            slots[slot] = i + 1;
        }
        certain = clear;
        all = known ? readable : Integer.MAX_VALUE;
    }

    /** Returns true if the name needs no escapes in JSON. */
    private static boolean unescaped(String name) {
        for (int i = 0; i < name.length(); i++) {
            if (name.charAt(i) < ' ' || name.charAt(i) == '"' || name.charAt(i) == '\\') {
                return false;
            }
        }
        return true;
    }

    private static int kindOf(DataType type) {
        DataType[] known = new DataType[] {DataTypes.LongType, DataTypes.IntegerType, DataTypes.ShortType,
            DataTypes.ByteType, DataTypes.DoubleType, DataTypes.BooleanType, DataTypes.StringType};
        for (int kind = 0; kind < known.length; kind++) {
            if (known[kind].equals(type)) {
                return kind;
            }
        }
        return type instanceof StructType ? STRUCT : type instanceof VariantType ? UNREAD : OTHER;
    }

    /** Returns the object in `text`; null where it isn't plain. */
    public InternalRow read(byte[] text) {
        if (!certain || text.length > LONGEST) {
            return null;
        }
        try {
            return new PlainFields(text).whole(this);
        } catch (NotPlain e) {
            return null;
        } catch (ArrayIndexOutOfBoundsException e) {
            return null;
        }
    }

    /** Shown in plans. */
    public String toString() {
        return "plain";
    }
}

/**
 * Reads the fields of a PlainRow out of one text. Validates the whole text, as from_json does, unless it is known to be
 * valid.
 */
final class PlainFields extends PlainValue {
    private static final int DEEPEST = 100;
    private static final int LONGEST_NAME = 1000;

    PlainFields(byte[] text) {
        this.text = text;
    }

    /** Reads the object at the beginning. from_json ignores what follows it, too. */
    InternalRow whole(PlainRow type) {
        blank();
        return object(type, 0);
    }

    private InternalRow object(PlainRow type, int depth) {
        byte[][] names = type.names;
        Object[] values = new Object[names.length];
        int last = names.length;
        int missing = type.all;
        for (boolean more = opened('{', '}'); more; more = another('}')) {
            int field = type.followers[last];
            if (field >= names.length || !isNext(names[field])) {
                name();
                field = field(type, last);
            }
            if (field < 0) {
                require(stop - start <= LONGEST_NAME);
                pass(depth + 1);
            } else {
                values[field] = value(type.kinds[field], type.structs[field], depth + 1);
                last = field;
                if (--missing == 0) {
                    break;
                }
            }
        }
        return new GenericInternalRow(values);
    }

    private int field(PlainRow type, int last) {
        int[] slots = type.slots;
        for (int i = hash(text, start, stop) & slots.length - 1; slots[i] != 0; i = i + 1 & slots.length - 1) {
            if (is(type.names[slots[i] - 1])) {
                type.followers[last] = slots[i] - 1;
                return slots[i] - 1;
            }
        }
        return -1;
    }

    private Object value(int kind, PlainRow struct, int depth) {
        require(depth < DEEPEST && kind != PlainRow.UNREAD);
        byte first = text[at];
        if (first == 'n') {
            literal("null");
            return null;
        }
        switch (kind) {
            case PlainRow.STRUCT:
                return object(struct, depth);
            case PlainRow.STRING:
                return first == '"' ? words() : asText();
            case PlainRow.BOOLEAN:
                literal(first == 't' ? "true" : "false");
                return first == 't' ? Boolean.TRUE : Boolean.FALSE;
            case PlainRow.LONG:
                return Long.valueOf(within(Long.MIN_VALUE, Long.MAX_VALUE));
            case PlainRow.INT:
                return Integer.valueOf((int) within(Integer.MIN_VALUE, Integer.MAX_VALUE));
            case PlainRow.SHORT:
                return Short.valueOf((short) within(Short.MIN_VALUE, Short.MAX_VALUE));
            case PlainRow.BYTE:
                return Byte.valueOf((byte) within(Byte.MIN_VALUE, Byte.MAX_VALUE));
            case PlainRow.DOUBLE:
                return Double.valueOf(floating());
            default:
                throw NotPlain.INSTANCE;
        }
    }

    /** Skips a value and validates it. */
    private void pass(int depth) {
        require(depth < DEEPEST);
        switch (text[at]) {
            case '{':
                for (boolean more = opened('{', '}'); more; more = another('}')) {
                    name();
                    require(stop - start <= LONGEST_NAME);
                    pass(depth + 1);
                }
                break;
            case '[':
                for (boolean more = opened('[', ']'); more; more = another(']')) {
                    pass(depth + 1);
                }
                break;
            case '"':
                int i = past(at + 1);
                for (; text[i] == '\\'; i = past(i + 2)) {
                    escaped(i + 1);
                }
                require(text[i] == '"');
                at = i + 1;
                break;
            case 't':
                literal("true");
                break;
            case 'f':
                literal("false");
                break;
            case 'n':
                literal("null");
                break;
            default:
                number();
        }
    }
}
