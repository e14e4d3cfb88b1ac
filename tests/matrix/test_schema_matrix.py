"""Each change of a table on a real Postgres, under each policy and in each form of the events, has the outcome that
docs/data-engineer/schema-changes.md says, and silver has the rows that follow from it.

The tables change once; their records are merged once for each policy and form. `told`: with the messages of the
source's triggers. `seen`: without them. `plain`: without them and without schemas."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.config import Pipeline, load
from ingest.evolution.definition import Origin
from ingest.evolution.schema_policy import OnChange, Outcome, SchemaPolicy
from ingest.lakehouse.catalog import Catalog
from ingest.lakehouse.schema_history import SchemaHistory, SchemaOutcomes
from ingest.loop.capture import Capture
from ingest.loop.merge import Merge
from ingest.pipeline.composition import bronze_of, rules_of
from ingest.pipeline.definition_changes import definition_changes, with_outcomes, with_renames
from ingest.sources.files import FileSource, lines
from tests.matrix.changes import CHANGES, Changing
from tests.matrix.lanes import LONG, SHORT, Lane
from tests.matrix.records import FORMS, NAME, Captured, Rows, captured, comparable, in_form, ordered, recorded
from tests.matrix.rows import STAY, UNCERTAIN, expected_rows, lowered, names_of

pytestmark = pytest.mark.spark
DOCUMENT = Path(__file__).parents[2] / "docs" / "data-engineer" / "schema-changes.md"


def cases() -> list[Any]:
    """Returns each lane with each change. `make test` runs one lane of few tables."""
    found = []
    for lane in (SHORT, *LONG):
        marks = [] if lane is SHORT else [pytest.mark.long]
        marks += [pytest.mark.integration] if lane.is_live else []
        found += [pytest.param(lane, change, marks=marks, id=f"{lane} {change.name}") for change in lane.changes]
    return found


@pytest.fixture(scope="module")
def live(request: pytest.FixtureRequest) -> Captured:
    """The records of a real connector. With INGEST_RECORD=1 they are recorded."""
    found = captured(request.getfixturevalue("stack"))
    if os.environ.get("INGEST_RECORD"):
        found.save()
    return found


@pytest.mark.long
@pytest.mark.integration
def test_a_connector_sends_what_was_recorded(live: Captured) -> None:
    for now, then in zip(live.records, recorded().records, strict=True):
        assert comparable(now) == comparable(then)
    assert without_random(live.rows) == without_random(recorded().rows)


def without_random(rows: Sequence[dict[str, Rows]]) -> list[dict[str, Rows]]:
    return [{table: found for table, found in part.items() if not table.endswith(".volatile")} for part in rows]


@dataclass(frozen=True)
class Merged:
    """What the records of a lane give.

    Attributes:
        source: the tables' rows at the source, before and after the changes.
        rows: table → its rows, without system columns.
        outcomes: table → (kind of change, outcome) pairs.
        set_aside: table → code.
    """

    lane: Lane
    source: tuple[dict[str, Rows], dict[str, Rows]]
    rows: Mapping[str, Rows]
    outcomes: Mapping[str, set[tuple[str, str]]]
    set_aside: Mapping[str, str]


@pytest.fixture(scope="module")
def merged(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Merged:
    lane: Lane = request.param
    found = request.getfixturevalue("live") if lane.is_live else recorded()
    folder = tmp_path_factory.mktemp(f"{lane.form}-{lane.policy}")
    file = folder / f"{NAME}.yaml"
    source = {"kafka": {"bootstrap.servers": "127.0.0.1:9"}, "topic_pattern": rf"{NAME}\..*"}
    settings = {"source": source, "lakehouse": str(folder / "lakehouse"), **lane.settings}
    file.write_text(json.dumps(settings), encoding="utf-8")
    pipeline = load(str(file), {})
    bronze = bronze_of(spark, pipeline)
    merge = Merge(spark, pipeline.name, pipeline.layout, rules_of(pipeline), bronze, 100_000)
    for number, records in enumerate(found.records):
        path = folder / f"{number}.jsonl"
        tables = {change.table for change in lane.changes}
        path.write_text("".join(in_form(records, lane.form, tables)), encoding="utf-8")
        Capture(spark, FileSource(list(lines([path]))), bronze, rules_of(pipeline).naming, 100_000).step()
        while merge.step():
            continue
    set_aside = {table: one.code for table, one in merge.set_aside.items()}
    merge.close()
    return Merged(lane, found.rows, rows_of_silver(spark, pipeline), outcomes_of(spark, pipeline), set_aside)


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
        messages = told.get(change.table, [])
        waiting = {message.since for message in messages} - {version.since for version in versions}
        every = with_outcomes(definition_changes(messages, seen), outcomes.of_table(change.table), {}, waiting)
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


@pytest.mark.parametrize(("merged", "change"), cases(), indirect=["merged"], scope="module")
def test_outcome_is_that_of_the_documentation(merged: Merged, documented: Documented, change: Changing) -> None:
    expected = expected_outcomes(documented, merged.lane, change)
    found = merged.outcomes[change.table]
    refused = {one for one in expected if one[1] == Outcome.REFUSED}
    if refused:
        # What comes after a change that is refused is not decided on.
        assert found & refused
        has_events = change.name not in STAY
        assert merged.set_aside.get(change.table) == ("schema-change" if has_events else None)
        return
    assert found <= expected | by_name(documented, merged.lane.rules(change), expected)
    # A change that is applied is listed if its definition is known.
    assert {one for one in expected if one[1] != Outcome.APPLIED} <= found
    assert change.table not in merged.set_aside


def expected_outcomes(documented: Documented, lane: Lane, change: Changing) -> set[tuple[str, str]]:
    """Returns the (kind, outcome) pairs of a table's change by the documentation."""
    found, policy = set(), lane.rules(change)
    for text in documented.shown[change.text][lane.form]:
        ((kind, _), *_) = documented.outcomes[text].values()
        if kind == "add.column" and change.name.startswith("back") and policy.keeps_dropped:
            # The column has gone on, so that it is no new one; it may get another type.
            found.add((kind, "applied"))
            if change.name == "back":
                continue
            kind, text = "alter.column.type", "a type changes to text"  # noqa: PLW2901
        mode = policy.mode(kind)
        _, outcome = documented.outcomes[text][mode]
        if change.name.startswith("keyless"):
            outcome = WITHOUT_KEY.get((kind, mode), outcome)
        found.add((kind, outcome))
    return found


