"""A one-line notation of changelogs, for test cases:

    c1@10(x,3,long) u1@20(y,4,?) d1@30 u2<1@40(x,3,~) d2>5@50 null1 t@60 r1@5(x,1,~)[w,0,?]

| part | what |
|---|---|
| `c u d r t null` | the op; `null` is a null tombstone, which has no position |
| `1` | the key; `2<1` an update that changed the key from 1 to 2, `2>5` a delete whose row continues under key 5 |
| `1,eu` | a key of several columns; its first value is a number |
| `@10` | the position in the source |
| `(x,3,?)` | the after image, one value per column: digits are a number, `~` is null, `?` is unavailable |
| `[w,0,?]` | the before image |

and of changes of the table's definition, each at a position:

| word | what |
|---|---|
| `+n:int=5@40` | adds a column; without `=5` rows from before read null, with `=!` a value that only the source knows |
| `-n@50` | drops it |
| `n>m@60` | renames it |
| `n:text@70` | changes its type; `n:text!@70` by an expression |
| `#id,region@80` | changes the key; `#@80` drops it |

Images have the columns that the table has at their position, in their order. The events are in their order of delivery.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ingest.testing.oracle import UNAVAILABLE, Event, Op
from ingest.testing.source_table import UNKNOWN, SourceColumn, SourceTable, TableChange, changed

_KEY = r"\d+(?:,\w+)*"
_EVENT = re.compile(
    rf"(?P<op>null|[cudrt])(?P<key>{_KEY})?(?:<(?P<old>{_KEY}))?(?:>(?P<new>{_KEY}))?(?:@(?P<lsn>\d+))?"
    r"(?:\((?P<image>[^)]*)\))?(?:\[(?P<before>[^\]]*)\])?"
)
_COLUMN = r"[^\W\d]\w*"
_CHANGE = re.compile(
    rf"(?:\+(?P<added>{_COLUMN}):(?P<added_type>[^=!@]+)(?:=(?P<default>[^@]+))?|-(?P<dropped>{_COLUMN})"
    rf"|(?P<renamed>{_COLUMN})>(?P<name>{_COLUMN})|(?P<altered>{_COLUMN}):(?P<type>[^!@]+)(?P<using>!)?"
    rf"|\#(?P<key>(?:{_COLUMN}(?:,{_COLUMN})*)?))@(?P<lsn>\d+)"
)
_SIGNS: dict[str, Any] = {"~": None, "?": UNAVAILABLE, "!": UNKNOWN}


def parse_events(text: str, columns: Sequence[str], key: tuple[str, ...] | None = None) -> list[Event]:
    """Parses a line into events, whose offsets are their order. Raises ValueError with the first malformed word.

    `columns`, `key`: those at the start, as of `fold`. If the line changes the definition, each event carries the
    definition at its position."""
    words = [(offset, word, _CHANGE.fullmatch(word)) for offset, word in enumerate(text.split())]
    changes = [Event("ddl", offset, int(found["lsn"]), ddl=_change(found)) for offset, _, found in words if found]
    changes.sort(key=lambda event: (event.lsn, event.offset))
    table = SourceTable({name: SourceColumn() for name in columns}, key)
    definitions = [(-1, -1, table)]
    for event in changes:
        table = changed(table, event.ddl) if event.ddl else table
        definitions.append((event.lsn, event.offset, table))

    def definition(lsn: int, offset: float) -> SourceTable:
        return [table for at, number, table in definitions if (at, number) <= (lsn, offset)][-1]

    found = {event.offset: replace(event, carried=definition(event.lsn, event.offset)) for event in changes}
    for offset, word, _ in words:
        if offset not in found:
            event = _event(offset, word, lambda lsn: [*definition(lsn, math.inf).columns])
            carried = definition(event.lsn, math.inf) if changes and event.op != "null" else None
            found[offset] = replace(event, carried=carried)
    return [found[offset] for offset, _, _ in words]


def format_events(events: Sequence[Event], columns: Sequence[str]) -> str:
    """Formats events as a line. `columns`: those at the start. Raises ValueError for a change of the definition that
    has no notation."""
    return " ".join(_word(event, columns) if event.ddl is None else _change_word(event, event.ddl) for event in events)


def _event(offset: int, word: str, columns_at: Callable[[int], Sequence[str]]) -> Event:
    found = _EVENT.fullmatch(word)
    if found is None:
        raise ValueError(
            f"{word!r} is no event: write such as c1@10(x,3), d1@20, u2<1@30(x,3), null1, t@40, +n:int=5@50, -n@60"
        )
    part = found.groupdict()
    columns = columns_at(int(part["lsn"] or 0))
    keys = [_key(part[name]) for name in ("key", "old", "new")]
    before = None if part["before"] is None else _image(part["before"], columns, word)
    image = {} if part["image"] is None else _image(part["image"], columns, word)
    return Event(cast("Op", part["op"]), offset, int(part["lsn"] or 0), keys[0], image, before, keys[1], keys[2])


def _key(text: str | None) -> Hashable:
    values = tuple(map(_value, text.split(","))) if text else (None,)
    return values if len(values) > 1 else values[0]


def _image(text: str, columns: Sequence[str], word: str) -> Mapping[str, Any]:
    values = text.split(",")
    if len(values) != len(columns):
        raise ValueError(f"{word!r} has {len(values)} values for {len(columns)} columns")
    return {c: _value(v) for c, v in zip(columns, values, strict=True)}


def _value(text: str) -> Any:
    return _SIGNS[text] if text in _SIGNS else int(text) if text.isdigit() else text


def _change(found: re.Match[str]) -> TableChange:
    part = found.groupdict()
    if part["added"]:
        default = None if part["default"] is None else _value(part["default"])
        return TableChange("add.column", part["added"], to=SourceColumn(part["added_type"], default=default))
    if part["dropped"]:
        return TableChange("drop.column", part["dropped"])
    if part["renamed"]:
        return TableChange("rename.column", part["renamed"], name=part["name"])
    if part["altered"]:
        to = SourceColumn(part["type"])
        return TableChange("alter.column.type", part["altered"], to=to, using=part["using"] is not None)
    return TableChange("alter.key", key=tuple(filter(None, part["key"].split(","))))


def _change_word(event: Event, change: TableChange) -> str:
    to = change.to or SourceColumn()
    default = "" if to.default is None else f"={_text(to.default)}"
    words = {
        "add.column": f"+{change.column}:{to.type}{default}",
        "drop.column": f"-{change.column}",
        "rename.column": f"{change.column}>{change.name}",
        "alter.column.type": f"{change.column}:{to.type}{'!' * change.using}",
        "alter.key": f"#{','.join(change.key)}",
    }
    if change.kind not in words:
        raise ValueError(f"{change.kind} has no notation")
    return f"{words[change.kind]}@{event.lsn}"


def _word(event: Event, columns: Sequence[str]) -> str:
    names = columns if event.carried is None else [*event.carried.columns]
    key = "" if event.key is None else _key_text(event.key)
    old = "" if event.old_key is None else f"<{_key_text(event.old_key)}"
    new = "" if event.new_key is None else f">{_key_text(event.new_key)}"
    at = "" if event.op == "null" else f"@{event.lsn}"
    image = f"({_values(event.image, names)})" if event.image else ""
    before = f"[{_values(event.before, names)}]" if event.before is not None else ""
    return f"{event.op}{key}{old}{new}{at}{image}{before}"


def _key_text(key: Hashable) -> str:
    return ",".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _values(image: Mapping[str, Any], columns: Sequence[str]) -> str:
    return ",".join(_text(image[c]) for c in columns)


def _text(value: Any) -> str:
    return next((sign for sign, marked in _SIGNS.items() if marked is value), str(value))
