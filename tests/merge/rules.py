"""The rules of the changelog, each as a minimal changelog with the expected rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.changelogs import TOPIC, Record, Topic, schema

Rows = list[dict[str, Any]]
ORDERS = "public.orders"


@dataclass(frozen=True)
class Rule:
    """`tables`: table → rows afterwards. `quarantined`: line → code."""

    name: str
    records: list[Record]
    tables: dict[str, Rows]
    quarantined: dict[int, str] = field(default_factory=dict)
    settings: dict[str, Any] | None = None
    suppressed: int = 0


_RULES: list[Callable[[], Rule]] = []


def rule(make: Callable[[], Rule]) -> Callable[[], Rule]:
    _RULES.append(make)
    return make


def rules() -> Iterator[Rule]:
    return (make() for make in _RULES)


def row(i: Any, v: Any) -> dict[str, Any]:
    return {"id": i, "v": v}


@rule
def highest_position_wins() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "first"))
    t.change("u", 30, row(1, "last"))
    t.change("u", 20, row(1, "late"))
    return Rule("the highest position wins, in any order of arrival", t.records, {ORDERS: [row(1, "last")]})


@rule
def repeated_records_change_nothing() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.change("c", 11, row(2, "b"))
    t.change("d", 12, before=row(1, "a"))
    t.change("c", 10, row(1, "a"))
    t.change("c", 11, row(2, "b"))
    t.change("d", 12, before=row(1, "a"))
    return Rule("repeated events change nothing", t.records, {ORDERS: [row(2, "b")]})


@rule
def same_coordinates_are_one_record() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.change("c", 10, row(1, "a"), offset=0)
    return Rule("a record that is read twice is captured once", t.records, {ORDERS: [row(1, "a")]})


@rule
def late_update_does_not_restore_a_deleted_row() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.change("d", 30, before=row(1, "a"))
    t.change("u", 20, row(1, "late"))
    return Rule("a late event does not restore a deleted row", t.records, {ORDERS: []})


@rule
def created_again_after_delete() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.change("d", 20, before=row(1, "a"))
    t.tombstone({"id": 1})
    t.change("c", 30, row(1, "again"))
    t.change("d", 40, before=row(1, "again"))
    t.change("c", 50, row(1, "third"))
    return Rule("a create after a delete starts with an empty row", t.records, {ORDERS: [row(1, "third")]})


@rule
def null_tombstone_deletes() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.change("c", 11, row(2, "b"))
    t.tombstone({"id": 1})
    return Rule("a null tombstone deletes right after the change before it", t.records, {ORDERS: [row(2, "b")]})


@rule
def repeated_null_tombstone_keeps_its_position() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.change("d", 20, before=row(1, "a"))
    t.tombstone({"id": 1})
    t.change("c", 30, row(1, "new"))
    t.change("d", 20, before=row(1, "a"))
    t.tombstone({"id": 1})
    return Rule("a repeated null tombstone has the position of its own delete", t.records, {ORDERS: [row(1, "new")]})


@rule
def null_tombstone_of_a_shared_topic() -> Rule:
    one = Topic("shared", ("public", "a"))
    one.change("c", 10, row(1, "a"))
    two = Topic("shared", ("public", "b"), next_offset=1)
    two.change("c", 11, row(2, "b"))
    two.tombstone({"id": 1})
    records = one.records + two.records
    return Rule(
        "in a shared topic a null tombstone belongs to the table of its key's last change",
        records,
        {"public.a": [], "public.b": [row(2, "b")]},
    )


@rule
def snapshot_read_loses_at_equal_position() -> Rule:
    t = Topic()
    t.change("u", 10, row(1, "streamed"))
    t.change("r", 10, row(1, "read"))
    t.change("r", 10, row(2, "read"))
    return Rule(
        "a snapshot read loses to a stream event at an equal position",
        t.records,
        {ORDERS: [row(1, "streamed"), row(2, "read")]},
    )


@rule
def later_event_in_the_partition_wins_a_tie() -> Rule:
    t = Topic()
    t.change("u", 10, row(1, "earlier"))
    t.change("u", 10, row(1, "later"))
    return Rule("at an equal position the later event in the partition wins", t.records, {ORDERS: [row(1, "later")]})


@rule
def interleaved_transactions() -> Rule:
    t = Topic()
    t.change("c", 50, row(1, "a"))
    t.change("c", 20, row(2, "b"))
    t.change("u", 60, row(2, "c"))
    t.change("u", 55, row(1, "d"))
    return Rule(
        "interleaved positions of several keys lose no event",
        t.records,
        {ORDERS: [row(1, "d"), row(2, "c")]},
    )


@rule
def update_of_an_unknown_key() -> Rule:
    t = Topic()
    t.change("c", 10, {"id": 1, "v": "a", "w": "b"})
    t.change("u", 11, {"id": 1, "v": "c"})
    t.change("u", 12, row(2, "d"))
    return Rule(
        "an update is an upsert and replaces the whole row: a column that it lacks becomes null",
        t.records,
        {ORDERS: [{"id": 1, "v": "c", "w": None}, {"id": 2, "v": "d", "w": None}]},
    )


@rule
def update_that_moves_the_key() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.change("u", 11, row(7, "moved"), before=row(1, "a"))
    return Rule(
        "an update whose before image has another key removes the old row", t.records, {ORDERS: [row(7, "moved")]}
    )


@rule
def truncate() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.change("c", 11, row(2, "b"))
    t.change("t", 20, key=None)
    t.change("c", 30, row(3, "after"))
    t.change("u", 15, row(1, "late"))
    return Rule("a truncate empties the table at its position", t.records, {ORDERS: [row(3, "after")]})


@rule
def truncate_of_a_table_not_seen_yet() -> Rule:
    t = Topic()
    t.change("t", 20, key=None)
    t.change("c", 10, row(1, "before"))
    t.change("c", 30, row(2, "after"))
    return Rule("a truncate may come before any row", t.records, {ORDERS: [row(2, "after")]})


def read_by_snapshot(topic: Topic, lsn: int, i: int, v: str, snapshot: str) -> None:
    topic.change("r", lsn, row(i, v))["value"]["source"]["snapshot"] = snapshot


@rule
def snapshot_removes_missing_rows() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.change("c", 20, row(2, "deleted while no connector ran"))
    read_by_snapshot(t, 50, 1, "read", "first")
    read_by_snapshot(t, 50, 3, "read", "last_in_data_collection")
    t.change("u", 30, row(2, "late"))
    t.change("c", 60, row(4, "later"))
    left = [row(1, "read"), row(3, "read"), row(4, "later")]
    return Rule("a completed snapshot removes the rows that it lacks", t.records, {ORDERS: left})


@rule
def incremental_snapshot_removes_nothing() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.change("c", 20, row(2, "b"))
    read_by_snapshot(t, 50, 1, "read", "incremental")
    return Rule("an incremental snapshot removes nothing", t.records, {ORDERS: [row(1, "read"), row(2, "b")]})


@rule
def snapshot_of_a_keyless_table_counts_once() -> Rule:
    t = Topic(key=())
    t.change("c", 10, {"v": "a"})
    t.change("c", 20, {"v": "b"})
    for snapshot in ("first", "true", "last"):
        t.change("r", 50, {"v": "a"})["value"]["source"]["snapshot"] = snapshot
    return Rule("a snapshot of a keyless table replaces its rows", t.records, {ORDERS: [{"v": "a"}] * 3})


@rule
def mysql_binlog_files_compare_as_numbers() -> Rule:
    t = Topic("m.shop.orders")

    def change(file: str, pos: int, v: str) -> None:
        source = {"connector": "mysql", "db": "shop", "table": "orders", "file": file, "pos": pos, "row": 0, "ts_ms": 1}
        t.record({"id": 1}, {"before": None, "after": row(1, v), "source": source, "op": "u"})

    change("binlog.10", 4, "new")
    change("binlog.9", 900, "old")
    return Rule("binlog.10 comes after binlog.9", t.records, {"shop.orders": [row(1, "new")]})


@rule
def sql_server_positions() -> Rule:
    t = Topic("s.dbo.orders")

    def change(commit: str, at: str, v: str) -> None:
        source: dict[str, Any] = {"connector": "sqlserver", "db": "x", "schema": "dbo", "table": "orders"}
        source |= {"commit_lsn": commit, "change_lsn": at, "ts_ms": 1}
        t.record({"id": 1}, {"before": None, "after": row(1, v), "source": source, "op": "u"})

    change("00000027:00000758:0005", "00000027:00000758:0003", "later")
    change("00000027:00000758:0005", "00000027:00000758:0002", "earlier")
    return Rule("SQL Server orders by commit and change", t.records, {"dbo.orders": [row(1, "later")]})


@rule
def unreadable_events() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.record({"id": 2}, None, value_bytes="no json")
    t.record({"id": 2}, {})
    t.change("x", 11, row(2, "b"))
    t.change("d", 12, key=None)
    t.change("c", 13, {"v": "no key"}, key=None)
    t.record({"id": 2}, [1, 2])
    t.change("u", 14, None, key={"id": 3})
    t.change("c", 15, row(4, "fine"))
    codes = {1: "not-json", 2: "unknown-op", 3: "unknown-op", 4: "no-key", 5: "no-key", 6: "not-json", 7: "no-image"}
    return Rule(
        "unreadable events are quarantined with a reason, others are merged",
        t.records,
        {ORDERS: [row(1, "a"), row(4, "fine")]},
        codes,
    )


def _rates(settings: dict[str, Any] | None) -> list[Record]:
    """Returns changes of a key of two columns, one of which may be null. `told`: the envelope's schema, if any."""
    t, more = Topic(key=("tenant", "code")), {} if settings is None else {"schema": settings}

    def rate(tenant: str | None, rate: int) -> dict[str, Any]:
        return {"tenant": tenant, "code": "A", "rate": rate}

    for n, tenant in enumerate((None, "null", "", "x", "y")):
        t.change("c", 10 + n, rate(tenant, n), **more)
    t.change("u", 20, rate(None, 10), rate(None, 0), **more)
    t.change("u", 21, rate("x", 11), **more)
    t.change("d", 22, before=rate("null", 1), **more)
    # One row moves to the null key, another away from it.
    t.change("u", 23, rate("z", 12), rate(None, 10), **more)
    t.change("u", 24, rate(None, 13), rate("y", 4), **more)
    t.change("u", 19, rate(None, 9), **more)
    t.change("d", 25, key={"code": "A"}, **more)
    return t.records