def by_name(documented: Documented, policy: SchemaPolicy, expected: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Returns what else may become of columns that go on by their names: a rename, or the next table of a name."""
    is_split = any(kind in ("rename.column", "drop.table") and one != Outcome.APPLIED for kind, one in expected)
    texts = ("a column is added", "a column is dropped") if is_split else ()
    kinds = [documented.outcomes[text][OnChange.EVOLVE][0] for text in texts]
    return {documented.outcomes[text][policy.mode(kind)] for text, kind in zip(texts, kinds, strict=True)}


WITHOUT_KEY = {
    ("drop.column", "lenient"): "refused",
    ("drop.column", "ignore"): "refused",
    ("rename.column", "lenient"): "applied",
    ("rename.column", "ignore"): "refused",
}
"""Kind of change and policy → outcome in a table without a key, where it is another one."""


@pytest.mark.parametrize(("merged", "change"), cases(), indirect=["merged"], scope="module")
def test_rows_are_those_that_follow(merged: Merged, documented: Documented, change: Changing) -> None:
    place = merged.lane.form, change.name
    outcomes = dict(expected_outcomes(documented, merged.lane, change))
    is_refused = Outcome.REFUSED in outcomes.values()
    for reason, places in UNCERTAIN.items():
        if place in places and not is_refused:
            pytest.skip(reason)
    before, after = (rows[change.table] for rows in merged.source)
    assert before is not None
    wanted = before if is_refused else expected_rows(place, before, after, merged.lane.rules(change), outcomes)
    # Columns that were dropped stay in the table.
    dropped = names_of(before) - names_of(wanted)
    found = [{n: v for n, v in lowered(row).items() if n not in dropped} for row in merged.rows[change.table] or []]
    assert ordered(found) == ordered([lowered(normal(row)) for row in wanted])
