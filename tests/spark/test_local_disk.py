"""The local file system: one of several concurrent commits wins; permissions and links are as Hadoop defines them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
_ROUNDS, _AT_ONCE = 50, 8


@pytest.fixture
def jvm(spark: SparkSession) -> Any:
    return spark._jvm


@pytest.fixture
def configuration(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.hadoopConfiguration()


def test_one_of_concurrent_commits_succeeds(jvm: Any, configuration: Any, tmp_path: Path) -> None:
    """With Hadoop's own class several of them succeed and all but the last are lost: Delta's store serialises writers
    only within a process."""
    stores = [jvm.io.delta.storage.HDFSLogStore(configuration) for _ in range(_AT_ONCE)]

    def commit(number: int, by: int) -> int | None:
        lines = jvm.java.util.ArrayList()
        lines.add(f"by {by}")
        try:
            stores[by].write(_path(jvm, tmp_path / f"{number:020}.json"), lines.iterator(), False, configuration)
        except Py4JJavaError as refused:
            assert refused.java_exception.getClass().getSimpleName() == "FileAlreadyExistsException"
            return None
        return by

    with ThreadPoolExecutor(_AT_ONCE) as several:
        for number in range(_ROUNDS):
            took = [by for by in several.map(commit, [number] * _AT_ONCE, range(_AT_ONCE)) if by is not None]
            (winner,) = took
            assert (tmp_path / f"{number:020}.json").read_text().strip() == f"by {winner}"
    left = sorted(f.name for f in tmp_path.iterdir())
    assert left == [f"{number:020}.json" for number in range(_ROUNDS)], "what lost is cleaned up"


def test_commit_starts_no_process(spark: SparkSession, tmp_path: Path) -> None:
    """Starting a process would take longer than the rest of a commit."""
    jvm: Any = spark._jvm
    started = _processes_ended(jvm)
    spark.range(3).write.format("delta").save(str(tmp_path / "table"))
    spark.range(3).write.format("delta").mode("append").save(str(tmp_path / "table"))
    assert _processes_ended(jvm) == started


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o750, 0o1777])
def test_set_permission(jvm: Any, configuration: Any, tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    files = jvm.org.apache.hadoop.fs.FileSystem.get(configuration)
    files.setPermission(_path(jvm, folder), jvm.org.apache.hadoop.fs.permission.FsPermission(f"{mode:o}"))
    assert folder.stat().st_mode & 0o7777 == mode


def test_links_are_distinguished_from_files(jvm: Any, configuration: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("four")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    files = jvm.org.apache.hadoop.fs.FileSystem.get(configuration)
    link, file = (files.getFileLinkStatus(_path(jvm, tmp_path / name)) for name in ("link", "file"))
    assert link.isSymlink()
    assert Path(link.getSymlink().toUri().getPath()) == tmp_path / "file"
    assert (file.isSymlink(), file.getLen()) == (False, 4)


def _path(jvm: Any, path: Path) -> Any:
    return jvm.org.apache.hadoop.fs.Path(str(path))


def _processes_ended(jvm: Any) -> int:
    """Returns the kernel's counters of the JVM's ended children: CPU time and page faults."""
    pid = jvm.java.lang.ProcessHandle.current().pid()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    # cminflt of proc(5): every process causes page faults at its start.
    return int(fields[8])