_RATES = [{"tenant": t, "code": "A", "rate": r} for t, r in ((None, 13), ("", 2), ("x", 11), ("z", 12))]


@rule
def null_in_a_key_of_several_columns() -> Rule:
    name = "a null in a key of several columns is a value if the event contains it"
    return Rule(name, _rates(None), {ORDERS: _RATES}, {11: "no-key"})


@rule
def null_in_a_key_of_several_columns_with_a_schema() -> Rule:
    settings = schema(("tenant", "string"), ("code", "string"), ("rate", "int32"))
    return Rule(
        "a null in a key of several columns is a value, with a schema",
        _rates(settings),
        {ORDERS: _RATES},
        {11: "no-key"},
    )


@rule
def key_of_nulls_identifies_no_row() -> Rule:
    t = Topic(key=("tenant", "code"))
    t.change("c", 10, {"tenant": None, "code": "A", "rate": 1})
    t.change("c", 11, {"tenant": None, "code": None, "rate": 2})
    return Rule(
        "a key with nulls only identifies no row",
        t.records,
        {ORDERS: [{"tenant": None, "code": "A", "rate": 1}]},
        {1: "no-key"},
    )


@rule
def values_that_are_no_change_events() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.record({"id": 2}, None, value_bytes="\0\0\0\0\5Avro")
    data = {"op": "c", "before": None, "after": row(2, "b"), "source": {"schema": "public", "table": "orders"}}
    t.record({"id": 2}, {"specversion": "1.0", "id": "x", "source": "/debezium/postgresql/s", "data": data})
    t.record({"id": 2}, row(2, "b"))
    t.record({"id": 2}, {"schema": {"type": "struct"}, "payload": row(2, "b")})
    t.record({"id": 2}, row(2, "b") | {"__op": "c", "__deleted": "false"})
    t.record({"id": 2}, {"source": {"schema": "public", "table": "orders"}})
    t.change("c", 15, row(4, "fine"))
    codes = {1: "schema-registry-frame", 2: "cloud-event", 6: "unknown-op"} | dict.fromkeys((3, 4, 5), "unwrapped-row")
    name = "a value of another format is quarantined with the code of that format"
    return Rule(name, t.records, {ORDERS: [row(1, "a"), row(4, "fine")]}, codes)


