"""Where the time of batches goes, by Spark's own event log: CPU of tasks, by what their stages were for; and the rest,
which is planning, commits, the JVM's compiler and its collector."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Window = tuple[float, float]
"""From when until when, in seconds since 1970."""
_PHASES = (
    ("batches/group_stats.py", "profile"),
    ("localCheckpoint", "parse"),
    ("ingest/reconcile/", "compact, find"),
    ("ingest/spark/prepared.py", "compact, find"),  # what judging asks of more than few rows
    ("collectAsList", "compact, find"),  # in page_filter.py, whose look stays in the JVM
    ("small query as JSON", "compact, find"),
    ("small write", "write"),
    ("isEmpty at", "compact, find"),
    ("writeFiles", "write"),
    ("buildDeletionVectors", "write"),
    ("withThreadLocalCaptured", "commit"),
    ("Delta", "commit"),
)
"""What stands in the name of a stage, and what it is for; the first that fits."""


def properties(folder: Path) -> dict[str, str]:
    """What a session is told so that `phases` finds its log."""
    folder.mkdir(parents=True)
    log = {"enabled": "true", "dir": folder.as_uri(), "rolling.enabled": "false", "compress": "false"}
    return {f"spark.eventLog.{name}": value for name, value in log.items()}


def phases(folder: Path, windows: Sequence[Window], wall: float, cpu: float) -> dict[str, float]:
    """Seconds of CPU, by phase; `rest` is what the process took beside its tasks, and `idle` seconds of wall in which
    no stage ran. `wall`, `cpu`: what all windows took."""
    found: Counter[str] = Counter()
    busy: list[Window] = []
    for stage in _stages(folder):
        begin, end = stage["Submission Time"] / 1000, stage["Completion Time"] / 1000
        if any(first <= begin <= last for first, last in windows):
            figures = {a["Name"]: a.get("Value", 0) for a in stage["Accumulables"]}
            found[_phase(stage["Stage Name"])] += int(figures.get("internal.metrics.executorCpuTime", 0))
            busy.append((begin, end))
    told = {name: nanos / 1e9 for name, nanos in found.most_common()}
    return told | {"rest": cpu - sum(told.values()), "idle": wall - _covered(busy)}


def _stages(folder: Path) -> Iterator[dict[str, Any]]:
    for log in folder.iterdir():
        with log.open(encoding="utf-8") as lines:
            for event in map(json.loads, lines):
                if event["Event"] == "SparkListenerStageCompleted":
                    yield event["Stage Info"]


def _phase(name: str) -> str:
    return next((what for text, what in _PHASES if text in name), name.partition(" at ")[0])


def _covered(spans: Sequence[Window]) -> float:
    """How long any of them lasted: stages of several tables run side by side."""
    covered, reached = 0.0, 0.0
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return covered
