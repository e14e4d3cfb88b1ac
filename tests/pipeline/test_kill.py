"""Killed processes that are started again bring silver to the state of the source."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from ingest.stack import Stack
from tests.pipeline.changing_table import SEED, ChangingTable, captured_table, cli, process, wait_for_commit

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture
def table(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChangingTable]:
    with captured_table(stack, tmp_path_factory.mktemp("killed"), "killed") as made:
        yield made


def test_silver_equals_the_source_after_kills(table: ChangingTable, spark: SparkSession) -> None:
    choose, file = random.Random(SEED), str(table.file)
    with table.changing():
        with process("jobs/capture.py", file):
            wait_for_commit(table.bronze)
            table.stack.connect.kill()
            time.sleep(choose.random())  # SIGKILL somewhere in the next batch
        table.stack.connect.start()
        with process("jobs/merge.py", file):
            wait_for_commit(table.silver)
        with process(*cli("run", file)):
            wait_for_commit(table.silver)
            time.sleep(choose.random())
        with process(*cli("run", file)) as running:
            wait_for_commit(table.silver)
            running.send_signal(signal.SIGTERM)  # Not a kill: it finishes its batch and ends with 0.
            assert running.wait(600) == 0
    table.require_equal_in_the_end(spark)
    table.require_nothing_lost_nothing_doubled(spark)