@rule
def source_time_out_of_range() -> Rule:
    t = Topic()
    for n, millis in enumerate((2**63 - 1, -(2**63), 253_402_300_800_000)):
        t.change("c", 10 + n, row(n, "a"))["value"]["source"]["ts_ms"] = millis
    return Rule(
        "a source time out of all bounds loses nothing else", t.records, {ORDERS: [row(n, "a") for n in range(3)]}
    )


@rule
def repeated_field_is_refused() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, 0.5))
    for i, image in ((2, '{"id":2,"v":12345678901234567890123,"w":1,"w":1}'), (3, '{"id":3,"v":7.5,"v":8.5}')):
        source = f'{{"connector":"postgresql","schema":"public","table":"orders","lsn":{10 + i}}}'
        value = f'{{"before":null,"after":{image},"source":{source},"op":"c"}}'
        t.record({"id": i}, None, value_bytes=value)
    t.change("u", 20, row(1, 0.75))
    name = "an image that names a field twice is refused, in a batch of any size"
    return Rule(name, t.records, {ORDERS: [row(1, 0.75)]}, {1: "undecodable", 2: "undecodable"})


@rule
def number_with_more_digits_than_a_float() -> Rule:
    t = Topic("shop.public.exact", ("public", "exact"))
    t.change("c", 10, row(1, 0.5))
    t.change("c", 11, row(2, 12345678901234567890123))
    t.change("c", 12, row(3, 0.30000000000000004))
    t.change("c", 13, row(4, int("1" * 39)))
    name = (
        "a number without a schema is never rounded: it becomes text of its digits, of more than 38 it is quarantined"
    )
    values = [row(1, "0.5"), row(2, "12345678901234567890123"), row(3, "0.30000000000000004")]
    return Rule(name, t.records, {"public.exact": values}, {3: "undecodable"})


