"""Random tables: the reference folds their changelogs to the source's rows, everything occurs, records say it all."""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import chain, pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from ingest.changelog.connect_schema import columns_of, declared_column
from ingest.evolution.definition import FillKind
from ingest.testing import UNAVAILABLE, UNKNOWN, Event, assumed, fold, shrink, without_ddl
from ingest.testing.assumed import lagging
from ingest.testing.casts import ASSIGNMENT_CASTS, cast
from ingest.testing.source_types import MODES, source_types
from ingest.testing.strategies import table_stories
from ingest.testing.table_deliveries import cut, delivered, interleaved
from ingest.testing.table_records import as_debezium, declared_columns, unmatched
from ingest.testing.table_source import ODD_NAMES
from ingest.testing.table_versions import place_of, seen_versions, told_versions
from ingest.testing.tables import SHOWN, Statement, TableStory, interpret, random_table
from ingest.values.types import Kind, LogicalType

AGREES: tuple[list[Any], ...] = ([], [])
DRAWS = settings(derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))


@cache
def stories() -> list[TableStory]:
    return [random_table(Random(seed)) for seed in range(200)]


@cache
def shown_stories() -> list[TableStory]:
    """Those whose changes the next event shows: each is followed by an insert."""
    found = []
    for seed in range(120):
        story = random_table(Random(seed), changes=SHOWN)
        statements = [
            each
            for statement in story.statements
            for each in (statement, Statement("insert", statement.seed))[: 1 + (statement.kind in SHOWN)]
        ]
        found.append(story.of(statements))
    return [story for story in found if not any(is_hidden(*pair) for pair in pairwise([*story.events, None]))]


def is_hidden(change: Event | None, following: Event | None) -> bool:
    """A change that no event shows before the next change: an insert may find no free key."""
    return change is not None and change.ddl is not None and (following is None or following.ddl is not None)


def test_the_reference_folds_a_changelog_to_the_rows_of_its_source() -> None:
    for seed, story in enumerate(stories()):
        assert unmatched(fold(story.events).values(), story.rows, story) == AGREES, seed


@settings(DRAWS, max_examples=60, phases=[Phase.generate])
@given(table_stories())
def test_the_reference_folds_what_hypothesis_draws(story: TableStory) -> None:
    assert unmatched(fold(story.events).values(), story.rows, story) == AGREES


def test_what_schemas_show_suffices_without_the_messages() -> None:
    assert len(shown_stories()) > 80
    for seed, story in enumerate(shown_stories()):
        rows = fold(assumed(without_ddl(story.events))).values()
        assert unmatched(rows, story.rows, story) == AGREES, seed


def test_a_delivery_changes_nothing() -> None:
    orders = Counter[str]()
    for seed, story in enumerate(stories()):
        random = Random(seed)
        sent = delivered(story, random, late_changes=random.random() < 0.5)
        known = {(e.op, e.lsn, repr(e.key), repr(e.image), repr(e.before), repr(e.ddl)) for e in story.events}
        assert known == {(e.op, e.lsn, repr(e.key), repr(e.image), repr(e.before), repr(e.ddl)) for e in sent}
        assert [e.offset for e in sent] == [*range(len(sent))]
        lsns = [e.lsn for e in sent if e.op not in ("null", "ddl")]
        orders["sorted" if lsns == sorted(lsns) else "other"] += 1
        orders["repeated" if len(sent) > len(story.events) else "once"] += 1
        assert [*chain.from_iterable(cut(sent, random))] == sent
        if not story.has_bags:
            assert fold(sent) == fold(story.events), seed
    assert min(orders.values()) > 30, orders


def test_a_message_comes_before_the_events_that_follow_it() -> None:
    for seed, story in enumerate(stories()[:100]):
        sent = delivered(story, Random(seed))
        for at, change in enumerate(sent):
            assert change.ddl is None or all(e.lsn < change.lsn for e in sent[:at] if e.op != "null"), seed


def test_a_table_is_a_function_of_its_statements() -> None:
    for story in stories()[:50]:
        again = story.of(story.statements)
        assert (again.events, again.rows, again.table) == (story.events, story.rows, story.table)


def test_a_failing_table_shrinks_to_the_statements_that_fail() -> None:
    story = next(story for story in stories() if any(e.ddl and e.ddl.kind == "rename.column" for e in story.events))

    def fails(candidates: Sequence[list[Statement]]) -> list[bool]:
        found = [story.of(statements) for statements in candidates]
        return [any(e.ddl and e.ddl.kind == "rename.column" for e in one.events) for one in found]

    assert [statement.kind for statement in shrink(story.statements, fails)] == ["rename column"]


