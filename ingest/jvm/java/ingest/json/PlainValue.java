package ingest.json;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** Decodes numbers and strings of plain JSON as from_json does. */
abstract class PlainValue extends PlainJson {
    private static final int MOST_DIGITS = 127;
    private static final int DIGITS_OF_ANY_LONG = 18;
    /** Up to this many digits and the last of these powers of ten, the quotient is the double nearest to the
     * decimal. */
    private static final int DIGITS_OF_ANY_DOUBLE = 15;
    private static final double[] POWERS = new double[] {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

    boolean whole;
    int digits;
    int fraction;
    private long mantissa;

    /** Returns the hash of a name. */
    static int hash(byte[] text, int start, int stop) {
        int found = 0;
        for (int i = start; i < stop; i++) {
            found = 31 * found + text[i];
        }
        return found ^ found >>> 15;
    }

    final long within(long least, long most) {
        boolean negative = text[at] == '-';
        number();
        require(whole && digits <= DIGITS_OF_ANY_LONG);
        long found = negative ? -mantissa : mantissa;
        require(least <= found && found <= most);
        return found;
    }

    final double floating() {
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

    /** Scans a number. Sets `whole`, `digits` (without the exponent's), `fraction` (digits behind the point, negative
     * where there is an exponent) and `mantissa` (valid where a long holds it). */
    final void number() {
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

    /** Reads true, false or an integer as a string: values that have one spelling only. */
    final UTF8String asText() {
        int first = at;
        if (text[first] == 't' || text[first] == 'f') {
            literal(text[first] == 't' ? "true" : "false");
            return UTF8String.fromBytes(text, first, at - first);
        }
        number();
        // from_json makes 0 of -0.
        require(whole && digits <= DIGITS_OF_ANY_LONG && (mantissa != 0 || text[first] != '-'));
        return UTF8String.fromBytes(text, first, at - first);
    }

    /** Reads a string. Without escapes it refers to the bytes of `text`. */
    final UTF8String words() {
        int first = at + 1;
        int i = past(first);
        boolean certain = ascii;
        UTF8String found;
        if (text[i] == '"') {
            at = i + 1;
            found = UTF8String.fromAddress(text, Platform.BYTE_ARRAY_OFFSET + first, i - first);
        } else {
            found = unescaped(first);
            certain = false;
        }
        // from_json replaces invalid UTF-8 by U+FFFD.
        require(certain || found.isValid());
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

    /** Returns the character of the escape whose letter is at `i`. */
    final int escaped(int i) {
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
}
