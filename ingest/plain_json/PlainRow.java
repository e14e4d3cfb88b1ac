package org.apache.spark.sql.api.java;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashSet;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.VariantType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * What from_json makes of a JSON object, for a type of texts, whole numbers, doubles, booleans and structs of these;
 * or nothing, wherever it isn't certain that from_json would make the same: who asks has from_json itself read those.
 */
public final class PlainRow implements Serializable {
    static final int LONG = 0, INT = 1, SHORT = 2, BYTE = 3, DOUBLE = 4, BOOLEAN = 5, STRING = 6, STRUCT = 7;
    /** Of these nothing is known but a null; of those not even that. */
    static final int OTHER = 8, UNREAD = 9;
    private static final int LONGEST = 1 << 20;

    final byte[][] names;
    final int[] kinds;
    final PlainRow[] structs;

    private final boolean certain;

    /** `unread`: the field that from_json fills with what it can't read. */
    public PlainRow(StructType type, String unread) {
        StructField[] fields = type.fields();
        names = new byte[fields.length][];
        kinds = new int[fields.length];
        structs = new PlainRow[fields.length];
        HashSet seen = new HashSet();
        boolean clear = true;
        for (int i = 0; i < fields.length; i++) {
            String name = fields[i].name();
            // What is no text from_json reads as this character.
            clear &= seen.add(name) && name.indexOf('\ufffd') < 0;
            names[i] = name.getBytes(StandardCharsets.UTF_8);
            DataType kind = fields[i].dataType();
            kinds[i] = name.equals(unread) ? UNREAD : kindOf(kind);
            structs[i] = kinds[i] == STRUCT ? new PlainRow((StructType) kind, null) : null;
            clear &= structs[i] == null || structs[i].certain;
        }
        certain = clear;
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

    /** The object that `text` holds; null where something isn't plain. */
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

    /** Where a plan is shown. */
    public String toString() {
        return "plain";
    }
}

/** The fields that a PlainRow asks for, out of one text. It checks all of the text, as from_json would. */
final class PlainFields extends PlainJson {
    private static final int DEEPEST = 100;
    private static final int LONGEST_NAME = 1000;
    private static final int MOST_DIGITS = 127;
    private static final int DIGITS_OF_ANY_LONG = 18;
    /** With so many digits, and a power of ten up to the last of these, a quotient is the double next to the decimal. */
    private static final int DIGITS_OF_ANY_DOUBLE = 15;
    private static final double[] POWERS = new double[] {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

    private boolean whole;
    private int digits;
    private int fraction;
    private long mantissa;

    PlainFields(byte[] text) {
        this.text = text;
    }

    /** What stands behind it from_json doesn't look at either. */
    InternalRow whole(PlainRow type) {
        blank();
        return object(type, 0);
    }

    private InternalRow object(PlainRow type, int depth) {
        byte[][] names = type.names;
        Object[] values = new Object[names.length];
        int expected = 0;
        for (boolean more = opened('{', '}'); more; more = another('}')) {
            name();
            int field = field(names, expected);
            if (field < 0) {
                require(stop - start <= LONGEST_NAME);
                pass(depth + 1);
            } else {
                values[field] = value(type.kinds[field], type.structs[field], depth + 1);
                expected = field + 1;
            }
        }
        return new GenericInternalRow(values);
    }

    private int field(byte[][] names, int expected) {
        if (expected < names.length && is(names[expected])) {
            return expected;
        }
        for (int i = 0; i < names.length; i++) {
            if (is(names[i])) {
                return i;
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

    private long within(long least, long most) {
        boolean negative = text[at] == '-';
        number();
        require(whole && digits <= DIGITS_OF_ANY_LONG);
        long found = negative ? -mantissa : mantissa;
        require(least <= found && found <= most);
        return found;
    }

    private double floating() {
        int first = at;
        boolean negative = text[first] == '-';
        number();
        if (whole) {
            require(digits <= DIGITS_OF_ANY_LONG);
            return negative ? -mantissa : mantissa;
        }
        if (fraction >= 0 && fraction < POWERS.length && digits <= DIGITS_OF_ANY_DOUBLE) {
            double found = mantissa / POWERS[fraction];
            return negative ? -found : found;
        }
        return Double.parseDouble(new String(text, first, at - first, StandardCharsets.US_ASCII));
    }

    /** Past a number: whether it is a whole one, its digits without the exponent's, how many of them are behind the
     * point (less than none where it has an exponent), and what they come to where a long holds them. */
    private void number() {
        if (text[at] == '-') {
            at++;
        }
        int first = at;
        mantissa = 0;
        some();
        digits = at - first;
        require(digits == 1 || text[first] != '0');
        whole = true;
        fraction = 0;
        if (at < text.length && text[at] == '.') {
            int point = at++;
            some();
            fraction = at - point - 1;
            digits += fraction;
            whole = false;
        }
        if (at < text.length && (text[at] == 'e' || text[at] == 'E')) {
            at++;
            if (text[at] == '+' || text[at] == '-') {
                at++;
            }
            digits();
            fraction = -1;
            whole = false;
        }
        require(at - first <= MOST_DIGITS);
    }

    private void some() {
        int first = at;
        long sum = mantissa;
        for (; at < text.length && text[at] >= '0' && text[at] <= '9'; at++) {
            sum = 10 * sum + (text[at] - '0');
        }
        mantissa = sum;
        require(at > first);
    }

    /** What is no text but can stand as one in one way only: true, false, a whole number. */
    private UTF8String asText() {
        int first = at;
        if (text[first] == 't' || text[first] == 'f') {
            literal(text[first] == 't' ? "true" : "false");
            return UTF8String.fromBytes(text, first, at - first);
        }
        number();
        // Of -0 nothing is left but 0.
        require(whole && digits <= DIGITS_OF_ANY_LONG && (mantissa != 0 || text[first] != '-'));
        return UTF8String.fromBytes(text, first, at - first);
    }

    private UTF8String words() {
        byte[] bytes = text;
        int first = at + 1;
        int i = first;
        int all = 0;
        byte next = bytes[i];
        while (next != '"' && next != '\\') {
            require(next < 0 || next >= ' ');
            all |= next;
            next = bytes[++i];
        }
        UTF8String found;
        if (next == '"') {
            at = i + 1;
            found = UTF8String.fromBytes(bytes, first, i - first);
        } else {
            found = unescaped(first);
            all = -1;
        }
        // What is no text from_json replaces by a character that says so.
        require(all >= 0 || found.isValid());
        return found;
    }

    private UTF8String unescaped(int first) {
        at = first - 1;
        string();
        byte[] found = new byte[at - first];
        int length = 0;
        for (int i = first; i < at - 1; i++) {
            byte next = text[i];
            if (next != '\\') {
                found[length++] = next;
                continue;
            }
            int meant = escaped(++i);
            if (text[i] == 'u') {
                i += 4;
            }
            if (meant < 0x80) {
                found[length++] = (byte) meant;
            } else {
                if (meant < 0x800) {
                    found[length++] = (byte) (0xc0 | meant >> 6);
                } else {
                    found[length++] = (byte) (0xe0 | meant >> 12);
                    found[length++] = (byte) (0x80 | meant >> 6 & 0x3f);
                }
                found[length++] = (byte) (0x80 | meant & 0x3f);
            }
        }
        return UTF8String.fromBytes(Arrays.copyOf(found, length));
    }

    /** The character that the escape stands for whose letter is at `i`. */
    private int escaped(int i) {
        switch (text[i]) {
            case '"':
            case '\\':
            case '/':
                return text[i];
            case 'b':
                return '\b';
            case 'f':
                return '\f';
            case 'n':
                return '\n';
            case 'r':
                return '\r';
            case 't':
                return '\t';
            case 'u':
                int meant = 0;
                for (int digit = i + 1; digit <= i + 4; digit++) {
                    int value = Character.digit((char) text[digit], 16);
                    require(value >= 0);
                    meant = meant << 4 | value;
                }
                return meant;
            default:
                throw NotPlain.INSTANCE;
        }
    }

    /** Past a value of which nothing is asked but that it is one. */
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
                int first = at;
                string();
                for (int i = first + 1; i < at - 1; i++) {
                    if (text[i] == '\\') {
                        escaped(++i);
                    }
                }
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
