"""What messages of the source's triggers tell of its tables: silver is the source's table after every change."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from ingest.lakehouse.catalog import Catalog, CatalogEntry
from ingest.names import Lakehouse
from ingest.testing import Event, SourceColumn, SourceTable, fold
from ingest.testing.oracle import Op
from ingest.testing.source_table import UNKNOWN, TableChange, changed, key_of
from ingest.testing.source_types import MODES
from ingest.testing.table_deliveries import Record, interleaved
from ingest.testing.table_records import as_debezium, read_rows, unmatched
from ingest.testing.tables import TableStory
from tests.changelogs import write

pytestmark = pytest.mark.spark
INT, TEXT, DATE = (SourceColumn(name) for name in ("integer", "text", "date"))
POINT = {"x": 1.5, "y": -2.5, "wkb": "AQ==", "srid": None}
AGREES: tuple[list[Any], ...] = ([], [])


class Source:
    """Writes down what happens to a table, at positions of its own."""

    def __init__(self, name: str, key: tuple[str, ...], **columns: SourceColumn) -> None:
        numbered = {n: SourceColumn(c.type, i, optional=n not in key) for i, (n, c) in enumerate(columns.items(), 1)}
        self.name, self.mode = name, MODES[0]
        self.start = self.table = SourceTable(numbered, key, 1)
        self.numbers = len(columns)
        self.events: list[Event] = []
        self.alter(TableChange("create.table", table=self.table))

    def alter(self, change: TableChange) -> None:
        self.table = changed(self.table, change)
        self.events.append(Event("ddl", len(self.events), self._lsn(), ddl=change, carried=self.table))

    def add(self, name: str, column: SourceColumn, default: Any = None) -> None:
        self.numbers += 1
        missing = None if default is UNKNOWN else default
        to = SourceColumn(column.type, self.numbers, default, column.optional, missing)
        self.alter(TableChange("add.column", name, to=to))

    def drop(self, name: str) -> None:
        self.alter(TableChange("drop.column", name))

    def rename(self, name: str, to: str) -> None:
        self.alter(TableChange("rename.column", name, name=to))

    def retype(self, name: str, type_: str, using: bool = False) -> None:
        column = self.table.columns[name]
        to = SourceColumn(type_, column.number, None, column.optional)
        self.alter(TableChange("alter.column.type", name, to=to, using=using))

    def rekey(self, *key: str) -> None:
        self.alter(TableChange("alter.key", key=key))

    def recreate(self, key: tuple[str, ...], **columns: SourceColumn) -> None:
        numbered = {n: SourceColumn(c.type, i, optional=n not in key) for i, (n, c) in enumerate(columns.items(), 1)}
        relation = self.table.oid + 1
        self.alter(TableChange("drop.table"))
        self.alter(TableChange("create.table", table=SourceTable(numbered, key, relation)))

    def write(self, op: Op, **row: Any) -> None:
        key = key_of(row, self.table.key or ())
        image = {} if op == "d" else {name: row.get(name) for name in self.table.columns}
        lsn = self._lsn()
        self.events.append(Event(op, len(self.events), lsn, key, image, carried=self.table))

    def _lsn(self) -> int:
        return 10 * (len(self.events) + 1)

    def story(self) -> TableStory:
        return TableStory(self.name, self.mode, True, self.start, (), None, tuple(self.events), self.table, ())


def renames() -> Source:
    """Renames columns, one to the name of another that was dropped, and adds the old name again."""
    source = Source("public.renames", ("id",), id=INT, a=INT, b=TEXT)
    source.write("c", id=1, a=1, b="x")
    source.write("c", id=2, a=2, b="y")
    source.rename("a", "c")
    source.write("u", id=2, c=22, b="y")
    source.drop("b")
    source.rename("c", "b")
    source.write("c", id=3, b=3)
    source.add("a", TEXT)
    source.write("c", id=4, b=4, a="new")
    return source


def lives() -> Source:
    """Drops a column, adds its name again with another type, then with a default, which a later default doesn't
    change."""
    source = Source("public.lives", ("id",), id=INT, a=INT)
    source.write("c", id=1, a=1)
    source.drop("a")
    source.write("c", id=2)
    source.add("a", TEXT)
    source.write("c", id=3, a="three")
    source.drop("a")
    source.add("a", INT, 7)
    source.write("c", id=4, a=4)
    source.add("n", SourceColumn("text", optional=False), "n")
    return source


def types() -> Source:
    """Widens a column, makes a text of it, and computes another one by an expression."""
    source = Source("public.types", ("id",), id=INT, a=INT, b=INT)
    source.write("c", id=1, a=1, b=1)
    source.retype("a", "bigint")
    source.write("c", id=2, a=1 << 40, b=2)
    source.retype("a", "text")
    source.write("c", id=3, a="x", b=3)
    source.retype("b", "text", using=True)
    source.write("c", id=4, a="y", b="four")
    source.add("v", INT, UNKNOWN)
    source.write("c", id=5, a="z", b="five", v=5)
    return source


def keys() -> Source:
    """Changes the key twice; no event carries the last one."""
    source = Source("public.keys", ("id",), id=INT, r=INT, v=TEXT)
    for number in range(1, 5):
        source.write("c", id=number, r=10 * number, v="a")
    source.rekey("r")
    source.write("u", id=9, r=10, v="b")
    source.write("d", id=2, r=20)
    source.write("c", id=2, r=50, v="c")
    source.rekey("id", "r")
    return source


def recreated() -> Source:
    """Drops the table and creates another one."""
    source = Source("public.recreated", ("id",), id=INT, a=INT, gone=INT)
    source.write("c", id=1, a=1, gone=1)
    source.write("c", id=2, a=2, gone=2)
    source.recreate(("id",), id=INT, a=TEXT)
    source.write("c", id=2, a="new")
    source.add("b", INT, 5)
    return source


def recreated_with_another_key() -> Source:
    """Drops the table and creates another one, whose key has a type that holds none of the values before."""
    source = Source("public.another_key", ("id",), id=INT, a=INT)
    source.write("c", id=1, a=1)
    source.recreate(("id",), id=TEXT, a=INT)
    source.write("c", id="x", a=2)
    return source


def recreated_with_a_key_of_another_name() -> Source:
    """Drops the table and creates another one, whose key has a name that no event before has."""
    source = Source("public.other_name", ("id",), id=INT, a=INT)
    source.write("c", id=1, a=1)
    source.recreate(("no",), no=INT, a=TEXT)
    source.write("c", no=1, a="new")
    source.rename("no", "number")
    source.write("u", number=1, a="newer")
    return source


def recreated_without_a_key() -> Source:
    """Drops a table without a key and creates another one. No event has its columns."""
    source = Source("public.bag", (), id=INT)
    source.write("c", id=1)
    source.recreate((), id=INT)
    source.add("b", INT, 5)
    return source


def renamed_key() -> Source:
    source = Source("public.renamed_key", ("id",), id=INT, a=INT)
    source.write("c", id=1, a=1)
    source.write("c", id=2, a=2)
    source.write("d", id=2)
    source.rename("id", "no")
    source.write("u", no=1, a=11)
    source.write("c", no=3, a=3)
    source.write("d", no=3)
    return source


def renamed_key_and_another_table() -> Source:
    """Renames the key, then drops the table and creates one whose key has that name."""
    source = Source("public.key_of_two_tables", ("id",), id=INT, a=INT)
    for number in range(1, 5):
        source.write("c", id=number, a=number)
    source.rename("id", "no")
    source.recreate(("no",), no=INT, a=INT)
    source.write("c", no=3, a=3)
    source.write("u", no=3, a=33)
    return source


def forms() -> Source:
    """Adds columns whose values have another form in events than their types by the recipe's settings."""
    source = Source("public.forms", ("id",), id=INT)
    source.mode = "nanos"
    for number in range(1, 5):
        source.write("c", id=number)
    types = {"i": "interval", "n": "numeric(10,2)", "f": "numeric", "h": "hstore"}
    for name, type_ in types.items():
        source.add(name, SourceColumn(type_))
    source.write("c", id=3, i=86_400_000_000, n=Decimal("1.50"), f=Decimal("12.345"), h={"a b": "c", "d": None})
    source.write("u", id=2, i=0, n=None, f=None, h={})
    source.recreate(("id",), id=INT, **{name: SourceColumn(type_) for name, type_ in types.items()})
    source.write("c", id=1, i=86_400_000_000, n=Decimal("1.50"), f=None, h=None)
    return source


