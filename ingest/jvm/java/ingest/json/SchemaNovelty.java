package ingest.json;

import org.apache.spark.sql.api.java.UDF4;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;

/**
 * Whether the row images of a change tell anything of their shape that no earlier one told this task: a name at a place
 * where it had not been seen, or a kind of value there. It reads bytes, in the order in which they stand, and makes
 * nothing of them. Of what it doesn't know for certain (a name that stands twice or is written with escapes, anything
 * that isn't plain JSON) it tells nothing: who asks reads those whole.
 */
public final class SchemaNovelty extends PlainValue implements UDF4 {
    private static final int LONGEST = 1 << 20;
    private static final int MOST_NAMES = 4000;
    private static final int LONGEST_NAME = 1000;
    private static final int DEEPEST = 100;
    private static final int DIGITS_KEPT = 15;

    private static final int NULL = 1, BOOLEAN = 2, LONG = 3, FLOAT = 4, STRING = 5, ARRAY = 6, OBJECT = 7;
    /** Of what it tells, between place and kind: no name has such a character. */
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

    private transient HashSet told;
    private transient boolean news;
    private transient long objects;

    /** Adds from here on to `novelties` each thing that is new, as text: where, and which kind of value. */
    public void collectInto(HashSet novelties) {
        told = novelties;
    }

    /** The value of a change, and what tells its group apart: its slice, its table, whether it is wrapped. Null where
     * it doesn't know all that the value tells. */
    public Object call(Object value, Object slice, Object table, Object wrapped) {
        if (value == null) {
            return null;
        }
        boolean certain = true;
        turnTo(slice, table, wrapped);
        text = (byte[]) value;
        at = 0;
        news = false;
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
        if (!certain && news) {
            // Whoever reads it whole may find that it can't be read: then nobody was told what was new in it.
            places.clear();
            taken = null;
        }
        return certain ? Boolean.valueOf(news) : null;
    }

    private void turnTo(Object slice, Object table, Object wrapped) {
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

    /** The image after is the one that counts; that before does where there is none. */
    private void envelope() {
        int before = -1, after = -1;
        for (boolean more = opened('{', '}'); more; more = another('}')) {
            name();
            if (is(BEFORE)) {
                require(before < 0);
                before = at;
                boolean known = news;
                HashSet asked = told;
                told = null;
                value(other, 0);
                told = asked;
                news = known;
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
        news = true;
        return place.add(name);
    }

    private void seen(Place place, int kind) {
        if (place.last != kind) {
            place.last = kind;
            if (place.kinds.add(Integer.valueOf(kind))) {
                news = true;
                if (told != null) {
                    told.add(place.path + KIND + kind);
                }
            }
        }
    }

    /** Its kind: whether it is a whole number of 64 bits and whether a double keeps it, or else all of its digits that
     * a decimal's type depends on. */
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

    /** Whether the number between these bytes, without its sign, comes back from a double. */
    private boolean isKept(int first, int end) {
        String written = new String(text, first, end - first, StandardCharsets.US_ASCII);
        double nearest = Double.parseDouble(written);
        return !Double.isInfinite(nearest)
            && new BigDecimal(Double.toString(nearest)).compareTo(new BigDecimal(written)) == 0;
    }
}

/** A place in the images of a group: the whole, a member, or the elements of an array. */
final class Place {
    final String path;
    final byte[] name;
    final HashSet kinds = new HashSet();
    int last;
    int number;
    long lastIn;
    Place[] members = new Place[8];
    int count;
    /** The number of a member, plus one, where its name is looked for: a wide table has thousands. */
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

    /** The member of this name, looked for where it is `expected` first; null if there was none yet. */
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
