"""The project's own Java: sources below `java/`, compiled once into one jar for the driver and the executors.

The jar lies in the cache folder (`jars/library/ingest-<digest>.jar`). The digest is that of the sources, of `ivy.xml`
and of PySpark's version, so that versions share a cache folder without touching each other's jars. The compiler is
Eclipse's, a jar of `ivy.xml` too: a Java runtime is enough.

`$INGEST_JVM=off`, or `spark: {spark.ingest.jvm: off}` in a pipeline's file, runs everything but `ingest sql` without
the jar: more slowly, and where several processes write one table on a local disk, as safely as Hadoop alone does.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JJavaError

from ingest.errors import PrerequisiteMissing
from ingest.jvm.jars import IVY_FILE, cache_folder, exclusive, jars, require_java

SWITCH = "spark.ingest.jvm"
ENVIRONMENT = "INGEST_JVM"
_OFF = ("off", "false")
_SOURCES = Path(__file__).with_name("java")
_RELEASE = "17"
_TIMEOUT_SECONDS = 300
_ANY_CLASS = "ingest.json.PlainRow"
_LOCAL = re.compile(r"local(\[.*\])?")
_EXECUTORS_JARS = ("spark.jars", "spark.yarn.dist.jars", "spark.executor.extraClassPath")
"""Properties that name jars on the class path of executors. `spark-submit --jars` sets one of the first two."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The oldest time that a zip file can hold: the same classes make the same jar."""
_log = logging.getLogger(__name__)


def is_enabled(settings: Mapping[str, str] | None = None) -> bool:
    """Returns False where the environment or the session's `settings` switch the library off."""
    return _is_on(os.environ.get(ENVIRONMENT)) and _is_on((settings or {}).get(SWITCH))


def _is_on(value: str | None) -> bool:
    return (value or "on").strip().lower() not in _OFF


def session_jars(settings: Mapping[str, str] | None = None) -> list[Path]:
    """Returns the jars that a session adds to PySpark's own: those of `ivy.xml`, and the library unless it is off.

    Raises PrerequisiteMissing as `jars` and `library_jar`."""
    return [*jars("spark"), *([library_jar()] if is_enabled(settings) else [])]


def library_jar() -> Path:
    """Returns the library's jar. Compiles it where the cache has none of this version: some seconds, once.

    In a cache folder that can't be written to, the jar is made in a temporary folder that goes with this process.
    Raises PrerequisiteMissing without Java, without the compiler's jar and a network to fetch it, or where the sources
    don't fit the installed PySpark."""
    folder = cache_folder() / "jars" / "library"
    found = folder / _jar_name()
    if found.is_file():
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder / ".lock"):
            if not found.is_file():
                _build(found)
    except OSError:
        return _temporary_jar()
    return found


@cache
def _temporary_jar() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ingest-library-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    built = folder / _jar_name()
    _build(built)
    return built


def _jar_name() -> str:
    return f"ingest-{digest()}.jar"


@cache
def digest() -> str:
    """Returns the name of this version of the library: 12 hexadecimal digits."""
    found = hashlib.sha256(f"{_RELEASE} {pyspark.__version__}\n".encode())
    for file in (IVY_FILE, *_source_files()):
        found.update(f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()[:12]


def _source_files() -> list[Path]:
    return sorted(_SOURCES.rglob("*.java"))


def _build(target: Path) -> None:
    """Compiles all sources, writes the jar beside `target`, then renames it: it is there whole or not at all."""
    with tempfile.TemporaryDirectory(prefix="ingest-compiling-") as folder:
        classes = Path(folder) / "classes"
        _compile(classes)
        handle, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}-", suffix=".partial")
        try:
            with os.fdopen(handle, "wb") as file:
                _write_jar(file, classes)
            # Other users of a shared cache read it.
            Path(partial).chmod(0o644)
            Path(partial).replace(target)
        finally:
            Path(partial).unlink(missing_ok=True)


def _compile(classes: Path) -> None:
    spark = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    class_path = os.pathsep.join(str(jar) for jar in (*spark, *jars("spark")))
    (compiler,) = jars("compiler")
    java = [str(require_java()), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar", str(compiler)]
    options = [f"-{_RELEASE}", "-nowarn", "-proc:none", "-encoding", "UTF-8", "-cp", class_path, "-d", str(classes)]
    done = subprocess.run(
        [*java, *options, *map(str, _source_files())],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise PrerequisiteMissing(
            f"the Java sources don't compile with PySpark {pyspark.__version__}: {done.stderr.strip()[-500:]}",
            f"install the versions that pyproject.toml names, or run without them: {ENVIRONMENT}=off",
        )


def _write_jar(file: Any, classes: Path) -> None:
    manifest = f"Manifest-Version: 1.0\r\nImplementation-Title: ingest\r\nImplementation-Version: {digest()}\r\n\r\n"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as jar:
        jar.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", _EPOCH), manifest)
        for each in sorted(classes.rglob("*.class")):
            jar.writestr(zipfile.ZipInfo(each.relative_to(classes).as_posix(), _EPOCH), each.read_bytes())


def require_library(context: Any, purpose: str) -> None:
    """Raises PrerequisiteMissing where the driver has no library. `purpose`: what can't be done without."""
    if not has_library(context):
        raise PrerequisiteMissing(
            f"{purpose} needs the project's own Java, which this session runs without",
            f"leave {ENVIRONMENT} and {SWITCH} out; submit with the jars that `ingest jars` lists",
        )


def has_library(context: Any) -> bool:
    """Returns True where the driver may use the library's classes."""
    return is_enabled() and _is_loaded(context)


@lru_cache(maxsize=8)
def _is_loaded(context: Any) -> bool:
    """Returns True where the driver has this version of the library. Says so in the log where it was expected."""
    if not is_enabled({SWITCH: context.getConf().get(SWITCH, "on")}):
        return False
    jvm: Any = context._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        version = jvm.java.lang.Class.forName(_ANY_CLASS, False, loader).getPackage().getImplementationVersion()
    except Py4JJavaError:
        version = None
    if version != digest():
        _log.warning(
            "the class path has no %s: running without it, more slowly; submit with `ingest jars`", _jar_name()
        )
    return bool(version == digest())


def tasks_have_library(context: Any) -> bool:
    """Returns True where the driver and the tasks of a SparkContext may use the library's classes."""
    return has_library(context) and _executors_have_it(context)


@lru_cache(maxsize=8)
def _executors_have_it(context: Any) -> bool:
    """Returns True where tasks run in the driver's JVM, or the executors are given this version of the library."""
    if _LOCAL.fullmatch(str(context.master)):
        return True
    configuration = context.getConf()
    found = any(_jar_name() in configuration.get(name, "") for name in _EXECUTORS_JARS)
    if not found:
        _log.warning("no executor is given %s: running without it, more slowly; submit with `ingest jars`", _jar_name())
    return found
