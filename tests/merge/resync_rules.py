"""Rules of resyncs: a table that was read again as a whole holds only what was read or has changed since."""

from __future__ import annotations

from ingest.changelog.position import highest_position_at
from ingest.changelog.resync_record import resync_record
from tests.changelogs import Topic
from tests.merge.rules import ORDERS, UNAVAILABLE, Rule, row, rule, wide
from tests.merge.snapshot_rules import read, stream


def resynced(t: Topic, floor: int, newest: int) -> None:
    """Appends the record of a resync. `floor`: the LSN of the newest row before it."""
    at = highest_position_at((0, floor, 0, 0, 1, 0, 0))
    t.record({"signal": "1"}, resync_record(("public", "orders"), "", at, (0, newest, 0, 0, 1, 0, 0), 1, "signal"))


@rule
def resync_removes_rows_that_are_gone() -> Rule:
    t = Topic()
    stream(t, "c", 100, 92, 1, "an update of it was lost")
    stream(t, "c", 110, 102, 2, "its delete was lost")
    stream(t, "c", 120, 112, 3, "changed while it was read")
    read(t, 250, 1, "repaired")
    read(t, 250, 4, "was never there")
    stream(t, "u", 240, 230, 3, "changed")
    resynced(t, 120, 250)
    rows = [row(1, "repaired"), row(3, "changed"), row(4, "was never there")]
    return Rule("a resync removes the rows that were neither read nor changed since", t.records, {ORDERS: rows})


@rule
def late_events_after_a_resync() -> Rule:
    t = Topic()
    stream(t, "c", 100, 92, 1, "a")
    stream(t, "c", 120, 112, 2, "gone")
    resynced(t, 120, 250)
    read(t, 250, 1, "read")
    stream(t, "c", 110, 102, 3, "late, and gone")
    stream(t, "u", 115, 112, 1, "late")
    stream(t, "c", 300, 292, 2, "inserted again")
    stream(t, "c", 120, 112, 2, "gone")
    rows = [row(1, "read"), row(2, "inserted again")]
    return Rule("no event from before a resync brings a row back", t.records, {ORDERS: rows})


@rule
def resync_before_any_event() -> Rule:
    t = Topic()
    resynced(t, 90, 95)
    stream(t, "c", 100, 92, 1, "a")
    return Rule("the record of a resync tells no key", t.records, {ORDERS: [row(1, "a")]})


@rule
def several_resyncs() -> Rule:
    t = Topic()
    stream(t, "c", 100, 92, 1, "a")
    stream(t, "c", 120, 112, 2, "gone by the second")
    read(t, 250, 1, "read")
    read(t, 250, 2, "read")
    resynced(t, 250, 400)
    resynced(t, 120, 250)
    read(t, 400, 1, "read twice")
    stream(t, "d", 410, 402, 1, None)
    t.tombstone({"id": 1})
    stream(t, "c", 420, 412, 3, "b")
    return Rule("of several resyncs the newest floor counts, in any order", t.records, {ORDERS: [row(3, "b")]})


@rule
def values_from_before_a_resync() -> Rule:
    t = Topic()
    t.change("c", 100, wide(1, "a", "long"))
    t.change("c", 110, wide(2, "gone", "x"))
    t.change("u", 240, wide(1, "changed while it was read", UNAVAILABLE))
    resynced(t, 110, 250)
    t.change("u", 300, wide(1, "later", UNAVAILABLE))
    rows = [wide(1, "later", "long")]
    return Rule("an unavailable value may be older than a resync", t.records, {ORDERS: rows})


@rule
def resync_of_a_table_without_rows() -> Rule:
    t = Topic()
    stream(t, "c", 100, 92, 1, "gone")
    stream(t, "c", 110, 102, 2, "gone")
    resynced(t, 110, 110)
    return Rule("a resync that reads no row empties the table", t.records, {ORDERS: []})


@rule
def truncate_around_a_resync() -> Rule:
    t = Topic()
    stream(t, "c", 100, 92, 1, "a")
    resynced(t, 200, 250)
    t.change("t", 230)
    read(t, 250, 2, "read")
    stream(t, "u", 220, 212, 3, "before the truncate")
    return Rule("a truncate and a resync both count", t.records, {ORDERS: [row(2, "read")]})
