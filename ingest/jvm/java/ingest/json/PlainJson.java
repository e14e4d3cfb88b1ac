package ingest.json;

import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.spark.unsafe.Platform;

/**
 * A scanner of plain JSON in bytes: names without escapes, no extensions. It decodes nothing. Raises NotPlain for all
 * other input, or ArrayIndexOutOfBoundsException where the bytes end.
 */
abstract class PlainJson {
    private static final boolean LITTLE_ENDIAN = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
    /** Eight bytes that each hold one, the highest bit, a space, a quote, a backslash. */
    private static final long ONES = 0x0101010101010101L, HIGHEST = 0x8080808080808080L, SPACES = 0x2020202020202020L,
        QUOTES = 0x2222222222222222L, ESCAPES = 0x5c5c5c5c5c5c5c5cL;

    byte[] text;
    int at;
    int start;
    int stop;
    /** True if the letters that `past` skipped last are all ASCII. */
    boolean ascii;

    /** Returns the index, from `i` on, of the first byte that ends a run of letters in a string: a quote, a
     * backslash, or a control character. */
    final int past(int i) {
        byte[] bytes = text;
        long letters = 0;
        for (int last = bytes.length - 8; i <= last; i += 8) {
            long eight = Platform.getLong(bytes, Platform.BYTE_ARRAY_OFFSET + i);
            eight = LITTLE_ENDIAN ? eight : Long.reverseBytes(eight);
            long quotes = eight ^ QUOTES;
            long escapes = eight ^ ESCAPES;
            // Sets the highest bit of each byte below a space, and of quotes and backslashes: exact for the first one.
            long found = ((eight - SPACES & ~eight) | (quotes - ONES & ~quotes) | (escapes - ONES & ~escapes)) & HIGHEST;
            if (found != 0) {
                letters |= eight & (found & -found) - 1;
                ascii = (letters & HIGHEST) == 0;
                return i + (Long.numberOfTrailingZeros(found) >>> 3);
            }
            letters |= eight;
        }
        byte next = bytes[i];
        while (next != '"' && next != '\\' && (next < 0 || next >= ' ')) {
            letters |= next;
            next = bytes[++i];
        }
        ascii = (letters & HIGHEST) == 0;
        return i;
    }

    final void digits() {
        int first = at;
        while (at < text.length && text[at] >= '0' && text[at] <= '9') {
            at++;
        }
        require(at > first);
    }

    /** Scans the name of a member, whose bytes are then `start` to `stop`, and goes on to its value. */
    final void name() {
        require(text[at] == '"');
        start = at + 1;
        stop = past(start);
        require(text[stop] == '"');
        at = stop + 1;
        toValue();
    }

    /** Returns true if the next member is called `name`, and goes on to its value. */
    final boolean isNext(byte[] name) {
        int end = at + 1 + name.length;
        if (end >= text.length || text[end] != '"' || !Arrays.equals(text, at + 1, end, name, 0, name.length)) {
            return false;
        }
        require(text[at] == '"');
        at = end + 1;
        toValue();
        return true;
    }

    private void toValue() {
        blank();
        require(text[at++] == ':');
        blank();
    }

    final boolean is(byte[] name) {
        return Arrays.equals(text, start, stop, name, 0, name.length);
    }

    final void string() {
        int i = past(at + 1);
        while (text[i] == '\\') {
            i = past(i + 2);
        }
        require(text[i] == '"');
        at = i + 1;
    }

    final void literal(String name) {
        for (int i = 0; i < name.length(); i++) {
            require(text[at++] == name.charAt(i));
        }
    }

    /** Skips a value without validating it. */
    final void skip() {
        int depth = 0;
        do {
            byte next = text[at];
            if (next == '"') {
                string();
            } else if (next == '{' || next == '[') {
                depth++;
                at++;
            } else if (next == '}' || next == ']') {
                depth--;
                at++;
            } else if (depth > 0) {
                at++;
            } else {
                while (text[at] > ' ' && text[at] != ',' && text[at] != '}') {
                    at++;
                }
            }
        } while (depth > 0);
    }

    /** Scans the bracket that opens an object or an array. Returns false if it is empty. */
    final boolean opened(char first, char last) {
        require(text[at++] == first);
        blank();
        if (text[at] == last) {
            at++;
            return false;
        }
        return true;
    }

    /** Scans the comma behind a member, or the closing bracket. Returns true if another member follows. */
    final boolean another(char last) {
        blank();
        if (text[at] == ',') {
            at++;
            blank();
            return true;
        }
        require(text[at++] == last);
        return false;
    }

    final void blank() {
        while (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r') {
            at++;
        }
    }

    static void require(boolean held) {
        if (!held) {
            throw NotPlain.INSTANCE;
        }
    }
}

final class NotPlain extends RuntimeException {
    static final NotPlain INSTANCE = new NotPlain();

    private NotPlain() {
        super("not plain", null, false, false);
    }
}
