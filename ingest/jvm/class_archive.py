"""An archive of Spark's loaded classes (class data sharing), from which sessions start sooner.

A JVM loads and verifies some twenty thousand classes before Spark does its first work. The archive is for one JVM and
one set of jars, whose digest names it; a session without one starts without.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyspark

from ingest.errors import PrerequisiteMissing
from ingest.jvm.jars import cache_folder, require_java
from ingest.jvm.library import session_jars

_DUMPED_TO = "INGEST_CLASS_ARCHIVE"
_TIMEOUT_SECONDS = 600
# A JVM that can't use the archive goes on without it, silently.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"


def java_options(added: Sequence[Path]) -> str:
    """Returns the options by which the JVM of a session uses the archive, or writes it; empty where there is none.

    `added`: the jars on its class path beside PySpark's."""
    if dumped := os.environ.get(_DUMPED_TO):
        return f"-XX:ArchiveClassesAtExit={dumped} {_QUIET}"
    found = archive(added)
    return f"-XX:SharedArchiveFile={found} -Xshare:auto {_QUIET}" if found.is_file() else ""


def is_writing() -> bool:
    """Returns True if the JVM of this process's session writes the archive when it ends."""
    return _DUMPED_TO in os.environ


def make(command: Sequence[str]) -> Path:
    """Writes the archive if it is missing, with the classes that `command` loads, and returns its path.

    `command` runs a session. Raises PrerequisiteMissing if no archive was written."""
    found = archive(session_jars())
    if found.is_file():
        return found
    found.parent.mkdir(parents=True, exist_ok=True)
    partial = found.with_name(f"{found.stem}-{os.getpid()}.partial")
    # The JVM writes the archive after the command has ended, and holds these pipes until then.
    done = subprocess.run(
        command, env=os.environ | {_DUMPED_TO: str(partial)}, capture_output=True, timeout=_TIMEOUT_SECONDS, check=False
    )
    if done.returncode != 0 or not partial.is_file():
        partial.unlink(missing_ok=True)
        raise PrerequisiteMissing(
            f"{found.parent} got no class archive: {done.stderr.decode(errors='replace')[-500:]}",
            "commands work without it and start more slowly; see whether the disk is full",
        )
    partial.replace(found)
    return found


def archive(added: Sequence[Path]) -> Path:
    """Returns the path of the archive for this JVM, this PySpark and the `added` jars: in the virtual environment, or
    in the cache folder if there is none."""
    own = Path(pyspark.__file__).parent / "jars"
    files = [require_java().resolve(), *sorted(own.glob("*.jar")), *added]
    # The JVM refuses an archive of jars with other times of modification.
    stamps = (f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)
    digest = hashlib.sha256("\n".join(stamps).encode()).hexdigest()
    inside = sys.prefix != sys.base_prefix
    return (Path(sys.prefix) if inside else cache_folder()) / "classes" / f"{digest[:12]}.jsa"
