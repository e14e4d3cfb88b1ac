"""Reads from Spark's event log where the time of batches goes: the CPU time of tasks per phase, and the rest, which is
planning, commits, the JVM's compiler and garbage collector."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Window = tuple[float, float]
"""Begin and end in seconds since 1970."""
_PHASES = (
    ("batches/group_stats.py", "profile"),
    ("localCheckpoint", "parse"),
    ("ingest/reconcile/", "compact, find"),
    ("ingest/spark/prepared.py", "compact, find"),  # lookups for large batches
    ("collectAsList", "compact, find"),  # of page_filter.py
    ("small query as JSON", "compact, find"),
    ("small write", "write"),
    ("isEmpty at", "compact, find"),
    ("writeFiles", "write"),
    ("buildDeletionVectors", "write"),
    ("withThreadLocalCaptured", "commit"),
    ("Delta", "commit"),
)
"""Text in the name of a stage, and its phase; the first match counts."""


def properties(folder: Path) -> dict[str, str]:
    """Returns the Spark properties that write the event log for `phases`."""
    folder.mkdir(parents=True)
    log = {"enabled": "true", "dir": folder.as_uri(), "rolling.enabled": "false", "compress": "false"}
    return {f"spark.eventLog.{name}": value for name, value in log.items()}


def phases(folder: Path, windows: Sequence[Window], wall: float, cpu: float) -> dict[str, float]:
    """Returns seconds of CPU per phase; `rest`: CPU outside of tasks; `idle`: wall time without a running stage.
    `windows`: the timed batches. `wall`, `cpu`: their total times."""
    found: Counter[str] = Counter()
    busy: list[Window] = []
    for stage in _stages(folder):
        begin, end = stage["Submission Time"] / 1000, stage["Completion Time"] / 1000
        if any(first <= begin <= last for first, last in windows):
            figures = {a["Name"]: a.get("Value", 0) for a in stage["Accumulables"]}
            found[_phase(stage["Stage Name"])] += int(figures.get("internal.metrics.executorCpuTime", 0))
            busy.append((begin, end))
    seconds = {name: nanos / 1e9 for name, nanos in found.most_common()}
    return seconds | {"rest": cpu - sum(seconds.values()), "idle": wall - _covered(busy)}


def _stages(folder: Path) -> Iterator[dict[str, Any]]:
    for log in folder.iterdir():
        with log.open(encoding="utf-8") as lines:
            for event in map(json.loads, lines):
                if event["Event"] == "SparkListenerStageCompleted":
                    yield event["Stage Info"]


def _phase(name: str) -> str:
    return next((what for text, what in _PHASES if text in name), name.partition(" at ")[0])


def _covered(spans: Sequence[Window]) -> float:
    """Returns the length of the union of the spans: stages of several tables run in parallel."""
    covered, reached = 0.0, 0.0
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return covered