def recreated_with_a_type_that_only_events_show() -> Source:
    """Computes a column anew by an expression, and creates the table anew: events look the same before and after."""
    source = Source("public.untold_type", ("id",), id=INT, a=SourceColumn("hstore"))
    for number in range(1, 5):
        source.write("c", id=number, a={})
    source.retype("a", "point", using=True)
    source.write("u", id=1, a=POINT)
    source.recreate(("id",), id=INT, a=SourceColumn("point"))
    source.write("c", id=1, a=POINT)
    return source


SOURCES = (
    renames,
    lives,
    types,
    keys,
    recreated,
    recreated_with_another_key,
    recreated_with_a_key_of_another_name,
    recreated_without_a_key,
    renamed_key,
    renamed_key_and_another_table,
    forms,
    recreated_with_a_type_that_only_events_show,
)


def merged(spark: SparkSession, folder: Path, stories: Sequence[TableStory], records: list[Record], size: int) -> None:
    """Merges the records. Fails where a table's rows differ from the reference's."""
    case = Case("told", (write(folder / "in", records, None) / "events.jsonl",), None, folder / "out")
    ((_, summary),) = replay(spark, [case], Delivery(size), "jsonl")
    assert (summary["set_aside"], summary["quarantine"]) == ({}, [])
    for story in stories:
        file = folder / "out" / summary["tables"][story.name]["file"]
        found = read_rows([json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()], story)
        assert unmatched(fold(story.events).values(), found, story) == AGREES, story.name


