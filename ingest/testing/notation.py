"""A one-line notation of changelogs, for test cases:

    c1@10(x,3,long) u1@20(y,4,?) d1@30 u2<1@40(x,3,~) d2>5@50 null1 t@60 r1@5(x,1,~)[w,0,?]

| part | what |
|---|---|
| `c u d r t null` | the op; `null` is a null tombstone, which has no position |
| `1` | the key; `2<1` an update that changed the key from 1 to 2, `2>5` a delete whose row continues under key 5 |
| `@10` | the position in the source |
| `(x,3,?)` | the after image, one value per column: digits are a number, `~` is null, `?` is unavailable |
| `[w,0,?]` | the before image |

The events are in their order of delivery.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ingest.testing.oracle import UNAVAILABLE, Event, Op

_EVENT = re.compile(
    r"(?P<op>null|[cudrt])(?P<key>\d+)?(?:<(?P<old>\d+))?(?:>(?P<new>\d+))?(?:@(?P<lsn>\d+))?"
    r"(?:\((?P<image>[^)]*)\))?(?:\[(?P<before>[^\]]*)\])?"
)
_SIGNS: dict[str, Any] = {"~": None, "?": UNAVAILABLE}


def parse_events(text: str, columns: Sequence[str]) -> list[Event]:
    """Parses a line into events, whose offsets are their order. Raises ValueError with the first malformed word."""
    return [_event(offset, word, columns) for offset, word in enumerate(text.split())]


def format_events(events: Sequence[Event], columns: Sequence[str]) -> str:
    """Formats events as a line."""
    return " ".join(_word(event, columns) for event in events)


def _event(offset: int, word: str, columns: Sequence[str]) -> Event:
    found = _EVENT.fullmatch(word)
    if found is None:
        raise ValueError(f"{word!r} is no event: write such as c1@10(x,3), d1@20, u2<1@30(x,3), null1, t@40")
    part = found.groupdict()
    keys = {name: None if part[name] is None else int(part[name]) for name in ("key", "old", "new")}
    before = None if part["before"] is None else _image(part["before"], columns, word)
    image = {} if part["image"] is None else _image(part["image"], columns, word)
    op = cast("Op", part["op"])
    return Event(op, offset, int(part["lsn"] or 0), keys["key"], image, before, keys["old"], keys["new"])


def _image(text: str, columns: Sequence[str], word: str) -> Mapping[str, Any]:
    values = text.split(",")
    if len(values) != len(columns):
        raise ValueError(f"{word!r} has {len(values)} values for {len(columns)} columns")
    return {c: _SIGNS[v] if v in _SIGNS else int(v) if v.isdigit() else v for c, v in zip(columns, values, strict=True)}


def _word(event: Event, columns: Sequence[str]) -> str:
    key = "" if event.key is None else str(event.key)
    old = "" if event.old_key is None else f"<{event.old_key}"
    new = "" if event.new_key is None else f">{event.new_key}"
    at = "" if event.op == "null" else f"@{event.lsn}"
    image = f"({_values(event.image, columns)})" if event.image else ""
    before = f"[{_values(event.before, columns)}]" if event.before is not None else ""
    return f"{event.op}{key}{old}{new}{at}{image}{before}"


def _values(image: Mapping[str, Any], columns: Sequence[str]) -> str:
    signs = {id(value): sign for sign, value in _SIGNS.items()}
    return ",".join(signs.get(id(image[c]), str(image[c])) for c in columns)
