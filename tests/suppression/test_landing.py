"""Events of erased lives are stored without their content in every bronze, from the first file on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.lakehouse.accounts import Accounts
from ingest.loop.suppression.landing import Landing
from ingest.pipeline.composition import Run, bronze_of, rules_of
from ingest.pipeline.retrying import Stop
from ingest.proof.scan import SearchTerm
from ingest.quality.accounting import audit
from ingest.sources.files import FileSource, lines, shuffled
from tests.changelogs import Record, write
from tests.erasure import people
from tests.erasure.people import CLAIMS, MEMBERS, PHOTOS, STRIDE, TableEvent, cutoff, insured
from tests.erasure.test_removal import ANNA, BEN, NAME, TEXT, table_event
from tests.proof.subject import scan
from tests.suppression.test_suppression import BATCHES, CASES, LENGTH, compare, rows, write_requests

pytestmark = pytest.mark.spark
NEEDLES = (SearchTerm("name", NAME), SearchTerm("text", TEXT), SearchTerm("member", str(ANNA), ("id", "member_id")))
OLD = [
    table_event(MEMBERS, "c", 0, 10, ANNA, name=NAME),
    table_event(MEMBERS, "c", 1, 11, BEN, name="Ben"),
    table_event(CLAIMS, "c", 0, 20, 99150, member_id=ANNA, text=TEXT),
]
# An old claim is sent again, with a new offset, among events of a new life.
LATER = [
    table_event(MEMBERS, "c", 2, 90, ANNA, name="Anna again"),
    table_event(CLAIMS, "c", 1, 20, 99150, member_id=ANNA, text=TEXT),
    table_event(CLAIMS, "c", 2, 91, 61, member_id=BEN, text="theft"),
]


def run(spark: SparkSession, pipeline: Pipeline, source: FileSource) -> None:
    with Run(spark, pipeline, source=source) as engine:
        engine.available_now(Stop(), lambda _: None)


def source_of(folder: Path, records: Sequence[Record], seed: int | None = None) -> FileSource:
    given = list(lines([write(folder, list(records), None) / "events.jsonl"]))
    return FileSource(given if seed is None else shuffled(given, seed, any_order=False))


def emptied(spark: SparkSession, pipeline: Pipeline) -> int:
    return bronze_of(spark, pipeline).emptied().count()


def problems(spark: SparkSession, pipeline: Pipeline) -> Sequence[str]:
    account_rows = Accounts(spark, pipeline.layout.accounts, pipeline.name).rows()
    return audit(bronze_of(spark, pipeline).rows(), account_rows).problems


def test_events_at_or_below_the_cutoff_never_get_into_a_file(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = insured(tmp_path, batch={"max_events": 3})
    write_requests(spark, pipeline, {ANNA: cutoff(1, OLD)})
    run(spark, pipeline, source_of(tmp_path / "events", people.records([*OLD, *LATER], 1)))
    assert emptied(spark, pipeline) == 3
    assert rows(spark, pipeline, MEMBERS) == {ANNA: {"name": "Anna again"}, BEN: {"name": "Ben"}}
    assert rows(spark, pipeline, CLAIMS) == {61: {"member_id": BEN, "text": "theft"}}
    assert problems(spark, pipeline) == []
    found = scan(Path(pipeline.lakehouse), NEEDLES).findings.values()
    assert {finding.needle for finding in found} == {"member"}  # of her new life
    assert not Path(pipeline.layout.quarantine).exists()


def test_row_that_came_before_its_parent_goes_once_the_parent_is_stored_empty(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nothing leads from the photo to the member before the claim between them comes."""
    photo = TableEvent(PHOTOS, table_event(PHOTOS, "c", 0, 30, 70, claim_id=99150, text="a door").event)
    pipeline = insured(tmp_path)
    write_requests(spark, pipeline, {ANNA: cutoff(1, [*OLD, photo])})
    run(spark, pipeline, source_of(tmp_path / "photo", people.records([photo], 1)))
    assert rows(spark, pipeline, PHOTOS).keys() == {70}
    run(spark, pipeline, source_of(tmp_path / "events", people.records([*OLD, photo], 1)))
    assert rows(spark, pipeline, PHOTOS) == {}
    assert emptied(spark, pipeline) == 2
    assert scan(Path(pipeline.layout.bronze(pipeline.name)), NEEDLES).findings == {}


def test_nothing_is_read_before_the_first_request(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = insured(tmp_path)
    events = spark.range(1)
    landing = Landing(spark, pipeline.name, pipeline.layout, rules_of(pipeline))
    assert landing.emptied(events, bronze_of(spark, pipeline), 1, 1) == (events, None)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_silver_is_the_same_if_suppressed_events_are_stored_empty(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    lives = {case: people.random_history(random, case, LENGTH, settled=True) for case in range(1, CASES + 1)}
    points = {case: random.randrange(len(said) + 1) for case, said in lives.items()}
    records = [record for case, said in lives.items() for record in people.records(said, case)]
    pipeline = insured(tmp_path, batch={"max_events": len(records) // BATCHES + 1})
    write_requests(spark, pipeline, {STRIDE * c: people.cutoff(c, said[: points[c]]) for c, said in lives.items()})
    run(spark, pipeline, source_of(tmp_path / "events", records, seed))
    assert emptied(spark, pipeline) > CASES
    assert problems(spark, pipeline) == []
    compare(spark, pipeline, lives, points)