@rule
def null_implies_no_type() -> Rule:
    t = Topic("shop.public.kit", ("public", "kit"))
    t.change("c", 10, {"id": 1, "tags": None, "more": None})
    t.change("c", 11, {"id": 2, "tags": [1, 2], "more": None})
    t.change("c", 12, {"id": 3, "tags": None, "more": {"a": 1}})
    name = "a column that is null at first gets the type of its first value"
    rows: Rows = [
        {"id": 1, "tags": None, "more": None},
        {"id": 2, "tags": [1, 2], "more": None},
        {"id": 3, "tags": None, "more": '{"a":1}'},
    ]
    return Rule(name, t.records, {"public.kit": rows})


@rule
def control_records() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.record(None, None)
    t.record(None, None, value_bytes="")
    t.change("m", 11, key={"prefix": "x"})
    Topic("__debezium-heartbeat.shop", records=t.records).record({"serverName": "shop"}, {"ts_ms": 1})
    Topic("shop.transaction", records=t.records).record({"id": "5"}, {"status": "BEGIN", "id": "5"})
    return Rule(
        "messages, heartbeats, transaction boundaries and empty records concern no row",
        t.records,
        {ORDERS: [row(1, "a")]},
        suppressed=5,
    )


@rule
def new_column_with_a_default() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"), schema=schema(("id", "int32"), ("v", "string")))
    with_default = {"field": "n", "type": "int32", "optional": False, "default": 7}
    wider = schema(("id", "int32"), ("v", "string"), with_default)
    t.change("c", 20, {"id": 2, "v": "b", "n": 3}, schema=wider)
    t.change("u", 15, row(3, "late"), schema=schema(("id", "int32"), ("v", "string")))
    rows = [{"id": 1, "v": "a", "n": 7}, {"id": 2, "v": "b", "n": 3}, {"id": 3, "v": "late", "n": 7}]
    return Rule("a column added as NOT NULL DEFAULT fills existing rows", t.records, {ORDERS: rows})


OLD = (("id", "int32"), ("v", "string"))
FILLED = {"field": "n", "type": "int32", "optional": True, "default": 7}


@rule
def default_fills_rows_from_before_its_column() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"), schema=schema(*OLD))
    t.change("c", 20, {"id": 2, "v": "b", "n": None}, schema=schema(*OLD, FILLED))
    t.change("c", 30, row(3, "c"), schema=schema(*OLD))
    t.change("u", 25, {"id": 4, "v": "late", "n": 8}, schema=schema(*OLD, FILLED))
    t.change("u", 15, row(5, "late"), schema=schema(*OLD))
    t.change("c", 35, row(6, "late"), schema=schema(*OLD))
    values = {1: ("a", 7), 2: ("b", None), 3: ("c", None), 4: ("late", 8), 5: ("late", 7), 6: ("late", None)}
    rows = [{"id": i, "v": v, "n": n} for i, (v, n) in values.items()]
    return Rule("a default fills rows from before its column, none from after its drop", t.records, {ORDERS: rows})


@rule
def default_of_the_lowest_event_counts() -> Rule:
    t = Topic()
    t.change("c", 30, {"id": 3, "v": "c", "n": 3}, schema=schema(*OLD, FILLED | {"default": 9}))
    t.change("c", 10, row(1, "late"), schema=schema(*OLD))
    t.change("c", 20, {"id": 2, "v": "late", "n": 2}, schema=schema(*OLD, FILLED))
    rows = [{"id": 1, "v": "late", "n": 7}, {"id": 2, "v": "late", "n": 2}, {"id": 3, "v": "c", "n": 3}]
    return Rule("a column's fill is the default of its lowest event", t.records, {ORDERS: rows})


