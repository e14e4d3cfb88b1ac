"""The death of Spark's JVM, such as by the OOM killer, is a temporary failure with its own exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, signal
from ingest.cli.failure import run_command
from ingest.spark.session import SHORT_LIVED, running

def command():
    with running("a command", SHORT_LIVED) as spark:
        {what}

run_command(command)
"""
KILLED = "os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL); spark.range(1).collect()"


def finished_process(what: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(what=what)], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.spark
def test_killed_engine_is_transient() -> None:
    process = finished_process(KILLED)
    assert process.returncode == 75, process.stderr
    assert "a command: Spark's process ended with -9" in process.stderr
    assert process.stderr.endswith("the same command continues where it stopped\n")


@pytest.mark.long
@pytest.mark.spark
def test_other_errors_keep_their_exit_code() -> None:
    process = finished_process("raise ValueError('a defect')")
    assert process.returncode == 1
    assert "ValueError: a defect" in process.stderr
    assert "Spark's process" not in process.stderr
