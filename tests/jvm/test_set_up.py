"""A missing prerequisite gives a sentence; a fetched jar is never fetched again."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.errors import PrerequisiteMissing
from ingest.jvm.class_archive import archive, java_options, make
from ingest.jvm.constructors import VERSIONS, require_versions
from ingest.jvm.jars import jars, require_java
from ingest.jvm.library import session_jars

NO_NETWORK_SETTINGS = """<ivysettings>
  <settings defaultResolver="nowhere"/>
  <resolvers><filesystem name="nowhere"><artifact pattern="{folder}/[artifact]"/></filesystem></resolvers>
</ivysettings>
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a folder that is the whole PATH, with an empty cache."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path / "cache"))
    return programs


def program(file: Path, script: str) -> None:
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def test_missing_java_is_reported_with_a_remedy(machine: Path) -> None:
    with pytest.raises(PrerequisiteMissing, match="no Java on the PATH") as missing:
        jars("kafka")
    assert "install a Java 17 runtime" in missing.value.remedy


def test_java_home_without_java_is_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(machine / "nothing"))
    with pytest.raises(PrerequisiteMissing, match="nothing"):
        require_java()


@pytest.mark.parametrize(("version", "release"), [("1.8.0_412", "8"), ("11.0.22", "11")])
def test_older_java_is_refused(machine: Path, version: str, release: str) -> None:
    program(machine / "java", f"""echo 'openjdk version "{version}" 2024-01-16' >&2""")
    with pytest.raises(PrerequisiteMissing, match=f"is Java {release}"):
        require_java()


def test_unknown_configuration_lists_the_known_ones() -> None:
    with pytest.raises(PrerequisiteMissing, match="no configuration 'flink'") as missing:
        jars("flink")
    assert "compiler, connect, converters, debezium, kafka, registry, spark" in missing.value.remedy


def test_jars_in_the_cache_need_neither_java_nor_a_network() -> None:
    fetched = jars("spark")
    listing = "from ingest.jvm.jars import jars; print(*jars('spark'), sep='\\n')"
    bare = {"PATH": "/nowhere", "HOME": str(Path.home()), "PYTHONPATH": ":".join(sys.path)}
    cache = fetched[0].parents[3]
    again = subprocess.run(
        [sys.executable, "-c", listing],
        env={**bare, "INGEST_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stdout.split() == [str(jar) for jar in fetched]


def test_failed_fetch_leaves_no_complete_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "settings.xml"
    settings.write_text(NO_NETWORK_SETTINGS.format(folder=tmp_path / "empty"))
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("INGEST_IVY_SETTINGS", str(settings))
    with pytest.raises(PrerequisiteMissing, match="could not be fetched") as failed:
        jars("spark")
    assert "INGEST_IVY_SETTINGS" in failed.value.remedy
    left = [path.name for path in (tmp_path / "cache" / "jars").iterdir()]
    assert left == [".lock"]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns an environment without a class archive."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return tmp_path


def test_failed_class_archive_leaves_no_file(environment: Path) -> None:
    assert java_options([]) == ""
    half = "import os; open(os.environ['INGEST_CLASS_ARCHIVE'], 'w').write('half'); raise SystemExit('no space left')"
    with pytest.raises(PrerequisiteMissing, match="no space left"):
        make([sys.executable, "-c", half])
    assert list((environment / "classes").iterdir()) == []
    assert java_options([]) == ""


def test_class_archive_is_written_once(environment: Path) -> None:
    whole = "import os; open(os.environ['INGEST_CLASS_ARCHIVE'], 'w').write('whole')"
    made = make([sys.executable, "-c", whole])
    assert made.parent == environment / "classes"
    assert f"-XX:SharedArchiveFile={made}" in java_options(session_jars())
    assert make([sys.executable, "-c", "raise SystemExit(1)"]) == made


@pytest.mark.long
@pytest.mark.spark
def test_class_archive_is_written_when_the_jvm_ends(environment: Path) -> None:
    session = "from ingest.spark.session import running\nwith running('classes') as spark: spark.range(1).count()"
    assert make([sys.executable, "-c", session]).stat().st_size > 10_000_000


@pytest.mark.spark
def test_session_maps_the_class_archive(spark: SparkSession) -> None:
    if not archive(session_jars()).is_file():
        pytest.skip("no archive was written: `make test` does, or `ingest jars --archive`")
    pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    assert str(archive(session_jars())) in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")


def test_unsupported_version_of_delta_or_pyspark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    require_versions()
    monkeypatch.setitem(VERSIONS, "delta-spark", "9.*")
    with pytest.raises(PrerequisiteMissing, match=r"delta-spark .* is installed, .* of 9\.\*") as failed:
        require_versions()
    assert failed.value.remedy == "install delta-spark==9.*"


def test_supported_versions_are_the_pinned_ones() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {f"{name}=={versions}" for name, versions in VERSIONS.items()} <= set(project["dependencies"])
