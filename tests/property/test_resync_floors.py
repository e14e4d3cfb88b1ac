"""The floor of a resync tells exactly which rows are gone, whatever transactions are open while the table is read."""

from __future__ import annotations

import json
import os
from random import Random
from typing import Any

import pytest

from ingest.changelog.envelope import RESYNCED
from tests.property.test_resyncs import BELOW_ALL, Database

CASES = int(os.environ.get("FUZZ_CASES", "500"))
SEED = int(os.environ.get("FUZZ_SEED", "7"))


def place(source: dict[str, Any]) -> tuple[int, int]:
    committed, lsn = int(json.loads(source["sequence"])[0]), source["lsn"]
    if lsn is None:
        return committed, BELOW_ALL
    return (committed, lsn - committed) if committed > lsn else (lsn, 0)


def folded(topic: list[dict[str, Any]]) -> dict[int, Any]:
    """Returns the newest row of each key, without those at or below a floor."""
    floor, newest = (0, 0), dict[int, tuple[Any, Any]]()
    for number, value in enumerate(record["value"] for record in topic):
        if value["op"] == RESYNCED:
            _, major, _, ordinal = value["resync"]["floor"]
            floor = max(floor, (major, ordinal))
            continue
        key, at = topic[number]["key"]["id"], (place(value["source"]), number)
        if key not in newest or at > newest[key][0]:
            newest[key] = (at, value["after"])
    return {k: row for k, (at, row) in newest.items() if row is not None and at[0] > floor}


@pytest.mark.parametrize("lost", [0.0, 0.3, 0.9])
def test_newest_rows_above_the_floor_are_the_database(lost: float) -> None:
    random = Random(SEED)
    for case in range(CASES):
        one = Database(random, f"stock{case}", sends_all_values=True)
        one.run(25, lost)
        while not one.resync():
            one.run(9)
        one.run(random.randrange(9))
        one.commit_all()
        assert folded(one.topic) == one.rows, (SEED, case, one.topic)
