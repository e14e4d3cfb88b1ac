"""What a piece of work takes: seconds by the wall, and of CPU in this process and its JVM."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil


@dataclass
class Taken:
    """Seconds."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def taken() -> Iterator[Taken]:
    """Filled in when the work is done. A JVM's compiler and garbage collector count, and processes that it started for
    a moment: they are part of the price."""
    found = Taken()
    wall, cpu = time.perf_counter(), _cpu()
    try:
        yield found
    finally:
        found.wall, found.cpu = time.perf_counter() - wall, _cpu() - cpu


def _cpu() -> float:
    me = psutil.Process()
    times = [p.cpu_times() for p in (me, *me.children(recursive=True))]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)
