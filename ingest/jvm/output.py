"""Sends the JVM's output to stderr, without lines that are of no use to a user."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_NOISE = re.compile(
    # At each start, about a module that Spark's launcher adds.
    rb"WARNING: Using incubator modules: "
    # Delta's vacuum, for each table.
    rb"|(Deleted|Found) \d+ files( \(\d+ bytes\))? and directories in a total of \d+ director"
)


@contextmanager
def engine_output() -> Iterator[None]:
    """Sends stdout and stderr of processes that are started in the block to this process's stderr, without noise. Its
    stdout is left to the command's results."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    kept = os.dup(1), os.dup(2)
    forwarding = _Forwarding(reading, kept[1])
    forwarding.start()
    for stream in (1, 2):
        os.dup2(writing, stream)
    os.close(writing)
    try:
        yield
    finally:
        for stream, before in zip((1, 2), kept, strict=True):
            os.dup2(before, stream)
        forwarding.print_to(2)
        for before in kept:
            os.close(before)


class _Forwarding(threading.Thread):
    """Prints the lines of a pipe until the last process that writes to it has ended."""

    def __init__(self, reading: int, target: int) -> None:
        super().__init__(name="engine-output", daemon=True)
        self._reading = reading
        self._target = target
        self._printing = threading.Lock()

    def print_to(self, target: int) -> None:
        """Prints to the file descriptor `target` from now on."""
        with self._printing:
            self._target = target

    def run(self) -> None:
        with os.fdopen(self._reading, "rb") as lines:
            for line in lines:
                if _NOISE.match(line) is None:
                    self._print(line)

    def _print(self, line: bytes) -> None:
        with self._printing:
            while line:
                line = line[os.write(self._target, line) :]
