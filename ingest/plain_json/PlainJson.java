package org.apache.spark.sql.api.java;

import java.util.Arrays;

/**
 * The tokens of plain JSON in bytes, one after the other, as they stand: nothing is decoded. Raises NotPlain, or
 * ArrayIndexOutOfBoundsException where the bytes end, for what isn't; it takes names without escapes alone.
 */
abstract class PlainJson {
    byte[] text;
    int at;
    int start;
    int stop;

    final void digits() {
        int first = at;
        while (at < text.length && text[at] >= '0' && text[at] <= '9') {
            at++;
        }
        require(at > first);
    }

    /** At the name of a member: its bytes are `start` to `stop`. Goes to its value. */
    final void name() {
        require(text[at] == '"');
        start = ++at;
        while (text[at] != '"') {
            require(text[at] != '\\' && (text[at] < 0 || text[at] >= ' '));
            at++;
        }
        stop = at++;
        blank();
        require(text[at++] == ':');
        blank();
    }

    final boolean is(byte[] name) {
        return Arrays.equals(text, start, stop, name, 0, name.length);
    }

    final void string() {
        byte[] bytes = text;
        int i = at + 1;
        for (byte next = bytes[i]; next != '"'; next = bytes[i]) {
            require(next < 0 || next >= ' ');
            i += next == '\\' ? 2 : 1;
        }
        at = i + 1;
    }

    final void literal(String name) {
        for (int i = 0; i < name.length(); i++) {
            require(text[at++] == name.charAt(i));
        }
    }

    /** Past a value of which nothing is asked. */
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

    /** Past what opens an object or an array. Whether anything is in it. */
    final boolean opened(char first, char last) {
        require(text[at++] == first);
        blank();
        if (text[at] == last) {
            at++;
            return false;
        }
        return true;
    }

    /** Past what stands between two members, or behind the last one. Whether another one comes. */
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
