"""Each change of a table on a real Postgres, under each policy and in each form of the events, has the outcome that
docs/data-engineer/schema-changes.md says, and silver has the rows that follow from it.

The tables change once; their records are merged once for each policy and form. `told`: with the messages of the
source's triggers. `seen`: without them. `plain`: without them and without schemas."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
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
from tests.matrix.records import FORMS, NAME, Captured, Rows, captured, in_form, ordered, recorded
from tests.matrix.rows import UNCERTAIN, expected_rows

pytestmark = pytest.mark.spark
DOCUMENT = Path(__file__).parents[2] / "docs" / "data-engineer" / "schema-changes.md"
LANES = (("told", "evolve"), ("told", "lenient"), ("seen", "evolve"), ("plain", "evolve"))
"""Form and policy of each lane."""


@dataclass(frozen=True)
class Lane:
    """Which records are merged, in which form, under which policy. `is_live`: those of a real Postgres. `is_short`:
    those of the tables `FEW`."""

    form: str
    policy: str
    is_live: bool = False
    is_short: bool = False

    def __str__(self) -> str:
        which = "live" if self.is_live else "few" if self.is_short else "recorded"
        return f"{which} {self.form} {self.policy}"

    @property
    def changes(self) -> list[Changing]:
        return [change for change in CHANGES if not self.is_short or change.name in FEW]

    @property
    def rules(self) -> SchemaPolicy:
        return SchemaPolicy(OnChange(self.policy))


FEW = ("constant", "back", "renamed", "wider", "computed", "other_key", "anew", "emptied", "keyless_dropped")


def cases() -> Iterator[Any]:
    """Yields each lane with each change. `make test` runs one lane of few tables."""
    short = Lane("told", "evolve", is_short=True)
    every = [Lane(*lane, is_live) for is_live in (False, True) for lane in LANES]
    for lane in (short, *every):
        marks = [] if lane.is_short else [pytest.mark.long]
        marks += [pytest.mark.integration] if lane.is_live else []
        for change in lane.changes:
            yield pytest.param(lane, change, marks=marks, id=f"{lane} {change.name}")


@pytest.fixture(scope="module")
def live(request: pytest.FixtureRequest) -> Captured:
    """The records of a real connector. With INGEST_RECORD=1 they are recorded."""
    found = captured(request.getfixturevalue("stack"))
    if os.environ.get("INGEST_RECORD"):
        found.save()
    return found


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
    settings = {"source": source, "lakehouse": str(folder / "lakehouse"), "schema": {"on_change": lane.policy}}
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
        assert merged.set_aside[change.table] == "schema-change"
        return
    assert found <= expected | (JOINED if change.name == "anew" else set())
    # A change that is applied is listed if its definition is known.
    assert {one for one in expected if one[1] != Outcome.APPLIED} <= found


def expected_outcomes(documented: Documented, lane: Lane, change: Changing) -> set[tuple[str, str]]:
    found = set()
    for text in documented.shown[change.text][lane.form]:
        ((kind, _), *_) = documented.outcomes[text].values()
        mode = lane.rules.mode(kind)
        _, outcome = documented.outcomes[text][mode]
        if change.name.startswith("keyless"):
            outcome = WITHOUT_KEY.get((kind, mode), outcome)
        elif kind == "add.column" and change.name.startswith("back") and lane.rules.keeps_dropped:
            outcome = "applied"  # The column has gone on, so that it is no new one.
        found.add((kind, outcome))
    return found


JOINED = {("drop.column", "kept beside")}
"""What becomes of columns that the next table of a name lacks, if the drop of the former one is kept beside."""
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
    outcomes = expected_outcomes(documented, merged.lane, change)
    is_refused = any(outcome == Outcome.REFUSED for _, outcome in outcomes)
    for reason, places in UNCERTAIN.items():
        if place in places and not is_refused:
            pytest.skip(reason)
    before, after = (rows[change.table] for rows in merged.source)
    assert before is not None
    if is_refused:
        wanted = before
    else:
        is_kept = {kind for kind, outcome in outcomes if outcome != Outcome.APPLIED}
        wanted = expected_rows(place, before, after, merged.lane.rules, is_kept)
        assert change.table not in merged.set_aside
    names = {name.lower() for row in wanted for name in row}
    rows = [{n.lower(): normal(v) for n, v in row.items()} for row in wanted]
    found = merged.rows[change.table] or []
    assert ordered([{n.lower(): v for n, v in row.items() if n.lower() in names} for row in found]) == ordered(rows)