@rule
def fill_stays_in_a_partial_row() -> Rule:
    t = Topic()
    filled = {"field": "big", "type": "string", "optional": True, "default": "d"}
    t.change("c", 10, row(1, "a"), schema=schema(*OLD))
    t.change("c", 11, row(2, "a"), schema=schema(*OLD))
    t.change("u", 20, {"id": 1, "v": "b", "big": UNAVAILABLE}, schema=schema(*OLD, filled))
    t.change("u", 30, {"id": 3, "v": "b", "big": UNAVAILABLE}, schema=schema(*OLD, filled))
    t.change("c", 12, row(3, "a"), schema=schema(*OLD))
    rows = [{"id": i, "v": v, "big": "d"} for i, v in ((1, "b"), (2, "a"), (3, "b"))]
    return Rule("a value that was not sent is the fill of an older event", t.records, {ORDERS: rows})


@rule
def types_widen() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, 5), schema=schema(("id", "int32"), ("v", "int32")))
    t.change("c", 20, row(2, 5_000_000_000), schema=schema(("id", "int32"), ("v", "int64")))
    t.change("c", 30, row(3, 6), schema=schema(("id", "int32"), ("v", "int32")))
    rows = [row(1, 5), row(2, 5_000_000_000), row(3, 6)]
    return Rule("a wider type widens, a narrower one changes nothing", t.records, {ORDERS: rows})


@rule
def type_of_the_key_is_refused() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"), schema=schema(("id", "int32"), ("v", "string")))
    t.change("c", 20, {"id": "dHdv", "v": "b"}, schema=schema(("id", "bytes"), ("v", "string")))
    return Rule(
        "a key of a type without a cast is quarantined", t.records, {ORDERS: [row(1, "a")]}, {1: "incompatible-type"}
    )


UNAVAILABLE = "__debezium_unavailable_value"


def wide(i: int, v: Any, big: Any) -> dict[str, Any]:
    return {"id": i, "v": v, "big": big}


def moves_to(i: int) -> list[dict[str, Any]]:
    return [{"key": "__debezium.newkey", "value": {"id": i}}]


@rule
def column_of_local_times_added() -> Rule:
    t = Topic()
    t.change("c", 10, {"id": 1}, schema=schema(("id", "int32")))
    local = {"field": "at", "type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp"}
    t.change("c", 20, {"id": 2, "at": 1_772_323_200_000_000}, schema=schema(("id", "int32"), local))
    rows: Rows = [{"id": 1, "at": None}, {"id": 2, "at": "2026-03-01T00:00:00"}]
    return Rule("a column of times without zone is added", t.records, {ORDERS: rows})


@rule
def column_with_a_space_added_and_widened_twice() -> Rule:
    t = Topic()
    t.change("c", 10, {"id": 1}, schema=schema(("id", "int32")))
    narrow = (("id", "int32"), ("unit price", "int32"), ("kg", "float"))
    t.change("c", 20, {"id": 2, "unit price": 5, "kg": 0.5}, schema=schema(*narrow))
    wide = (("id", "int32"), ("unit price", "int64"), ("kg", "float"))
    t.change("c", 30, {"id": 3, "unit price": 3_000_000_000, "kg": 1.5}, schema=schema(*wide))
    wider = (("id", "int32"), ("unit price", "int64"), ("kg", "double"))
    t.change("u", 40, {"id": 1, "unit price": 6, "kg": 1e300}, schema=schema(*wider))
    rows = [
        {"id": 1, "unit price": 6, "kg": 1e300},
        {"id": 2, "unit price": 5, "kg": 0.5},
        {"id": 3, "unit price": 3_000_000_000, "kg": 1.5},
    ]
    return Rule("a column with a space in its name is added, and the table is widened twice", t.records, {ORDERS: rows})


@rule
def columns_renamed_to_another_case() -> Rule:
    t = Topic()
    before = schema(("id", "int32"), ("email", "string"))
    t.change("c", 10, {"id": 1, "email": "a"}, schema=before)
    t.change("c", 11, {"id": 2, "email": "b"}, schema=before)
    t.change("c", 12, {"id": 3, "email": "c"}, schema=before)
    t.change("d", 13, before={"id": 3, "email": "c"}, schema=before)
    t.tombstone({"id": 3})
    t.key = ("ID",)
    after = schema(("ID", "int32"), ("Email", "string"))
    t.change("u", 20, {"ID": 2, "Email": UNAVAILABLE}, schema=after)
    t.change("c", 21, {"ID": 4, "Email": "d"}, schema=after)
    t.change("d", 22, before={"ID": 1, "Email": None}, schema=after)
    t.tombstone({"ID": 1})
    rows = [{"id": 2, "email": "b"}, {"id": 4, "email": "d"}]
    return Rule("columns renamed to another case stay the same columns", t.records, {ORDERS: rows})


