package ingest.json;

import org.apache.spark.sql.api.java.UDF4;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;

/**
 * Finds changes whose row images add to the inferred schema of their group: a name at a place where this task had not
 * seen it, or a new kind of value there. It scans the bytes in their order and decodes nothing. Where it can't be
 * certain (a name that occurs twice or has escapes, anything that isn't plain JSON) its answer is null: parse those
 * whole.
 */
public final class SchemaNovelty extends PlainValue implements UDF4 {
    private static final int LONGEST = 1 << 20;
    private static final int MOST_NAMES = 4000;
    private static final int LONGEST_NAME = 1000;
    private static final int DEEPEST = 100;
    private static final int DIGITS_KEPT = 15;

    private static final int NULL = 1, BOOLEAN = 2, LONG = 3, FLOAT = 4, STRING = 5, ARRAY = 6, OBJECT = 7;
    /** Separates place and kind in the text of a novelty. Names with such a character are not plain. */
    private static final String KIND = "\2";
    private static final int WHOLE = 1 << 28, DECIMAL = 2 << 28, KEPT = 4 << 28;

    private static final byte[] BEFORE = "before".getBytes(StandardCharsets.UTF_8);
    private static final byte[] AFTER = "after".getBytes(StandardCharsets.UTF_8);
    private static final byte[] PAYLOAD = "payload".getBytes(StandardCharsets.UTF_8);
    private static final byte[] MOST = "9223372036854775807".getBytes(StandardCharsets.UTF_8);

    private transient HashMap places;
    private transient Place taken;
    private transient Place other;
    private transient Object ofSlice;
    private transient Object ofTable;
    private transient Object ofWrapped;

    private transient HashSet collecting;
    private transient boolean isNovel;
    private transient long objects;

    /** Returns this as a function of columns. Python's bridge can't choose between the overloads of `udf`. */
    public static UserDefinedFunction function() {
        return functions.udf((UDF4) new SchemaNovelty(), DataTypes.BooleanType).asNondeterministic();
    }

    /** Adds each novelty from here on to `novelties`, as text: its place and the kind of value. Null: to none. */
    public void collectInto(HashSet novelties) {
        collecting = novelties;
    }

    /** Returns whether a change's value adds to the schema of its group (slice, table, wrapped or not); null if that is
     * not certain, or the value is null. */
    public Object call(Object value, Object slice, Object table, Object wrapped) {
        if (value == null) {
            return null;
        }
        boolean certain = true;
        selectGroup(slice, table, wrapped);
        text = (byte[]) value;
        at = 0;
        isNovel = false;
        try {
            require(text.length <= LONGEST);
            blank();
            if (((Boolean) wrapped).booleanValue()) {
                wrapper();
            } else {
                envelope();
            }
        } catch (NotPlain e) {
            certain = false;
        } catch (ArrayIndexOutOfBoundsException e) {
            certain = false;
        }
        text = null;
        if (!certain && isNovel) {
            // Parsed whole, the value may prove unreadable: what it added to the schema must count as new again.
            places.clear();
            taken = null;
        }
        return certain ? Boolean.valueOf(isNovel) : null;
    }

    private void selectGroup(Object slice, Object table, Object wrapped) {
        if (taken != null && slice.equals(ofSlice) && wrapped.equals(ofWrapped)
                && (table == null ? ofTable == null : table.equals(ofTable))) {
            return;
        }
        if (places == null) {
            places = new HashMap();
        }
        Object group = Arrays.asList(new Object[] {slice, table, wrapped});
        Place[] both = (Place[]) places.get(group);
        if (both == null) {
            both = new Place[] {new Place("", null), new Place("", null)};
            places.put(group, both);
        }
        taken = both[0];
        other = both[1];
        ofSlice = slice;
        ofTable = table;
        ofWrapped = wrapped;
    }

    private void wrapper() {
        boolean found = false;
        for (boolean more = opened('{', '}'); more; more = another('}')) {
            name();
            if (is(PAYLOAD)) {
                require(!found);
                found = true;
                if (text[at] == '{') {
                    envelope();
                } else {
                    skip();
                }
            } else {
                require(!is(BEFORE) && !is(AFTER));
                skip();
            }
        }
    }

    /** Scans the image after, or that before where there is none. */
    private void envelope() {
        int before = -1, after = -1;
        for (boolean more = opened('{', '}'); more; more = another('}')) {
            name();
            if (is(BEFORE)) {
                require(before < 0);
                before = at;
                boolean known = isNovel;
                HashSet collected = collecting;
                collecting = null;
                value(other, 0);
                collecting = collected;
                isNovel = known;
            } else if (is(AFTER)) {
                require(after < 0);
                after = at;
                if (text[at] == 'n') {
                    skip();
                } else {
                    value(taken, 0);
                }
            } else {
                require(!is(PAYLOAD));
                skip();
            }
        }
        if (before >= 0 && text[before] != 'n' && (after < 0 || text[after] == 'n')) {
            int end = at;
            at = before;
            value(taken, 0);
            at = end;
        }
    }