@pytest.mark.parametrize("size", [0, pytest.param(12, marks=pytest.mark.long)], ids=["one batch", "many batches"])
def test_tables_are_those_of_the_source(spark: SparkSession, tmp_path: Path, size: int) -> None:
    stories = [make().story() for make in SOURCES]
    longest = max(len(story.events) for story in stories)
    sent = [[*story.events, *[story.events[-1]] * (longest - len(story.events))] for story in stories]
    pairs = enumerate(zip(stories, sent, strict=True))
    turns = zip(*(as_debezium(story, events, server=f"srv{n}") for n, (story, events) in pairs), strict=True)
    merged(spark, tmp_path, stories, interleaved([[record for turn in turns for record in turn]], Random(0)), size)


@pytest.mark.parametrize("make", [pytest.param(SOURCES[-3], marks=pytest.mark.long), *SOURCES[-2:]])
def test_a_stored_table_is_that_of_the_source_after_its_messages(
    spark: SparkSession, tmp_path: Path, make: Callable[[], Source]
) -> None:
    story = make().story()
    merged(spark, tmp_path, [story], interleaved([[*as_debezium(story, story.events)]], Random(0)), 5)


@pytest.mark.parametrize("size", [0, pytest.param(3, marks=pytest.mark.long)], ids=["one batch", "two batches"])
def test_a_table_that_gets_a_key_goes_on_by_it(spark: SparkSession, tmp_path: Path, size: int) -> None:
    source = Source("public.gains", (), id=INT, a=INT)
    source.write("c", id=1, a=1)
    source.write("c", id=2, a=2)
    source.rekey("id")
    source.write("u", id=1, a=11)
    source.write("d", id=2)
    records = interleaved([as_debezium(source.story(), source.events)], Random(0))
    case = Case("told", (write(tmp_path / "in", records, None) / "events.jsonl",), None, tmp_path / "out")
    ((_, summary),) = replay(spark, [case], Delivery(size), "jsonl")
    assert (summary["set_aside"], summary["quarantine"]) == ({}, [])
    file = tmp_path / "out" / summary["tables"][source.name]["file"]
    assert [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] == [{"id": 1, "a": 11}]


