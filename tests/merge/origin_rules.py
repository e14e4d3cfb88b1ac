"""Rules of origins: a table belongs to the first server and database of its name; events of others are refused."""

from __future__ import annotations

from typing import Any

from tests.changelogs import Record, Topic
from tests.merge.rules import ORDERS, Rule, row, rule

EU, US = {"name": "eu", "db": "shop_eu"}, {"name": "us", "db": "shop_us"}
OTHER = "other-database"


class Database:
    """A table's topic of one server and database; topics share their list of records."""

    def __init__(self, origin: dict[str, str], records: list[Record], key: tuple[str, ...] = ("id",)) -> None:
        self._origin = origin
        self.topic = Topic(f"{origin['name']}.public.orders", key=key, records=records)

    def change(self, op: str, lsn: int, after: Any = None, before: Any = None, **more: Any) -> None:
        self.topic.change(op, lsn, after, before, **more)["value"]["source"] |= self._origin

    def tombstone(self, i: int) -> None:
        self.topic.tombstone({"id": i})


def two_databases(key: tuple[str, ...] = ("id",)) -> tuple[Database, Database, list[Record]]:
    records: list[Record] = []
    return Database(EU, records, key), Database(US, records, key), records


@rule
def another_database_with_the_same_names() -> Rule:
    eu, us, records = two_databases()
    eu.change("c", 100, row(1, "eu"))
    us.change("c", 5000, row(1, "us"))
    eu.change("c", 110, row(2, "eu"))
    us.change("d", 5010, before=row(1, "us"))
    us.tombstone(1)
    us.change("c", 5020, row(3, "us"))
    rows = [row(1, "eu"), row(2, "eu")]
    quarantined = dict.fromkeys((1, 3, 5), OTHER)
    return Rule("events of another database are refused, including deletes", records, {ORDERS: rows}, quarantined)


@rule
def null_tombstone_of_another_database() -> Rule:
    eu, us, records = two_databases()
    eu.change("c", 100, row(1, "eu"))
    eu.change("c", 101, row(2, "eu"))
    us.change("c", 5000, row(1, "us"))
    us.tombstone(1)
    eu.tombstone(2)
    name = "a null tombstone of another database deletes nothing"
    return Rule(name, records, {ORDERS: [row(1, "eu")]}, {2: OTHER, 3: OTHER})


@rule
def truncate_of_another_database() -> Rule:
    eu, us, records = two_databases()
    eu.change("c", 100, row(1, "eu"))
    us.change("t", 5000, key=None)
    eu.change("u", 110, row(1, "eu later"))
    return Rule("a truncate of another database empties nothing", records, {ORDERS: [row(1, "eu later")]}, {1: OTHER})


@rule
def snapshot_of_another_database() -> Rule:
    eu, us, records = two_databases()
    eu.change("c", 100, row(1, "eu"))
    for snapshot, i in (("first", 7), ("last", 8)):
        us.change("r", 5000, row(i, "us"))
        records[-1]["value"]["source"]["snapshot"] = snapshot
    return Rule(
        "a snapshot sweeps no table of another database", records, {ORDERS: [row(1, "eu")]}, {1: OTHER, 2: OTHER}
    )


@rule
def rows_without_a_key_of_another_database() -> Rule:
    eu, us, records = two_databases(key=())
    eu.change("c", 100, {"v": "a"}, key=None)
    us.change("c", 100, {"v": "a"}, key=None)
    us.change("d", 101, before={"v": "a"}, key=None)
    eu.change("c", 102, {"v": "b"}, key=None)
    rows = [{"v": "a"}, {"v": "b"}]
    return Rule("keyless rows of another database are refused", records, {ORDERS: rows}, {1: OTHER, 2: OTHER})


@rule
def columns_of_another_database() -> Rule:
    eu, us, records = two_databases()
    eu.change("c", 100, row(1, "eu"))
    us.change("c", 5000, {"id": 2, "only_there": 1})
    return Rule("columns of another database are not added", records, {ORDERS: [row(1, "eu")]}, {1: OTHER})


@rule
def two_servers_of_mysql() -> Rule:
    records: list[Record] = []
    for server, pos in (("m1", 100), ("m2", 200)):
        source = {
            "connector": "mysql",
            "name": server,
            "db": "twice",
            "table": "orders",
            "file": "binlog.3",
            "pos": pos,
        }
        value = {"before": None, "after": row(1, server), "source": source | {"row": 0}, "op": "c"}
        Topic(f"{server}.twice.orders", records=records).record({"id": 1}, value)
    return Rule("two servers of MySQL are distinguished", records, {"twice.orders": [row(1, "m1")]}, {1: OTHER})


@rule
def events_that_name_no_source() -> Rule:
    eu, _, records = two_databases()
    eu.change("c", 100, row(1, "eu"))
    eu.topic.change("u", 110, row(1, "names no server"))
    eu.change("u", 120, row(1, "eu later"))
    return Rule("an event without a server belongs to its table", records, {ORDERS: [row(1, "eu later")]})


@rule
def tables_named_by_their_server() -> Rule:
    eu, us, records = two_databases()
    eu.change("c", 100, row(1, "eu"))
    us.change("c", 5000, row(1, "us"))
    us.change("d", 5010, before=row(1, "us"))
    us.tombstone(1)
    us.change("c", 5020, row(3, "us"))
    tables = {f"eu.{ORDERS}": [row(1, "eu")], f"us.{ORDERS}": [row(3, "us")]}
    settings = {"table_names": "server.schema.table"}
    return Rule("table names may include the server", records, tables, settings=settings)


@rule
def renamed_server() -> Rule:
    eu, us, records = two_databases()
    eu.change("c", 100, row(1, "a"))
    us.change("u", 110, row(1, "b"))
    settings = {"renamed": {"us/shop_us": "eu/shop_eu"}}
    return Rule("a renamed server can be mapped", records, {ORDERS: [row(1, "b")]}, settings=settings)
