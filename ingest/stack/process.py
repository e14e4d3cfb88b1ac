"""Launches a process of the stack, finds it again from another program, and stops it reliably."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

_PR_SET_PDEATHSIG = 1
# Loaded before any fork: between fork and exec of a threaded process only system calls are safe.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_CLOCK_TOLERANCE_SECONDS = 5.0


def launch(
    command: Sequence[str],
    *,
    log_file: Path,
    record_file: Path,
    death_signal: signal.Signals | None,
    variables: Mapping[str, str] | None = None,
) -> psutil.Popen:
    """Starts `command` in its own session, appends its output to `log_file`, and stores its PID in `record_file`.

    In its own session Ctrl-C in a terminal reaches only this program, which then stops its services in order.

    Args:
        death_signal: on Linux, the signal that the kernel sends to the child when the *thread* that called this
            function ends, so call it from the thread that owns the stack. None: the child outlives this process.
        variables: environment variables, in addition to the inherited ones.
    """
    with log_file.open("ab") as log:
        process = psutil.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={**os.environ, **(variables or {})},
            start_new_session=True,
            preexec_fn=_tether(death_signal),
        )
    record = {"pid": process.pid, "created": process.create_time()}
    partial = record_file.with_suffix(".partial")
    partial.write_text(json.dumps(record))
    partial.replace(record_file)
    return process


def _tether(death_signal: signal.Signals | None) -> Callable[[], None] | None:
    """Returns a `preexec_fn` that has the kernel signal the child when its parent ends, even by SIGKILL."""
    if death_signal is None or _LIBC is None:
        return None
    libc, parent, number = _LIBC, os.getpid(), int(death_signal)

    def ask_kernel() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # the parent died before the call
            os._exit(1)

    return ask_kernel


def recorded(record_file: Path) -> psutil.Process | None:
    """Returns the process in `record_file` if it still runs. Its creation time excludes another one with a reused
    PID."""
    try:
        record = json.loads(record_file.read_text())
        process = psutil.Process(record["pid"])
        same = abs(process.create_time() - record["created"]) < _CLOCK_TOLERANCE_SECONDS
    except (FileNotFoundError, psutil.NoSuchProcess):
        return None
    return process if same and is_alive(process) else None


def is_alive(process: psutil.Process) -> bool:
    """Returns True if the process runs; False for a zombie, which a container without init may never reap."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def stop(process: psutil.Process, stop_signal: signal.Signals, timeout_seconds: float) -> None:
    """Sends `stop_signal` to `process`; kills it and its children if any are left after `timeout_seconds`."""
    with suppress(psutil.NoSuchProcess):
        family = [process, *process.children(recursive=True)]
        process.send_signal(stop_signal)
        if not _ended(family, timeout_seconds):
            _kill_all(family)
        _reap(process)


def kill(process: psutil.Process) -> None:
    """Kills `process` and its children with SIGKILL, and waits until they are gone."""
    with suppress(psutil.NoSuchProcess):
        process.suspend()  # it can't start another child while its children are listed
        _kill_all([process, *process.children(recursive=True)])
        _reap(process)


def _kill_all(family: Sequence[psutil.Process]) -> None:
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    _ended(family, timeout_seconds=10)


def _ended(family: Sequence[psutil.Process], timeout_seconds: float) -> bool:
    polling = Retrying(retry=retry_if_result(bool), stop=stop_after_delay(timeout_seconds), wait=wait_fixed(0.05))
    try:
        polling(lambda: any(is_alive(member) for member in family))
    except RetryError:
        return False
    return True


def _reap(process: psutil.Process) -> None:
    """Waits for the process: one whose main thread is a zombie may still hold ports for a moment."""
    if isinstance(process, psutil.Popen):
        with suppress(psutil.TimeoutExpired):
            process.wait(timeout=10)


def last_lines(log_file: Path, count: int = 8) -> str:
    """Returns the last `count` lines of a log, each truncated to 300 characters."""
    if not log_file.exists():
        return "(no log)"
    lines = log_file.read_text(errors="replace").splitlines()[-count:]
    return "\n".join(f"    {line[:300]}" for line in lines) or "(an empty log)"