@pytest.mark.parametrize(
    "size", [pytest.param(0, id="one batch"), pytest.param(6, marks=pytest.mark.long, id="two batches")]
)
def test_events_show_the_table_that_follows_a_dropped_one_if_no_message_does(
    spark: SparkSession, tmp_path: Path, size: int
) -> None:
    """One table is as the one before, the other has other columns and another key."""
    same, other = Source("public.same", ("id",), id=INT, a=INT), Source("public.other", ("id",), id=INT, a=INT)
    for source in (same, other):
        source.write("c", id=1, a=1)
        source.write("c", id=2, a=2)
    same.recreate(("id",), id=INT, a=INT)
    other.recreate(("no",), no=INT, b=TEXT)
    same.write("c", id=2, a=22)
    other.write("c", no=2, b="x")
    pairs = []
    for number, source in enumerate((same, other)):
        sent = [event for event in source.events if event.lsn != 50 or event.ddl is None]
        pairs.append(as_debezium(source.story(), sent, server=f"srv{number}"))
    records = interleaved([[record for pair in zip(*pairs, strict=True) for record in pair]], Random(0))
    merged(spark, tmp_path, [same.story(), other.story()], records, size)


def test_a_late_event_is_read_by_the_names_that_its_columns_have_now(spark: SparkSession, tmp_path: Path) -> None:
    """The name of one of its columns is that of the key by now, whose values have another type."""
    source = Source("public.taken", ("id",), id=INT, a=DATE)
    source.write("c", id=1, a=date(2026, 1, 1))
    source.write("c", id=2, a=date(2026, 1, 2))
    source.rename("a", "b")
    source.rename("id", "a")
    source.write("c", a=3, b=date(2026, 1, 3))
    records = as_debezium(source.story(), source.events)
    late_one = records.pop(2)
    merged(spark, tmp_path, [source.story()], interleaved([[*records, late_one]], Random(0)), len(records))


def late(story: TableStory) -> list[Record]:
    """Returns the records of a story, those of messages last."""
    records = as_debezium(story, story.events)
    is_message = [record["topic"].endswith(".message") for record in records]
    events = [record for record, is_told in zip(records, is_message, strict=True) if not is_told]
    return interleaved([[*events, *(r for r, is_told in zip(records, is_message, strict=True) if is_told)]], Random(0))


def entry(spark: SparkSession, folder: Path, table: str) -> CatalogEntry:
    return Catalog(spark, Lakehouse(str(folder / "out")).tables).entry("told", table)


def test_a_late_event_of_a_key_that_is_in_force_again_is_deleted_by_another_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = Source("public.again", ("id",), id=INT, r=TEXT)
    source.write("c", id=1, r="x")
    source.rekey("id", "r")
    source.write("d", id=1, r="x")
    source.rekey("id")
    source.write("c", id=2, r="x")
    story = source.story()
    created, late, *others = as_debezium(story, story.events)
    merged(spark, tmp_path, [story], interleaved([[created, *others, late]], Random(0)), len(others) + 1)


def test_messages_that_come_after_all_events_revise_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    source = Source("public.late", ("id",), id=INT, a=INT, b=TEXT)
    source.write("c", id=1, a=1, b="x")
    source.write("c", id=2, a=2, b="y")
    source.rename("a", "c")
    source.write("c", id=3, c=3, b="z")
    source.add("t", INT, 7)
    source.write("u", id=2, c=22, b="y", t=8)
    source.rename("id", "no")
    source.rekey("no", "c")
    story = source.story()
    records = late(story)
    count = sum(not record["topic"].endswith(".message") for record in records)
    merged(spark, tmp_path, [story], records, count)
    found = entry(spark, tmp_path, story.name)
    assert (found.refold, found.table_schema.key) == ("", ("no", "c"))


