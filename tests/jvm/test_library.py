"""The project's own Java: compiled once for all processes that share a cache folder, and for each of its versions."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.errors import PrerequisiteMissing
from ingest.jvm import library
from ingest.jvm.jars import jars_folder
from ingest.jvm.library import ENVIRONMENT, SWITCH, digest, library_jar, session_jars

_PRINT = "from ingest.jvm.library import library_jar; print(library_jar())"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a cache folder with the fetched jars and no compiled one."""
    fetched = jars_folder("compiler").parent
    folder = tmp_path / "cache"
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / fetched.name).symlink_to(fetched)
    monkeypatch.setenv("INGEST_CACHE", str(folder))
    return folder / "jars" / "library"


@pytest.fixture
def broken_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "Broken.java").write_text("class Broken { missing }")
    monkeypatch.setattr(library, "_SOURCES", tmp_path / "java")
    digest.cache_clear()
    yield
    digest.cache_clear()


@pytest.mark.spark
def test_concurrent_processes_compile_one_jar_per_version(cache: Path) -> None:
    cache.mkdir()
    other = cache / "ingest-000000000000.jar"
    other.write_bytes(b"of another version")
    command = [sys.executable, "-c", _PRINT]
    several = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) for _ in range(2)]
    printed = {process.communicate(timeout=600)[0].strip() for process in several}
    assert printed == {str(cache / f"ingest-{digest()}.jar")}
    assert sorted(file.name for file in cache.iterdir()) == sorted([".lock", other.name, f"ingest-{digest()}.jar"])
    assert other.read_bytes() == b"of another version"


@pytest.mark.spark
def test_read_only_cache_compiles_once_per_process(cache: Path) -> None:
    cache.write_text("a file where the folder would be")
    command = [sys.executable, "-c", f"{_PRINT}; assert library_jar().is_file()"]
    made = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=True)
    jar = Path(made.stdout.strip())
    assert jar.name == f"ingest-{digest()}.jar"
    assert not jar.exists(), "it is deleted with its process"


def test_jar_has_its_version_in_the_manifest() -> None:
    with zipfile.ZipFile(library_jar()) as jar:
        assert f"Implementation-Version: {digest()}" in jar.read("META-INF/MANIFEST.MF").decode()
        classes = {name for name in jar.namelist() if name.endswith(".class")}
    sources = Path(library.__file__).with_name("java")
    assert {str(file.relative_to(sources).with_suffix(".class")) for file in sources.rglob("*.java")} <= classes


@pytest.mark.spark
@pytest.mark.usefixtures("broken_sources")
def test_compiler_errors_are_reported_with_a_remedy(cache: Path) -> None:
    with pytest.raises(PrerequisiteMissing, match="don't compile with PySpark") as failed:
        library_jar()
    assert f"{ENVIRONMENT}=off" in failed.value.remedy
    assert [file.name for file in cache.iterdir()] == [".lock"]


def test_nothing_is_compiled_if_the_library_is_off(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = session_jars({SWITCH: "off"})
    monkeypatch.setenv(ENVIRONMENT, "off")
    assert session_jars() == listed
    assert not cache.exists()