@rule
def unavailable_keeps_the_earlier_value() -> Rule:
    t = Topic()
    t.change("c", 10, wide(1, "a", "long"))
    t.change("u", 11, wide(1, "b", UNAVAILABLE))
    t.change("u", 12, wide(1, "c", UNAVAILABLE))
    t.change("c", 13, wide(2, "d", None))
    t.change("u", 14, wide(2, None, UNAVAILABLE))
    rows = [wide(1, "c", "long"), wide(2, None, None)]
    return Rule(
        "a value that the log did not hold is the latest earlier one, null where that is", t.records, {ORDERS: rows}
    )


@rule
def unavailable_before_its_value_arrives() -> Rule:
    t = Topic()
    t.change("u", 30, wide(1, "newest", UNAVAILABLE))
    t.change("c", 10, wide(1, "first", "old"))
    t.change("u", 20, wide(1, "middle", "new"))
    t.change("u", 15, wide(1, "late", "late"))
    return Rule(
        "an unavailable value may arrive after the event that lacks it", t.records, {ORDERS: [wide(1, "newest", "new")]}
    )


@rule
def unavailable_row_is_not_shown() -> Rule:
    t = Topic()
    t.change("u", 30, wide(1, "waits", UNAVAILABLE))
    t.change("c", 31, wide(2, "there", "x"))
    t.change("u", 40, wide(3, "gone", UNAVAILABLE))
    t.change("d", 41, before=wide(3, None, None))
    return Rule("a row never seen whole is not shown", t.records, {ORDERS: [wide(2, "there", "x")]})


@rule
def unavailable_takes_the_image_before() -> Rule:
    t = Topic()
    t.change("u", 30, wide(1, "b", UNAVAILABLE), before=wide(1, "a", "before"))
    t.change("u", 31, wide(2, "b", UNAVAILABLE), before=wide(2, "a", "wrong"))
    t.change("c", 20, wide(2, "a", "right"))
    rows = [wide(1, "b", "before"), wide(2, "b", "right")]
    return Rule("an unavailable value without an earlier row is taken from the image before", t.records, {ORDERS: rows})


@rule
def unavailable_value_is_not_taken_from_before_a_delete() -> Rule:
    t = Topic()
    t.change("c", 10, wide(1, "a", "old life"))
    t.change("u", 30, wide(1, "c", UNAVAILABLE))
    t.change("d", 20, before=wide(1, None, None))
    t.change("c", 10, wide(2, "a", "old life"))
    t.change("d", 20, before=wide(2, None, None))
    t.change("u", 30, wide(2, "c", UNAVAILABLE))
    t.change("c", 25, wide(2, "b", "new life"))
    return Rule("no unavailable value is taken from before a delete", t.records, {ORDERS: [wide(2, "c", "new life")]})


@rule
def unavailable_in_a_row_whose_key_changes() -> Rule:
    t = Topic()
    t.change("c", 10, wide(1, "a", "long"))
    t.change("d", 20, before={"id": 1}, headers=moves_to(2))
    t.tombstone({"id": 1})
    t.change("c", 20, wide(2, "b", UNAVAILABLE))
    t.change("d", 30, before={"id": 2}, headers=moves_to(3))
    t.tombstone({"id": 2})
    t.change("c", 30, wide(3, "c", UNAVAILABLE))
    t.change("u", 40, wide(3, "d", UNAVAILABLE))
    return Rule("an unavailable value follows its row to a new key", t.records, {ORDERS: [wide(3, "d", "long")]})


@rule
def unavailable_in_a_row_that_takes_the_place_of_another() -> Rule:
    t = Topic()
    for i, big in ((1, "short"), (2, "long")):
        t.change("c", 100, wide(i, "a", big))
    t.change("d", 100, before={"id": 1})
    t.change("d", 100, before={"id": 2}, headers=moves_to(1))
    t.change("c", 100, wide(1, "b", UNAVAILABLE))
    return Rule("a row may move to a key that was deleted right before", t.records, {ORDERS: [wide(1, "b", "long")]})


@rule
def unavailable_in_an_update_that_moves_a_row() -> Rule:
    t = Topic()
    t.change("c", 10, wide(1, "a", "long"))
    t.change("u", 20, wide(2, "b", UNAVAILABLE), before={"id": 1})
    return Rule(
        "an update that moves a row takes along what it does not say", t.records, {ORDERS: [wide(2, "b", "long")]}
    )


