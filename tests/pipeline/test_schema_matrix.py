"""Each change of a table on a real Postgres, under each policy and in each form of the events, has the outcome that
docs/data-engineer/schema-changes.md says, and silver has the rows that follow from it.

The tables change once; their records are merged once for each policy and form. `told`: with the messages of the
source's triggers. `seen`: without them. `plain`: without them and without schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Message
from psycopg.conninfo import make_conninfo
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.config import Pipeline, load
from ingest.connector import ddl_trigger
from ingest.evolution.definition import Origin
from ingest.evolution.schema_policy import OnChange, Outcome
from ingest.lakehouse.catalog import Catalog
from ingest.lakehouse.schema_history import SchemaHistory, SchemaOutcomes
from ingest.loop.capture import Capture
from ingest.loop.merge import Merge
from ingest.pipeline.composition import bronze_of, rules_of
from ingest.pipeline.definition_changes import definition_changes, with_outcomes, with_renames
from ingest.sources.files import FileSource, lines
from ingest.stack import Stack
from tests.connector.records import Records, await_stream
from tests.pipeline.matrix import CHANGES, PHASES, PREPARED, SCHEMA, Changing
from tests.pipeline.test_random_ddl import line

pytestmark = [pytest.mark.integration, pytest.mark.long]
NAME = "matrix"
DOCUMENT = Path(__file__).parents[2] / "docs" / "data-engineer" / "schema-changes.md"
FORMS = ("told", "seen", "plain")
Rows = list[dict[str, Any]] | None


@dataclass(frozen=True)
class Captured:
    """The records before the changes and after them, as lines of a changelog file, and the rows of each table then."""

    records: tuple[list[str], list[str]]
    rows: tuple[dict[str, Rows], dict[str, Rows]]


@pytest.fixture(scope="module")
def captured(stack: Stack) -> Captured:
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {NAME}".encode())
    dsn = make_conninfo(stack.postgres.dsn, dbname=NAME)
    with psycopg.connect(dsn, autocommit=True) as connection:
        execute(connection, PREPARED, *(change.statements(-1) for change in CHANGES))
        config = stack.postgres.connector(NAME, schemas=[SCHEMA]) | {"database.dbname": NAME, "poll.interval.ms": "50"}
        stack.connect.register(NAME, config)
        try:
            await_stream(connection, NAME)
            connection.execute(ddl_trigger().encode())
            with Records(stack, NAME, connection) as records:
                before, rows_before = records.so_far(), rows_of_all(connection)
                for phase in range(PHASES):
                    execute(connection, *(change.statements(phase) for change in CHANGES))
                    records.await_connector()
                every, rows_after = records.so_far(), rows_of_all(connection)
        finally:
            stack.connect.delete(NAME)
    known = {place_of(message) for message in before}
    after = [message for message in every if place_of(message) not in known]
    return Captured(([*map(line, before)], [*map(line, after)]), (rows_before, rows_after))


def execute(connection: psycopg.Connection[Any], *texts: str) -> None:
    """Executes statements, each in its own transaction."""
    for text in texts:
        for statement in filter(str.strip, text.split(";")):
            connection.execute(statement.replace("{publication}", NAME).encode())


def rows_of_all(connection: psycopg.Connection[Any]) -> dict[str, Rows]:
    """Returns the rows of each table; None of one that is gone."""
    return {change.table: rows_of(connection, change.table) for change in CHANGES}


def rows_of(connection: psycopg.Connection[Any], table: str) -> Rows:
    if connection.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,):
        return None
    return ordered([json.loads(text) for (text,) in connection.execute(f"SELECT to_jsonb(t)::text FROM {table} t")])


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def place_of(message: Message) -> tuple[str | None, int | None, int | None]:
    return message.topic(), message.partition(), message.offset()


@dataclass(frozen=True)
class Merged:
    """What a form of the records and a policy give.

    Attributes:
        rows: table → its rows, without system columns.
        outcomes: table → (kind of change, outcome) pairs.
        set_aside: table → code.
    """

    form: str
    policy: str
    rows: Mapping[str, Rows]
    outcomes: Mapping[str, set[tuple[str, str]]]
    set_aside: Mapping[str, str]


@pytest.fixture(scope="module", params=[(form, OnChange.EVOLVE) for form in FORMS], ids=" ".join)
def merged(
    request: pytest.FixtureRequest, spark: SparkSession, captured: Captured, tmp_path_factory: pytest.TempPathFactory
) -> Merged:
    form, policy = request.param
    folder = tmp_path_factory.mktemp(f"{form}-{policy}")
    file = folder / f"{NAME}.yaml"
    source = {"kafka": {"bootstrap.servers": "127.0.0.1:9"}, "topic_pattern": rf"{NAME}\..*"}
    settings = {"source": source, "lakehouse": str(folder / "lakehouse"), "schema": {"on_change": policy}}
    file.write_text(json.dumps(settings), encoding="utf-8")
    pipeline = load(str(file), {})
    bronze = bronze_of(spark, pipeline)
    merge = Merge(spark, pipeline.name, pipeline.layout, rules_of(pipeline), bronze, 100_000)
    for number, records in enumerate(captured.records):
        path = folder / f"{number}.jsonl"
        path.write_text("".join(in_form(records, form)), encoding="utf-8")
        Capture(spark, FileSource(list(lines([path]))), bronze, rules_of(pipeline).naming, 100_000).step()
        while merge.step():
            continue
    set_aside = {table: one.code for table, one in merge.set_aside.items()}
    merge.close()
    return Merged(form, policy, rows_of_silver(spark, pipeline), outcomes_of(spark, pipeline), set_aside)


def in_form(records: list[str], form: str) -> Iterator[str]:
    for text in records:
        record = json.loads(text)
        if form == "told":
            yield text
        elif record["topic"] != f"{NAME}.message":
            yield text if form == "seen" else json.dumps({n: _bare(part) for n, part in record.items()}) + "\n"


def _bare(part: Any) -> Any:
    """Returns a key or value as the converter writes it without schemas; anything else as it is."""
    return part["payload"] if isinstance(part, dict) and {*part} == {"schema", "payload"} else part


def rows_of_silver(spark: SparkSession, pipeline: Pipeline) -> dict[str, Rows]:
    frames: list[DataFrame] = []
    for change in CHANGES:
        path = pipeline.layout.silver(pipeline.name, change.table)
        if (Path(path) / "_delta_log").exists():
            rows = spark.read.format("delta").load(path)
            columns = F.struct(*(F.col(f"`{name}`") for name in rows.columns if not name.startswith("_")))
            text = F.to_json(columns, {"ignoreNullFields": "false"})
            frames.append(rows.select(F.lit(change.table).alias("of"), text.alias("row")))
    found: dict[str, list[dict[str, Any]]] = {}
    for row in reduce(DataFrame.union, frames).collect():
        found.setdefault(row["of"], []).append(normal(json.loads(row["row"])))
    return {table: ordered(rows) for table, rows in found.items()}


def normal(value: Any) -> Any:
    """Returns a value of JSON as both Postgres and Spark write it."""
    if isinstance(value, dict):
        return {name: normal(one) for name, one in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return re.sub(r"(:\d\d)(\.0+)?(Z|\+00:00)?$", r"\1", value) if isinstance(value, str) else value


def outcomes_of(spark: SparkSession, pipeline: Pipeline) -> dict[str, set[tuple[str, str]]]:
    told = with_renames(SchemaHistory(spark, pipeline.layout.schemas, pipeline.name).all_told())
    entries = {one.table_schema.table: one for one in Catalog(spark, pipeline.layout.tables).entries(pipeline.name)}
    outcomes = SchemaOutcomes(spark, pipeline.layout.schema_outcomes, pipeline.name)
    found = {}
    for change in CHANGES:
        versions = entries[change.table].versions if change.table in entries else ()
        seen = [version for version in versions if version.origin is Origin.SEEN]
        changes = definition_changes(told.get(change.table, []), seen)
        every = with_outcomes(changes, outcomes.of_table(change.table), {})
        found[change.table] = {(one.kind, str(one.outcome)) for one in every if one.kind != "first"}
    return found


@dataclass(frozen=True)
class Documented:
    """The documentation's tables. `outcomes`: change → policy → (kind, outcome). `shown`: change → form → the changes
    as which it is shown."""

    outcomes: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    shown: dict[str, dict[str, list[str]]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def documented() -> Documented:
    found = Documented()
    for text in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in text.split("|")[1:-1]]
        if len(cells) == 6 and cells[0].startswith("`"):
            kind, change, *outcomes = cells
            found.outcomes[change] = {p: (kind.strip("`"), one) for p, one in zip(OnChange, outcomes, strict=True)}
        elif len(cells) == 4 and cells[0] in {change.text for change in CHANGES}:
            change, *shown = cells
            found.shown[change] = {form: as_shown(change, cell) for form, cell in zip(FORMS, shown, strict=True)}
    return found


def as_shown(change: str, cell: str) -> list[str]:
    """Returns the changes that a cell names."""
    return [change if one == "so" else one for one in cell.split(" and ") if one != "not shown"]


_NULL = {1: {"w": None}}
UNLIKE: dict[tuple[str, str], dict[int, dict[str, Any]]] = {
    **{("told", name): {1: {column: None}} for name, column in (("volatile", "w"), ("text_to_date", "v"))},
    ("told", "computed"): {1: {"v": None}},
    ("seen", "volatile"): {1: {"w": 0}},  # Debezium shows 0 in place of a function
    ("seen", "computed"): {1: {"v": 15}},
    ("plain", "computed"): {1: {"v": 15}},
    **{("seen", name): _NULL for name in ("array", "domain", "renamed")},
    **{
        ("plain", name): _NULL
        for name in ("constant", "constant_not_null", "volatile", "array", "moment", "domain", "enum", "renamed")
    },
    ("plain", "back_as_text"): _NULL,
}
"""Form and table → ID → values of silver that are not those of the source, under `evolve`."""
_LEFT: list[dict[str, Any]] = [{"no": None, "v": 1}, {"no": None, "v": 2}, {"no": 2, "v": 22}, {"no": 3, "v": 3}]
_BOTH: list[dict[str, Any]] = [{"id": 1, "w": None}, {"id": 2, "w": None}, {"id": 3, "w": "three"}]
BESIDE: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("seen", "renamed_key"): _LEFT,
    ("plain", "renamed_key"): _LEFT,
    ("seen", "anew"): _BOTH,
    ("plain", "anew"): _BOTH,
    ("plain", "key_column"): [
        *({"id": n, "v": n, "k": None} for n in (1, 2)),
        *({"id": n, "v": v, "k": k} for n, v, k in ((1, 4, 2), (2, 22, 1), (3, 3, 3))),
    ],
}
"""Form and table → the rows of silver where rows from before a change stay beside those of the source."""
UNCERTAIN = {
    "its rows from before are not found by the images since": {
        ("seen", "keyless_renamed"),
        *(("plain", f"keyless_{change}") for change in ("added", "dropped", "renamed")),
    },
    "its type has to be declared": {("plain", name) for name in ("exact", "text_to_date", "date_to_moment")},
    "a shorter key may leave out a null": {("plain", "shorter_key")},
}
"""Reason → form and table whose rows aren't compared."""
STAY = ("gone", "former", "key_lost")
"""Tables that keep the rows from before under `evolve`."""


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_outcome_is_that_of_the_documentation(merged: Merged, documented: Documented, change: Changing) -> None:
    expected = expected_outcomes(documented, merged, change)
    found = merged.outcomes[change.table]
    assert found <= expected
    # A change that is applied is listed if its definition is known.
    assert {one for one in expected if one[1] != Outcome.APPLIED} <= found


def expected_outcomes(documented: Documented, merged: Merged, change: Changing) -> set[tuple[str, str]]:
    found = set()
    for text in documented.shown[change.text][merged.form]:
        kind, outcome = documented.outcomes[text][merged.policy]
        found.add((kind, outcome))
    return found


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_rows_are_those_of_the_source(merged: Merged, captured: Captured, change: Changing) -> None:
    place = merged.form, change.name
    for reason, places in UNCERTAIN.items():
        if place in places:
            pytest.skip(reason)
    before, after = (rows[change.table] for rows in captured.rows)
    code = merged.set_aside.get(change.table)
    assert code == ("key-dropped" if change.name == "key_lost" else None)
    expected = BESIDE.get(place) or (before if change.name in STAY else after)
    assert expected is not None
    unlike = UNLIKE.get(place, {})
    wanted = [{n.lower(): normal(v) for n, v in (row | unlike.get(row.get("id", 0), {})).items()} for row in expected]
    names = {name for row in wanted for name in row}
    found = merged.rows[change.table] or []
    assert ordered([{n.lower(): v for n, v in row.items() if n.lower() in names} for row in found]) == ordered(wanted)
