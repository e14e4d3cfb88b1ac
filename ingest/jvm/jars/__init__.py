"""Fetches the jars of Spark's connectors, Kafka and Kafka Connect, which `ivy.xml` pins, into the cache folder, and
those of a schema registry (`registry.xml`), which only its tests and stacks need.

PySpark contains Ivy, so that only Java is needed. The jars lie in `jars/<digest of the file>/<configuration>/` of the
cache folder (`$INGEST_CACHE`, default `~/.cache/ingest`). A folder is complete or missing; once it is there, neither
Java nor a network is needed.

`$INGEST_IVY_SETTINGS` may name an Ivy settings file, for a mirror.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from ingest.errors import PrerequisiteMissing

JAVA_RELEASE = 17
FETCH_TIMEOUT_SECONDS = 1800
_NEEDED_BYTES = 1_000_000_000
IVY_FILE = Path(__file__).with_name("ivy.xml")
_IVY_FILES = (IVY_FILE, Path(__file__).with_name("registry.xml"))
_RETRIEVE_PATTERN = "[conf]/[artifact]-[revision](-[classifier]).[ext]"


def jars(configuration: str) -> list[Path]:
    """Returns the jars of a configuration by name: of `ivy.xml` (`spark`, `kafka`, `connect`, `debezium`, `compiler`),
    or of `registry.xml` (`converters`).

    The first call fetches all configurations of that file (about 100 MB, a minute or two); later calls, also of other
    processes, only list a folder.

    Raises:
        PrerequisiteMissing: no such configuration; at the first call also without Java, disk space or network.
    """
    return sorted(jars_folder(configuration).glob("*.jar"))


def jars_folder(configuration: str) -> Path:
    """Returns the folder of the jars of `configuration`: a class path entry, or a plugin of Connect.

    Raises:
        PrerequisiteMissing: as `jars`.
    """
    ivy_file = next((file for file in _IVY_FILES if configuration in _file_counts(file)), None)
    if ivy_file is None:
        known = sorted(name for file in _IVY_FILES for name in _file_counts(file))
        raise PrerequisiteMissing(
            f"ivy.xml has no configuration {configuration!r}", f"choose one of: {', '.join(known)}"
        )
    resolved = _resolved_folder(ivy_file)
    if not resolved.is_dir():
        _fetch(ivy_file, resolved)
    return resolved / configuration


def require_java() -> Path:
    """Returns the `java` to start: `$JAVA_HOME`'s, otherwise the first on the PATH, of release 17 or later.

    Raises:
        PrerequisiteMissing: there is none, it does not answer, or it is older.
    """
    return _checked_java(os.environ.get("JAVA_HOME"), os.environ.get("PATH"))


@cache
def _checked_java(home: str | None, search_path: str | None) -> Path:
    java = str(Path(home) / "bin" / "java") if home else "java"
    found = shutil.which(java, path=search_path)
    install = f"install a Java {JAVA_RELEASE} runtime and put `java` on the PATH, or set JAVA_HOME to it"
    if found is None:
        where = f"at JAVA_HOME ({home})" if home else "on the PATH"
        raise PrerequisiteMissing(f"no Java {where}", install)
    try:
        answer = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as failure:
        raise PrerequisiteMissing(f"{found} does not run", install) from failure
    release = _java_release(answer.stderr + answer.stdout)
    if release is None or release < JAVA_RELEASE:
        raise PrerequisiteMissing(f"{found} is Java {release or 'of an unknown release'}", install)
    return Path(found)


def _java_release(version_text: str) -> int | None:
    """Returns 17 for `openjdk version "17.0.15"`, 8 for `java version "1.8.0_412"`."""
    match = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return int(match.group(1)) if match else None


def cache_folder() -> Path:
    """Returns the cache folder, `$INGEST_CACHE` or `~/.cache/ingest`, which may be deleted at any time."""
    chosen = os.environ.get("INGEST_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache" / "ingest"


def _resolved_folder(ivy_file: Path) -> Path:
    digest = hashlib.sha256(ivy_file.read_bytes()).hexdigest()[:12]
    return cache_folder() / "jars" / digest


@cache
def _file_counts(ivy_file: Path) -> Counter[str]:
    """Returns configuration → number of its files."""
    dependencies = ElementTree.parse(ivy_file).getroot().iter("dependency")
    return Counter(dependency.attrib["conf"].split("->")[0] for dependency in dependencies)


def _fetch(ivy_file: Path, resolved: Path) -> None:
    """Fetches all configurations beside `resolved`, then renames: a crash leaves nothing that looks complete."""
    java = require_java()
    parent = resolved.parent
    parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(parent).free
    if free < _NEEDED_BYTES:
        raise PrerequisiteMissing(
            f"{parent} has {free / 1e9:.1f} GB free, the jars need {_NEEDED_BYTES / 1e9:.0f} GB",
            "free some disk, or set INGEST_CACHE to a folder on a larger one",
        )
    with exclusive(parent / ".lock"):
        if resolved.is_dir():  # another process fetched them while this one waited
            return
        with tempfile.TemporaryDirectory(dir=parent, prefix=".fetching-") as staging:
            _run_ivy(java, ivy_file, Path(staging))
            _require_whole(ivy_file, Path(staging))
            (Path(staging) / resolved.name).mkdir()
            for configuration in _file_counts(ivy_file):
                (Path(staging) / configuration).rename(Path(staging) / resolved.name / configuration)
            (Path(staging) / resolved.name).rename(resolved)


@contextmanager
def exclusive(lock_file: Path) -> Iterator[None]:
    """Holds a lock that other processes wait for."""
    with lock_file.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released by the kernel when this process ends, however it ends
        yield


def _run_ivy(java: Path, ivy_file: Path, staging: Path) -> None:
    command = [
        str(java),
        "-jar",
        str(_ivy_jar()),
        "-cache",
        str(cache_folder() / "ivy"),
        "-ivy",
        str(ivy_file),
    ]
    if settings := os.environ.get("INGEST_IVY_SETTINGS"):
        command += ["-settings", settings]
    command += ["-confs", *sorted(_file_counts(ivy_file)), "-retrieve", str(staging / _RETRIEVE_PATTERN)]
    log_file = cache_folder() / "ivy.log"
    try:
        with log_file.open("w") as log:
            subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=True, timeout=FETCH_TIMEOUT_SECONDS)
    except subprocess.SubprocessError as failure:
        raise PrerequisiteMissing(
            f"the jars listed in {ivy_file.name} could not be fetched ({log_file} says why)",
            "connect to the network once and run the same command again (what did arrive is kept), "
            "or set INGEST_IVY_SETTINGS to the Ivy settings file of your mirror",
        ) from failure


def _require_whole(ivy_file: Path, staging: Path) -> None:
    for configuration, expected in _file_counts(ivy_file).items():
        found = len(list((staging / configuration).iterdir())) if (staging / configuration).is_dir() else 0
        if found != expected:
            raise PrerequisiteMissing(
                f"{found} of the {expected} jars of {configuration!r} arrived",
                f"delete {cache_folder() / 'ivy'} and run the same command again",
            )


def _ivy_jar() -> Path:
    pyspark = find_spec("pyspark")
    found = sorted(Path(pyspark.origin).parent.glob("jars/ivy-*.jar")) if pyspark and pyspark.origin else []
    if not found:
        raise PrerequisiteMissing("PySpark and the Ivy jar in it are not installed", "run `make venv`")
    return found[-1]
