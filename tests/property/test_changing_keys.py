"""Random tables whose primary key changes, without messages of the DDL: in every delivery, by any batches, the rows are
those of the reference, which folds what the keys of records show."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from ingest.testing.tables import Statement, TableStory, interpret, random_definition
from tests.property.test_changing_tables import check_rows

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


@pytest.mark.parametrize("batches", [1, pytest.param(6, marks=pytest.mark.long)])
def test_tables_are_what_the_keys_of_their_events_show(spark: SparkSession, tmp_path: Path, batches: int) -> None:
    check_rows(spark, tmp_path, stories, SEED, CASES, batches)
