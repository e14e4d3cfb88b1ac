"""Spark's classes as the JVM holds them in memory, written to a file once: a session that maps it starts sooner.

A JVM reads and checks some twenty thousand classes before Spark does its first work. The archive (class data sharing)
holds them ready. It fits one JVM and one set of jars, whose digest names it; a session that finds none of its own
starts without.
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
# A JVM that finds the archive unfit goes on without it, and need not say so.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"


def java_options(added: Sequence[Path]) -> str:
    """Returns the options by which the JVM of a session uses the archive, or writes it; empty where there is none.

    `added`: the jars on its class path beside PySpark's."""
    if dumped := os.environ.get(_DUMPED_TO):
        return f"-XX:ArchiveClassesAtExit={dumped} {_QUIET}"
    found = archive(added)
    return f"-XX:SharedArchiveFile={found} -Xshare:auto {_QUIET}" if found.is_file() else ""


def is_writing() -> bool:
    """Returns whether the JVM of this process's session writes the archive as it ends."""
    return _DUMPED_TO in os.environ


def make(command: Sequence[str]) -> Path:
    """Writes the archive where it is missing: of the classes that `command`, which runs a session, has loaded.

    Raises PrerequisiteMissing where none came of it."""
    found = archive(session_jars())
    if found.is_file():
        return found
    found.parent.mkdir(parents=True, exist_ok=True)
    partial = found.with_name(f"{found.stem}-{os.getpid()}.partial")
    # Its JVM writes the archive after the command itself has ended, and holds these pipes until then.
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
    """Returns where the archive of this JVM, this PySpark and the `added` jars is, or would be: in the virtual
    environment, and gone with it, or in the cache folder where there is none."""
    own = Path(pyspark.__file__).parent / "jars"
    files = [require_java().resolve(), *sorted(own.glob("*.jar")), *added]
    # The JVM takes no archive of jars that have been touched since.
    told = (f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)
    digest = hashlib.sha256("\n".join(told).encode()).hexdigest()
    inside = sys.prefix != sys.base_prefix
    return (Path(sys.prefix) if inside else cache_folder()) / "classes" / f"{digest[:12]}.jsa"