def test_a_column_whose_message_is_late_waits_for_it_if_another_one_had_its_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = Source("public.namesake", ("id",), id=INT, a=INT)
    source.write("c", id=1, a=1)
    source.rename("a", "b")
    source.add("a", TEXT)
    source.write("c", id=2, b=2, a="x")
    records = as_debezium(source.story(), source.events)
    added = records.pop(-2)
    folder = write(tmp_path / "in", interleaved([[*records, added]], Random(0)), None)
    case = Case("told", (folder / "events.jsonl",), None, tmp_path / "out")
    ((_, summary),) = replay(spark, [case], Delivery(len(records)), "jsonl")
    assert (summary["set_aside"], summary["quarantine"]) == ({}, [])
    rows = (tmp_path / "out" / summary["tables"][source.name]["file"]).read_text(encoding="utf-8").splitlines()
    found = sorted(json.loads(row)["b"] for row in rows)
    assert (found, entry(spark, tmp_path, source.name).refold) == ([1, 2], "values are lost")


@pytest.mark.long
def test_what_a_late_message_can_not_revise_is_said(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two messages tell that the table was created anew; then a late one tells that it was dropped before that, so that
    rows which are gone by now belong to the new table."""
    source = Source("public.back", ("id",), id=INT, a=INT)
    source.write("c", id=1, a=1)
    source.recreate(("id",), id=INT, a=INT)
    source.write("c", id=3, a=3)
    story = source.story()
    drop = next(event for event in story.events if event.ddl is not None and event.ddl.kind == "drop.table")
    rest = [event for event in story.events if event is not drop]
    records = [*as_debezium(story, rest), *as_debezium(story, [drop])]
    merged(spark, tmp_path, [story], interleaved([records], Random(0)), len(rest))
    assert "rows of a dropped table are back" in entry(spark, tmp_path, story.name).refold
    assert "ingest backfill told --rebuild --table public.back" in caplog.text


def test_a_message_that_can_not_be_read_stops_no_table(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """From it on, the table is what its events show; another table goes on as its messages tell."""
    broken, other = renames(), lives()
    broken.add("later", INT, 5)
    broken.write("c", id=5, b=5, a="x", later=6)
    records = [as_debezium(source.story(), source.events, server=f"srv{n}") for n, source in enumerate((broken, other))]
    message = next(r for r in reversed(records[0]) if r["topic"].endswith(".message"))
    content = {"v": 1, "schema": "public", "table": "renames", "tag": "ALTER TABLE", "error": "42P01"}
    message["value"]["payload"]["message"]["content"] = b64encode(json.dumps(content).encode()).decode()
    merged(spark, tmp_path, [broken.story(), other.story()], interleaved(records, Random(1)), 0)
    assert "SELECT ingest_ddl.send_definitions()" in caplog.text


@pytest.mark.parametrize(
    "is_new", [pytest.param(False, marks=pytest.mark.long), True], ids=["known table", "new table"]
)
def test_a_table_waits_while_the_file_does_not_name_a_renamed_personal_column(
    spark: SparkSession, tmp_path: Path, is_new: bool
) -> None:
    source = Source("public.people", ("id",), id=INT, mail=TEXT)
    source.write("c", id=1, mail="a@example.org")
    before = len(source.events)
    source.rename("mail", "email")
    source.write("c", id=2, email="b@example.org")
    records = interleaved([as_debezium(source.story(), source.events)], Random(0))
    outcomes = {}
    for name, personal in (("former", ["mail"]), ("both", ["mail", "email"])):
        declared = {"tables": {source.name: {"personal": personal}}}
        folder = write(tmp_path / f"{name}-in", records, declared)
        case = Case(name, (folder / "events.jsonl",), folder / "tables.json", tmp_path / name)
        ((_, outcomes[name]),) = replay(spark, [case], Delivery(0 if is_new else before), "jsonl")
    assert (outcomes["both"]["set_aside"], outcomes["both"]["applied"]) == ({}, 2)
    aside = outcomes["former"]["set_aside"][source.name]
    assert aside["code"] == "personal-column-renamed"
    assert "'email'" in aside["reason"]
    assert (outcomes["former"]["applied"], outcomes["former"]["quarantined"]) == ((0, 2) if is_new else (1, 1))
    assert "example.org" not in json.dumps(outcomes)
