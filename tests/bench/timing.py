"""Measures wall time and the CPU time of this process and its JVM, in seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil


@dataclass
class Timing:
    """Wall and CPU time in seconds."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def measure() -> Iterator[Timing]:
    """Yields a `Timing` that is filled when the block ends. CPU includes the JVM's compiler and garbage collector, and
    short-lived child processes."""
    timing = Timing()
    wall, cpu = time.perf_counter(), _cpu()
    try:
        yield timing
    finally:
        timing.wall, timing.cpu = time.perf_counter() - wall, _cpu() - cpu


def _cpu() -> float:
    me = psutil.Process()
    times = [p.cpu_times() for p in (me, *me.children(recursive=True))]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)