def test_everything_occurs() -> None:
    events = [event for story in stories() for event in story.events]
    kinds = Counter(event.ddl.kind if event.ddl else event.op for event in events)
    every = {"create.table", "drop.table", "add.column", "drop.column", "rename.column", "alter.column.type"}
    every |= {"alter.default", "alter.nullability", "alter.key", "c", "u", "d", "r", "t", "null"}
    assert kinds.keys() == every
    assert min(kinds.values()) >= 20, kinds
    names = {name for event in events if event.carried for name in event.carried.columns}
    assert {*ODD_NAMES} <= names
    assert {story.mode for story in stories()} == {*MODES}
    assert {
        (event.carried.key == (), len(event.carried.key))
        for event in events
        if event.carried and event.carried.key is not None
    } == {
        (True, 0),
        (False, 1),
        (False, 2),
    }


HAPPENS = {
    "a column that comes back": lambda s: any(
        change.kind == "add.column" and change.column in dropped_before(s, at) for at, change in changes_of(s)
    ),
    "a rename to another case": lambda s: any(
        c.kind == "rename.column" and c.name != c.column and c.name.lower() == c.column.lower()
        for _, c in changes_of(s)
    ),
    "a rename of a key column": lambda s: any(
        c.kind == "rename.column" and c.name in (s.events[at].carried or s.table).key for at, c in changes_of(s)
    ),
    "a type of a key column": lambda s: any(
        c.kind == "alter.column.type" and c.column in (s.events[at].carried or s.table).key for at, c in changes_of(s)
    ),
    "an unavailable value after a change": lambda s: any(
        UNAVAILABLE in e.image.values() and any(at < e.offset for at, c in changes_of(s) if c.kind != "create.table")
        for e in s.events
    ),
    "a value that only the source knows": lambda s: any(UNKNOWN in row.values() for row in fold(s.events).values()),
    "a key that is dropped": lambda s: any(c.kind == "alter.key" and not c.key for _, c in changes_of(s)),
    "a change and an event at one position": lambda s: any(
        e.ddl is None and any(s.events[at].lsn == e.lsn for at, _ in changes_of(s)) for e in s.events
    ),
    "a snapshot at the start": lambda s: len(s.events) > 2 and s.events[1].op == "r",
    "a move of a row in two events": lambda s: any(e.new_key is not None for e in s.events),
    "a default that is not null": lambda s: any(
        c.to is not None and c.to.default is not None for _, c in changes_of(s)
    ),
}


def changes_of(story: TableStory) -> list[tuple[int, Any]]:
    return [(at, event.ddl) for at, event in enumerate(story.events) if event.ddl is not None]


def dropped_before(story: TableStory, at: int) -> set[str]:
    return {change.column for when, change in changes_of(story) if when < at and change.kind == "drop.column"}


@pytest.mark.parametrize("what", HAPPENS)
def test_it_happens(what: str) -> None:
    assert sum(map(HAPPENS[what], stories())) >= 3


def kinds_in(one: LogicalType) -> set[Kind]:
    return {one.kind}.union(*map(kinds_in, one.elements))


def test_every_logical_type_occurs_in_every_mode() -> None:
    inferred_or_stored = {Kind.INT53, Kind.UNKNOWN}
    found: set[Kind] = set()
    for mode in MODES:
        fields = [{"field": name, "optional": True, **known.schema} for name, known in source_types(mode).items()]
        columns = columns_of({"type": "struct", "fields": fields})
        found |= set().union(*(kinds_in(column.type) for column in columns))
        for column, known in zip(columns, source_types(mode).values(), strict=True):
            if known.declared:
                assert declared_column("c", known.declared).type == column.type, (mode, column)
    assert found == {*Kind} - inferred_or_stored


def test_numbers_fit_their_schema() -> None:
    for mode in MODES:
        for name, known in source_types(mode).items():
            if known.schema["type"] == "int64":
                assert all(-(2**63) <= known.wire(value) < 2**63 for value in known.values), (mode, name)


def test_every_cast_of_random_tables_is_known() -> None:
    types = source_types()
    for before, afters in ASSIGNMENT_CASTS.items():
        for after in afters:
            results = []
            for value in types[before].values:
                try:
                    results.append(cast(value, after))
                except ValueError:
                    continue
            assert results
            for value in results:
                assert UNKNOWN not in (value if isinstance(value, list) else [value]), (before, after)
                json.dumps(types[after].wire(value))


@pytest.mark.parametrize("schema", [True, False])
@pytest.mark.parametrize("trigger", [True, False])
def test_records_hold_what_the_events_say(schema: bool, trigger: bool) -> None:
    for story in stories()[:30]:
        records = as_debezium(story, story.events, schema, trigger)
        events = [event for event in story.events if trigger or event.ddl is None]
        assert len(records) == len(events)
        for record, event in zip(json.loads(json.dumps(records)), events, strict=True):
            if event.op == "null":
                assert record["value"] is None
                continue
            value = record["value"]["payload"] if schema else record["value"]
            assert value["op"] == ("m" if event.ddl else event.op)
            assert value["source"]["lsn"] == event.lsn
            assert record["topic"] == ("srv.message" if event.ddl else "srv.public.t")
            if event.op in ("c", "u", "r"):
                assert value["after"].keys() == event.image.keys()
            if schema and event.ddl is None and event.carried is not None:
                fields = record["value"]["schema"]["fields"][0]["fields"]
                assert [field["field"] for field in fields] == [*event.carried.columns]
                assert (record["key"] is None) == (event.key is None)
                names = {} if event.key is None else record["key"]["payload"]
                assert [*names] == ([] if event.key is None else [*(event.carried.key or ())])