@rule
def unavailable_in_a_row_that_waited_under_another_key() -> Rule:
    t = Topic()
    t.change("u", 10, wide(1, "a", UNAVAILABLE))
    t.change("d", 20, before={"id": 1}, headers=moves_to(2))
    t.change("c", 20, wide(2, "b", UNAVAILABLE))
    t.change("c", 30, wide(9, "x", "y"))
    return Rule(
        "a value unknown under the old key is unknown under the new one", t.records, {ORDERS: [wide(9, "x", "y")]}
    )


@rule
def unavailable_and_truncate() -> Rule:
    t = Topic()
    t.change("c", 10, wide(1, "a", "old"))
    t.change("u", 30, wide(1, "b", UNAVAILABLE))
    t.change("t", 20, key=None)
    t.change("c", 40, wide(2, "c", "new"))
    t.change("u", 50, wide(2, "d", UNAVAILABLE))
    return Rule("no unavailable value is taken from before a truncate", t.records, {ORDERS: [wide(2, "d", "new")]})


NO_KEY = {"tables": {ORDERS: {"topics": [TOPIC], "primary_key": []}}}


@rule
def no_primary_key() -> Rule:
    t = Topic(key=())
    t.change("c", 10, row(1, "a"), key=None)
    t.change("c", 11, row(1, "a"), key=None)
    t.change("c", 12, row(2, "b"), key=None)
    t.change("c", 12, row(2, "b"), key=None)
    t.change("u", 13, row(2, "c"), before=row(2, "b"), key=None)
    t.change("d", 14, before=row(1, "a"), key=None)
    t.change("d", 15, before=row(9, "never"), key=None)
    t.change("u", 16, row(2, "x"), key=None)
    rows = [row(1, "a"), row(2, "b"), row(2, "c")]
    name = "a table without a primary key is a multiset of rows"
    return Rule(name, t.records, {ORDERS: rows}, {7: "no-image"}, settings=NO_KEY)


@rule
def no_primary_key_delivered_again() -> Rule:
    t = Topic(key=())
    for _ in range(2):
        t.change("c", 10, row(1, "a"), key=None)
        t.change("c", 11, row(2, "b"), key=None)
        t.change("c", 11, row(2, "b"), key=None)
        t.change("u", 12, row(1, "c"), before=row(1, "a"), key=None)
    t.change("d", 13, before=row(2, "b"), key=None)
    rows = [row(1, "c"), row(2, "b")]
    return Rule("repeated events of a keyless table count once", t.records, {ORDERS: rows}, settings=NO_KEY)


@rule
def no_primary_key_delivered_by_two_starts() -> Rule:
    t = Topic(key=())
    for lsn in (10, 20, 10, 10, 20):
        t.change("c", lsn, row(1, "a"), key=None)
    rows = [row(1, "a"), row(1, "a")]
    return Rule("a connector that starts twice repeats no row", t.records, {ORDERS: rows}, settings=NO_KEY)


@rule
def no_primary_key_and_early_deletes() -> Rule:
    t = Topic(key=())
    t.change("d", 20, before=row(1, "a"), key=None)
    t.change("c", 10, row(1, "a"), key=None)
    t.change("c", 15, row(1, "a"), key=None)
    return Rule(
        "a delete in a keyless table may arrive before its row", t.records, {ORDERS: [row(1, "a")]}, settings=NO_KEY
    )


@rule
def no_primary_key_and_truncate() -> Rule:
    t = Topic(key=())
    t.change("d", 20, before=row(1, "a"), key=None)
    t.change("c", 10, row(1, "a"), key=None)
    t.change("c", 30, row(1, "a"), key=None)
    t.change("t", 25, key=None)
    return Rule(
        "a truncate drops deletes whose rows have not arrived", t.records, {ORDERS: [row(1, "a")]}, settings=NO_KEY
    )


@rule
def odd_names() -> Rule:
    t = Topic('shop.Sch"e.ma.ta ble', ('Sch"e.ma', "ta ble 😀"), key=("i d",))
    t.change("c", 10, {"i d": 1, "a.b": "x", 'q`uo"te': "y", "größe": 2})
    t.change("u", 11, {"i d": 1, "a.b": "z", 'q`uo"te': "y", "größe": 3})
    rows = [{"i d": 1, "a.b": "z", 'q`uo"te': "y", "größe": 3}]
    return Rule("names may contain any character", t.records, {'Sch"e.ma.ta ble 😀': rows})