    private void value(Place place, int depth) {
        require(depth < DEEPEST);
        switch (text[at]) {
            case '{':
                seen(place, OBJECT);
                object(place, depth);
                break;
            case '[':
                seen(place, ARRAY);
                for (boolean more = opened('[', ']'); more; more = another(']')) {
                    value(place.element(), depth + 1);
                }
                break;
            case '"':
                seen(place, STRING);
                string();
                break;
            case 't':
                seen(place, BOOLEAN);
                literal("true");
                break;
            case 'f':
                seen(place, BOOLEAN);
                literal("false");
                break;
            case 'n':
                seen(place, NULL);
                literal("null");
                break;
            default:
                seen(place, kindOfNumber());
        }
    }

    private void object(Place place, int depth) {
        long here = ++objects;
        int expected = 0;
        for (boolean more = opened('{', '}'); more; more = another('}')) {
            name();
            Place member = place.member(text, start, stop, expected);
            if (member == null) {
                member = newMember(place);
            }
            require(member.lastIn != here);
            member.lastIn = here;
            expected = member.number + 1;
            value(member, depth + 1);
        }
    }

    private Place newMember(Place place) {
        require(place.count < MOST_NAMES && stop - start <= LONGEST_NAME);
        byte[] name = Arrays.copyOfRange(text, start, stop);
        // Of bytes that are no text several are read as one name.
        require(Arrays.equals(new String(name, StandardCharsets.UTF_8).getBytes(StandardCharsets.UTF_8), name));
        isNovel = true;
        return place.add(name);
    }

    private void seen(Place place, int kind) {
        if (place.last != kind) {
            place.last = kind;
            if (place.kinds.add(Integer.valueOf(kind))) {
                isNovel = true;
                if (collecting != null) {
                    collecting.add(place.path + KIND + kind);
                }
            }
        }
    }

    /** Scans a number and returns its kind: an integer of 64 bits or not, kept by a double or not; otherwise also the
     * digits that a decimal's type depends on. */
    private int kindOfNumber() {
        int first = text[at] == '-' ? at + 1 : at;
        number();
        if (fraction < 0) {
            return FLOAT;
        }
        int end = at;
        if (digits <= DIGITS_KEPT) {
            return whole ? LONG : DECIMAL;
        }
        int kept = isKept(first, end) ? KEPT : 0;
        if (whole && (digits < MOST.length
                || digits == MOST.length && Arrays.compare(text, first, end, MOST, 0, MOST.length) <= 0)) {
            return kept == 0 ? LONG | WHOLE : LONG;
        }
        int leading = 0, trailing = 0;
        for (int i = first; i < end && (text[i] == '0' || text[i] == '.'); i++) {
            leading += text[i] == '0' ? 1 : 0;
        }
        for (int i = end - 1; i >= first && (text[i] == '0' || text[i] == '.'); i--) {
            trailing += text[i] == '0' ? 1 : 0;
        }
        return kept | (whole ? WHOLE : DECIMAL) | digits << 21 | fraction << 14 | leading << 7 | trailing;
    }

    /** Returns true if a double holds the unsigned number between these bytes exactly enough to print it again. */
    private boolean isKept(int first, int end) {
        String written = new String(text, first, end - first, StandardCharsets.US_ASCII);
        double nearest = Double.parseDouble(written);
        return !Double.isInfinite(nearest)
            && new BigDecimal(Double.toString(nearest)).compareTo(new BigDecimal(written)) == 0;
    }
}

/** A place in the images of a group: the image itself, a member of an object, or the elements of an array. */
final class Place {
    final String path;
    final byte[] name;
    final HashSet kinds = new HashSet();
    int last;
    int number;
    long lastIn;
    Place[] members = new Place[8];
    int count;
    /** Hash table of the members by name: a member's number plus one, 0 where free. A wide table has thousands. */
    private int[] slots = new int[16];
    private Place elements;

    Place(String path, byte[] name) {
        this.path = path;
        this.name = name;
    }

    Place element() {
        if (elements == null) {
            elements = new Place(path + "\1", null);
        }
        return elements;
    }

    /** Returns the member of this name, null if there is none yet. Tries the number `expected` first. */
    Place member(byte[] text, int start, int stop, int expected) {
        if (expected < count && members[expected].isNamed(text, start, stop)) {
            return members[expected];
        }
        int last = slots.length - 1;
        for (int i = PlainValue.hash(text, start, stop) & last; slots[i] != 0; i = i + 1 & last) {
            if (members[slots[i] - 1].isNamed(text, start, stop)) {
                return members[slots[i] - 1];
            }
        }
        return null;
    }

    Place add(byte[] name) {
        if (count == members.length) {
            members = (Place[]) Arrays.copyOf(members, 2 * count);
        }
        Place added = new Place(path + "\0" + new String(name, StandardCharsets.UTF_8), name);
        added.number = count;
        members[count++] = added;
        if (2 * count > slots.length) {
            slots = new int[4 * slots.length];
            for (int i = 0; i < count; i++) {
                slot(members[i]);
            }
        } else {
            slot(added);
        }
        return added;
    }

    private void slot(Place member) {
        int last = slots.length - 1;
        int i = PlainValue.hash(member.name, 0, member.name.length) & last;
        while (slots[i] != 0) {
            i = i + 1 & last;
        }
        slots[i] = member.number + 1;
    }

    private boolean isNamed(byte[] text, int start, int stop) {
        return Arrays.equals(text, start, stop, name, 0, name.length);
    }
}