def test_a_message_holds_the_whole_definition() -> None:
    for story in stories()[:100]:
        for record, event in zip(as_debezium(story, story.events), story.events, strict=True):
            if event.ddl is None or event.carried is None:
                continue
            message = record["value"]["payload"]["message"]
            content = json.loads(b64decode(message["content"]))
            assert message["prefix"] == "ingest_ddl"
            assert [column["name"] for column in content["columns"]] == [*event.carried.columns]
            numbers = {column["n"]: column["name"] for column in content["columns"]}
            assert len(numbers) == len(content["columns"])
            assert [numbers[n] for n in content["key"]["columns"]] == [*(event.carried.key or ())]
            filled = {column["name"] for column in content["columns"] if column["missing"] is not None}
            assert filled == {n for n, column in event.carried.columns.items() if column.missing is not None}


def test_versions_are_those_that_messages_tell_and_schemas_show() -> None:
    kinds = Counter[FillKind]()
    for story in stories():
        told, seen = told_versions(story), seen_versions(story)
        assert len(told) == len(changes_of(story))
        for versions in (told, seen):
            assert [version.since for version in versions] == sorted(version.since for version in versions)
        places = {place_of(event): event for event in story.events if event.op != "null"}
        for version in [*told, *seen]:
            carried = places[version.since].carried or story.table
            assert [column.name for column in version.definition.columns] == [*carried.columns]
            assert version.definition.key == carried.key
        kinds += Counter(column.fill.kind for version in told for column in version.definition.columns)
    assert min(kinds[kind] for kind in FillKind) > 20, kinds


def test_a_column_that_comes_back_has_another_number() -> None:
    for story in stories():
        for at, change in changes_of(story):
            if change.kind == "add.column":
                carried = story.events[at].carried or story.table
                earlier = {
                    c.number
                    for e in story.events[:at]
                    if e.carried and e.carried.oid == carried.oid
                    for c in e.carried.columns.values()
                }
                assert carried.columns[change.column].number not in earlier


def test_tables_share_topics() -> None:
    random = Random(3)
    tables = [random_table(random, name=f"public.t{n}") for n in range(4)]
    topics = ["srv.shared", "srv.shared", None, None]
    lists = [
        as_debezium(story, delivered(story, random), topic=topic) for story, topic in zip(tables, topics, strict=True)
    ]
    records = interleaved(lists, random)
    for topic in {record["topic"] for record in records}:
        assert [r["offset"] for r in records if r["topic"] == topic] == [
            *range(sum(r["topic"] == topic for r in records))
        ]
    for one in lists:
        sent = [json.dumps(record) for record in one]
        found = [json.dumps(record | {"offset": 0}) for record in records]
        assert [text for text in found if text in {*sent}] == sent
    for before, record in pairwise(records):
        assert record["value"] is not None or before["topic"] == record["topic"]


def test_a_key_has_one_partition() -> None:
    used = set()
    for story in stories()[:20]:
        partitions: dict[str, set[int]] = {}
        for record in interleaved([as_debezium(story, story.events, partitions=3)], Random(0)):
            used.add(record["partition"])
            if record["key"] is not None:
                partitions.setdefault(json.dumps(record["key"]), set()).add(record["partition"])
        assert all(len(found) == 1 for found in partitions.values())
    assert used == {0, 1, 2}


def test_a_lagging_connector_shows_defaults_and_keys_of_the_future() -> None:
    shown = Counter[str]()
    for story in stories():
        for event, late in zip(story.events, lagging(story.events, 1), strict=True):
            if event.carried != late.carried and event.carried and late.carried:
                shown["key" if event.carried.key != late.carried.key else "columns"] += 1
                assert [*event.carried.columns] == [*late.carried.columns]
            if event.key != late.key:
                shown["key of a record"] += 1
    assert min(shown[what] for what in ("key", "columns", "key of a record")) > 5, shown


def test_types_are_declared_where_no_column_changes_its_own() -> None:
    found = [declared_columns(random_table(Random(seed), changes=["add column", "drop column"])) for seed in range(60)]
    assert any(found)
    assert None in found


def test_a_statement_that_is_not_possible_has_no_effect() -> None:
    story = random_table(Random(0))
    kinds = {statement.kind for one in stories() for statement in one.statements} - {"insert", "truncate"}
    for kind in kinds:
        alone = interpret(story.start, [Statement(kind, 1)])
        assert alone.rows == ()