@rule
def included_and_excluded_tables() -> Rule:
    records: list[Record] = []
    for name in ("a", "b", "secret"):
        t = Topic(f"x.{name}", ("public", name), records=records)
        t.change("c", 10, row(1, name))
    settings = {"include_tables": "a|public\\.b|secret", "exclude_tables": "secret"}
    return Rule(
        "patterns match whole table names, exclusion wins",
        records,
        {"public.a": [row(1, "a")], "public.b": [row(1, "b")]},
        settings=settings,
        suppressed=1,
    )


@rule
def composite_key() -> Rule:
    t = Topic(key=("a", "b"))
    t.change("c", 10, {"a": 1, "b": "x", "v": 1})
    t.change("c", 11, {"a": 1, "b": "y", "v": 2})
    t.change("d", 12, before={"a": 1, "b": "x"})
    return Rule("a key of several columns", t.records, {ORDERS: [{"a": 1, "b": "y", "v": 2}]})


@rule
def append_only_table() -> Rule:
    t = Topic(key=())
    t.change("c", 10, row(1, "a"), key=None)
    t.change("u", 11, row(1, "b"), key=None)
    t.change("d", 12, before=row(1, "b"), key=None)
    settings = {"tables": {ORDERS: {"append_only": True}}}
    rows = [row(1, "a"), row(1, "b")]
    return Rule("an append-only table keeps every image", t.records, {ORDERS: rows}, settings=settings)


@rule
def missing_key() -> Rule:
    t = Topic()
    t.change("c", 10, {"id": "long", "v": "a"})
    t.change("u", 11, {"id": UNAVAILABLE, "v": "b"})
    rows = [{"id": "long", "v": "a"}]
    return Rule("an event whose key was not sent is quarantined", t.records, {ORDERS: rows}, {1: "no-key"})


def unplaced(topic: Topic, op: str, after: dict[str, Any] | None, before: dict[str, Any] | None = None) -> None:
    """Returns an event of a source without positions."""
    source = {"connector": "other", "schema": "public", "table": "orders"}
    key = {"id": (after or before or {})["id"]}
    topic.record(key, {"op": op, "before": before, "after": after, "source": source})


MICROS = schema({"field": "at", "type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp"})


@rule
def keys_that_differ_by_a_microsecond() -> Rule:
    t = Topic(key=("at",))
    t.change("c", 10, {"at": 1_000_001}, schema=MICROS)
    t.change("d", 30, before={"at": 1_000_001}, schema=MICROS)
    t.change("c", 20, {"at": 1_000_002}, schema=MICROS)
    rows = [{"at": "1970-01-01T00:00:01.000002"}]
    return Rule("a delete removes one key, not all keys of its millisecond", t.records, {ORDERS: rows})


@rule
def rows_that_differ_by_a_microsecond() -> Rule:
    t = Topic(key=())
    t.change("c", 10, {"at": 1_000_001}, schema=MICROS)
    t.change("c", 11, {"at": 1_000_002}, schema=MICROS)
    t.change("d", 30, before={"at": 1_000_002}, schema=MICROS)
    rows = [{"at": "1970-01-01T00:00:01.000001"}]
    return Rule("a delete in a keyless table removes an equal row", t.records, {ORDERS: rows})


@rule
def sequence_column() -> Rule:
    def at(i: int, v: str, n: Any) -> dict[str, Any]:
        return {"id": i, "v": v, "n": n}

    t = Topic()
    unplaced(t, "c", at(1, "first", 10))
    unplaced(t, "u", at(1, "last", 30))
    unplaced(t, "u", at(1, "late", 20))
    unplaced(t, "c", at(2, "gone", 10))
    unplaced(t, "d", None, before=at(2, "gone", 15))
    unplaced(t, "u", at(2, "late", 12))
    unplaced(t, "u", at(3, "unordered", None))
    settings = {"tables": {ORDERS: {"sequence": "n"}}}
    rows = [at(1, "last", 30)]
    return Rule(
        "a sequence column may order the changes", t.records, {ORDERS: rows}, {6: "no-sequence"}, settings=settings
    )


@rule
def new_epoch() -> Rule:
    t = Topic()
    t.change("c", 1000, row(1, "old life"), timestamp=1_000)
    t.change("c", 1001, row(2, "old life"), timestamp=1_000)
    t.change("u", 10, row(1, "new life"), timestamp=2_000)
    t.change("d", 11, before=row(2, "old life"), timestamp=2_000)
    t.tombstone({"id": 2})
    settings = {"epochs": ["1970-01-01T00:00:01.500Z"], "restarts": "stop"}
    return Rule(
        "a new epoch is above all earlier positions", t.records, {ORDERS: [row(1, "new life")]}, settings=settings
    )
