"""What Spark writes outside of tables lies in a folder of its process, encrypted if a pipeline asks for it, and is
deleted by the next process if its own was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from ingest.config import Pipeline
from ingest.spark.spill_folders import left_behind, own_spill_folders, spill_roots

VALUE = b"anna.spilled@mail.example"


def started(program: str, folder: Path, *more: str) -> subprocess.Popen[bytes]:
    """Starts a program that prints a line when it is ready, and waits for this."""
    code = [sys.executable, "-c", dedent(program), str(folder), *more]
    process = subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def killed(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and all that it has started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_folders_of_killed_processes_are_deleted_and_those_of_running_ones_stay(tmp_path: Path) -> None:
    program = """
        import sys
        from ingest.spark.spill_folders import own_spill_folders
        folder = own_spill_folders({"spark.local.dir": sys.argv[1]})["spark.local.dir"]
        open(folder + "/rows", "w").close()
        print("ready", flush=True)
        sys.stdin.read()
    """
    (root,) = spill_roots({"spark.local.dir": str(tmp_path)}, {})
    dying, living = started(program, tmp_path), started(program, tmp_path)
    assert len(list(root.iterdir())) == 2
    killed(dying)
    left = {folder.name for folder in root.iterdir()}
    (scanned,) = left_behind({"spark.local.dir": str(tmp_path)}, {})
    assert (scanned / "rows").exists()
    own = own_spill_folders({"spark.local.dir": str(tmp_path)})["spark.local.dir"]
    now = {folder.name for folder in root.iterdir()} - {Path(own).name}
    assert (len(left), len(now), now < left) == (2, 1, True)
    living.communicate()
    assert [folder.name for folder in root.iterdir()] == [Path(own).name]


def test_folders_that_spark_makes_itself_are_scanned_where_it_is_told_to(tmp_path: Path) -> None:
    for name in ("blockmgr-1", "spark-2", "others"):
        (tmp_path / name).mkdir()
    found = left_behind({}, {"SPARK_LOCAL_DIRS": str(tmp_path)})
    assert [folder.name for folder in found] == ["blockmgr-1", "spark-2"]
    assert left_behind({"spark.local.dir": str(tmp_path)}, {}) == []


@pytest.mark.integration
@pytest.mark.parametrize("encrypted", ["true", pytest.param("false", marks=pytest.mark.long)])
def test_values_that_a_killed_process_has_spilled_are_encrypted(tmp_path: Path, encrypted: str) -> None:
    program = f"""
        import sys
        from pyspark import StorageLevel
        from pyspark.sql import functions as F
        from ingest.spark.session import SMALL, spark_session
        settings = SMALL | {{"spark.local.dir": sys.argv[1], "spark.io.encryption.enabled": sys.argv[2]}}
        spark = spark_session("spill", settings, "local[1]")
        rows = spark.range(1000).select(F.concat(F.lit("{VALUE.decode()}"), "id").alias("mail"))
        rows.repartition(2).persist(StorageLevel.DISK_ONLY).count()
        print("ready", flush=True)
        sys.stdin.read()
    """
    killed(started(program, tmp_path, encrypted))
    (root,) = spill_roots({"spark.local.dir": str(tmp_path)}, {})
    left = [file.read_bytes() for file in root.rglob("*") if file.is_file()]
    assert sum(map(len, left)) > 1000
    assert any(VALUE in content for content in left) == (encrypted == "false")


def test_a_pipeline_with_subjects_encrypts_what_it_spills() -> None:
    source = {"kafka": {"bootstrap.servers": "broker:9092"}, "topic_pattern": "x"}
    document = {"name": "shop", "source": source, "lakehouse": "/lake"}
    assert "spark.io.encryption.enabled" not in Pipeline.model_validate(document).session
    subjects = {"tables": {"public.members": {"subject": {"of": "member", "key": "id"}}}}
    private = document | subjects | {"privacy": {"key_file": "/keys/ledger"}}
    assert Pipeline.model_validate(private).session["spark.io.encryption.enabled"] == "true"
    own = private | {"spark": {"spark.io.encryption.enabled": "false"}}
    assert Pipeline.model_validate(own).session["spark.io.encryption.enabled"] == "false"
