"""Random tables whose columns change their types, without messages of the DDL: in every delivery, by any batches, the
values are those of the reference, which casts as Postgres does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from ingest.testing.tables import DefinitionStatement, TableStory, random_table
from tests.property.test_changing_tables import CASES, SEED, check_rows

pytestmark = [pytest.mark.spark, pytest.mark.long]
CHANGES: tuple[DefinitionStatement, ...] = ("alter type", "alter type", "alter type", "add column", "drop column")


def stories(random: Random) -> Iterator[TableStory]:
    """Yields keyed tables in which at least two columns change their types, none of them of the key."""
    for number in count():
        story = random_table(random, random.choice((12, 25)), CHANGES, f"public.t{number}", keyless=False)
        key = story.start.key or ()
        changed = [e.ddl.column for e in story.events if e.ddl is not None and e.ddl.kind == "alter.column.type"]
        if len(changed) > 1 and not {*changed} & {*key}:
            yield story


@pytest.mark.parametrize("batches", [1, 5])
def test_values_are_cast_as_the_source_did(spark: SparkSession, tmp_path: Path, batches: int) -> None:
    check_rows(spark, tmp_path, stories, SEED, CASES, batches)
