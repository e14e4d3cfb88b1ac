"""Random tables whose primary key changes, without messages of the DDL: in every delivery, by any batches, the rows are
those of the reference, which folds what the keys of records show."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from ingest.testing import assumed, fold
from ingest.testing.table_deliveries import interleaved
from ingest.testing.table_records import as_debezium, unmatched
from ingest.testing.tables import Statement, TableStory, interpret, random_definition
from tests.changelogs import write
from tests.property.test_changing_tables import AGREES, read_table, schema_events

pytestmark = pytest.mark.spark
CASES = int(os.environ.get("FUZZ_CASES", "200")) // 40
SEED = int(os.environ.get("FUZZ_SEED", "12"))
STATEMENTS = ("insert", "insert", "insert", "update", "update", "move", "delete", "alter key", "alter key")


def stories(random: Random) -> Iterator[TableStory]:
    """Yields tables with two keys or more, and whole images: a partial image of an older key is refused."""
    for number in count():
        start = random_definition(random, "adaptive", keyless=False)
        kinds = ["insert", "insert", *random.choices(STATEMENTS, k=random.choice((8, 20)))]
        drawn = [Statement(kind, random.getrandbits(32)) for kind in kinds]  # type: ignore[arg-type]
        story = interpret(start, drawn, f"public.t{number}", full=True)
        keys = {event.carried.key for event in story.events if event.carried is not None and event.ddl is None}
        if len(keys) > 1 and () not in keys:
            yield story


@pytest.mark.parametrize("batches", [pytest.param(1, marks=pytest.mark.long), 6])
def test_tables_are_what_the_keys_of_their_events_show(spark: SparkSession, tmp_path: Path, batches: int) -> None:
    random = Random(SEED)
    tables = [*islice(stories(random), CASES)]
    sent = [schema_events(story, random) for story in tables]
    records = interleaved(
        [as_debezium(story, events, trigger=False) for story, events in zip(tables, sent, strict=True)], random
    )
    case = Case("keys", (write(tmp_path / "in", records, None) / "events.jsonl",), None, tmp_path / "out")
    size = 0 if batches == 1 else len(records) // batches + 1
    ((_, summary),) = replay(spark, [case], Delivery(batch_size=size), "jsonl")
    assert (summary["set_aside"], summary["quarantine"]) == ({}, [])
    for story, events in zip(tables, sent, strict=True):
        expected = fold(assumed(events)).values()
        found = read_table(tmp_path / "out", summary, story)
        assert unmatched(expected, found, story) == AGREES, (story.name, SEED, story.statements)
