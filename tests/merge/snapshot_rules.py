"""Rules of incremental snapshots: a read is as new as its position in the log."""

from __future__ import annotations

from typing import Any

from tests.changelogs import Topic
from tests.merge.rules import ORDERS, Rule, row, rule, unplaced


def stream(t: Topic, op: str, lsn: int, committed: int | None, i: int, v: str | None) -> None:
    """Appends a change of Postgres. `committed`: the last commit before its transaction."""
    before, after = (row(i, ""), None) if op == "d" else (None, row(i, v))
    source = t.change(op, lsn, after, before)["value"]["source"]
    source["sequence"] = f'["{committed}","{lsn}"]' if committed is not None else f'[null,"{lsn}"]'


def read(t: Topic, committed: int | None, i: int, v: str, **source: Any) -> None:
    """Appends a read of an incremental snapshot, as Debezium's Postgres connector sends it."""
    read_source = t.change("r", 0, row(i, v))["value"]["source"]
    read_source |= {"lsn": None, "snapshot": "incremental"} | source
    if committed is not None:
        read_source["sequence"] = f'["{committed}","{committed}"]'


@rule
def incremental_read_repairs() -> Rule:
    t = Topic()
    stream(t, "c", 100, 92, 1, "an update of it was lost")
    stream(t, "c", 110, 102, 2, "b")
    read(t, 250, 1, "repaired")
    read(t, 250, 2, "b")
    read(t, 250, 3, "was never there")
    stream(t, "d", 300, 292, 2, None)
    t.tombstone({"id": 2})
    stream(t, "u", 310, 302, 3, "later")
    rows = [row(1, "repaired"), row(3, "later")]
    return Rule("a read of an incremental snapshot is newer than all earlier commits", t.records, {ORDERS: rows})


@rule
def transaction_that_was_open_while_rows_were_read() -> Rule:
    t = Topic()
    stream(t, "c", 100, 92, 1, "a")
    stream(t, "c", 110, 92, 2, "a")
    read(t, 250, 1, "a")
    read(t, 250, 2, "a")
    # Written at 120 and 130, before the reads; committed after them.
    stream(t, "u", 120, 260, 1, "b")
    stream(t, "u", 130, 260, 1, "c")
    stream(t, "d", 140, 260, 2, None)
    stream(t, "u", 120, 260, 1, "b")
    return Rule("a transaction that was open during the reads is newer", t.records, {ORDERS: [row(1, "c")]})


@rule
def transaction_that_goes_on_where_another_has_committed() -> Rule:
    t = Topic()
    stream(t, "c", 100, 92, 1, "a")
    read(t, 260, 1, "a")
    stream(t, "u", 120, 260, 1, "b")
    stream(t, "u", 260, 260, 1, "c")
    stream(t, "u", 120, 260, 1, "b")
    name = "a change at the position of another transaction's commit is later"
    return Rule(name, t.records, {ORDERS: [row(1, "c")]})


@rule
def transaction_that_was_open_during_a_blocking_snapshot() -> Rule:
    t = Topic()
    stream(t, "c", 100, 92, 1, "a")
    for snapshot, i in (("first", 1), ("last", 2)):
        source = t.change("r", 250, row(i, "read"))["value"]["source"]
        source |= {"snapshot": snapshot, "sequence": '["250","250"]'}
    stream(t, "u", 120, 250, 1, "b")
    rows = [row(1, "b"), row(2, "read")]
    return Rule("a transaction that was open during a blocking snapshot is newer", t.records, {ORDERS: rows})


@rule
def incremental_read_and_events_delivered_again() -> Rule:
    t = Topic()
    stream(t, "c", 100, 92, 1, "an update of it was lost")
    stream(t, "u", 240, 102, 2, "b")
    read(t, 250, 1, "repaired")
    read(t, 250, 2, "b")
    stream(t, "c", 100, 92, 1, "an update of it was lost")
    stream(t, "u", 240, 102, 2, "b")
    rows = [row(1, "repaired"), row(2, "b")]
    return Rule("events repeated after a read are older than it", t.records, {ORDERS: rows})


@rule
def incremental_read_without_a_sequence() -> Rule:
    t = Topic()
    for i in (1, 2, 3):
        stream(t, "c", 100 + i, None, i, "a")
    read(t, None, 1, "repaired", connector="postgresql")
    read(t, None, 2, "a", connector="postgresql")
    read(t, None, 3, "a", connector="postgresql")
    stream(t, "u", 90, None, 2, "older")
    stream(t, "c", 101, None, 1, "a")
    stream(t, "u", 105, None, 3, "written before the read")
    read(t, None, 4, "was never there", connector="postgresql")
    read(t, None, 1, "repaired again", connector="postgresql")
    rows = [row(1, "repaired again"), row(2, "a"), row(3, "written before the read"), row(4, "was never there")]
    return Rule("a read without a position follows the preceding change of its key", t.records, {ORDERS: rows})


@rule
def tombstone_after_an_incremental_read_without_a_sequence() -> Rule:
    t = Topic()
    stream(t, "c", 100, None, 1, "a")
    read(t, None, 1, "b", connector="postgresql")
    t.tombstone({"id": 1})
    stream(t, "c", 110, None, 2, "c")
    return Rule("a null tombstone after a read without a position deletes the row", t.records, {ORDERS: [row(2, "c")]})


@rule
def incremental_read_of_a_source_without_positions() -> Rule:
    t = Topic()
    unplaced(t, "c", row(1, "an update of it was lost"))
    unplaced(t, "c", row(2, "a"))
    unplaced(t, "r", row(1, "repaired"))
    unplaced(t, "r", row(2, "a"))
    unplaced(t, "d", None, before=row(2, "a"))
    return Rule(
        "a read of a source without positions has its place in the topic", t.records, {ORDERS: [row(1, "repaired")]}
    )


@rule
def incremental_read_of_mysql() -> Rule:
    t = Topic("m.shop.read_again", key=())

    def change(op: str, pos: int, i: int, v: str, snapshot: str = "false") -> None:
        source = {"connector": "mysql", "db": "shop", "table": "read_again", "file": "binlog.3", "pos": pos, "row": 0}
        t.record({"id": i}, {"before": None, "after": row(i, v), "source": source | {"snapshot": snapshot}, "op": op})

    change("c", 100, 1, "an update of it was lost")
    change("r", 250, 1, "repaired", "incremental")
    change("r", 250, 2, "a", "incremental")
    change("u", 250, 2, "at the same place")
    change("u", 240, 1, "late")
    rows = [row(1, "repaired"), row(2, "at the same place")]
    return Rule("reads of MySQL have a position in the binlog", t.records, {"shop.read_again": rows})


@rule
def snapshot_during_an_incremental_one() -> Rule:
    t = Topic()
    stream(t, "c", 10, None, 1, "a")
    stream(t, "c", 20, None, 2, "deleted while no connector ran")
    read(t, 30, 1, "read")
    for snapshot, i in (("first", 1), ("last", 3)):
        t.change("r", 50, row(i, "whole"))["value"]["source"]["snapshot"] = snapshot
    read(t, 60, 4, "read later")
    rows = [row(1, "whole"), row(3, "whole"), row(4, "read later")]
    return Rule("a whole snapshot removes missing rows, also during incremental ones", t.records, {ORDERS: rows})
