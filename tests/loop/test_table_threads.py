"""Tables that are merged beside each other, of which one ends the run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from time import sleep

import pytest

from ingest.errors import Unreachable
from ingest.loop.table_threads import merged_beside


def test_results_are_in_the_order_of_the_batches() -> None:
    with ThreadPoolExecutor(2) as pool:
        assert merged_beside(pool, lambda n: n * n, [3, 1, 2]) == [9, 1, 4]
        assert merged_beside(pool, lambda n: n, []) == []


def test_an_error_is_raised_once_merges_that_have_begun_are_done_and_no_other_begins() -> None:
    has_begun, ended = Event(), list[str]()

    def merge(batch: str) -> None:
        if batch == "away":
            has_begun.wait(10)
            raise Unreachable("the source is away", "start it")
        has_begun.set()
        sleep(0.2)
        ended.append(batch)

    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(Unreachable, match="away"):
            merged_beside(pool, merge, ["running", "away", *(f"waiting {n}" for n in range(5))])
        assert ended[0] == "running"
        assert len(ended) <= 2
