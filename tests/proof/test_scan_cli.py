"""`ingest scan` reads the locations of a pipeline file, takes values from a file or stdin, and shows none of them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from ingest.cli import app
from ingest.config import load
from ingest.errors import ConfigError, ProofFailed
from ingest.proof import search
from ingest.proof.canaries import check_canaries
from ingest.proof.scan.report import CanaryCheck
from tests.proof.subject import EMAIL, NUMBER

NEEDLES = json.dumps({"email": EMAIL, "member": {"value": NUMBER, "columns": ["id"]}})


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    table = tmp_path / "lakehouse" / "silver"
    table.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1], "mail": ["x@mail.example"]}), table / "a.parquet")
    return written(tmp_path, {})


def written(folder: Path, more: dict[str, object]) -> Path:
    said = {
        "source": {"kafka": {"bootstrap.servers": "broker:9092"}, "topics": ["shop.orders"]},
        "lakehouse": str(folder / "lakehouse"),
        **more,
    }
    file = folder / "shop.yaml"
    file.write_text(json.dumps(said))
    return file


def scan(pipeline: Path, *more: str, needles: str = NEEDLES) -> Result:
    file = pipeline.with_name("needles.json")
    file.write_text(needles)
    result = CliRunner().invoke(app, ["scan", str(pipeline), "--needle-file", str(file), *more])
    assert EMAIL not in result.output
    return result


def test_clean_lakehouse_has_no_findings(pipeline: Path) -> None:
    scanned = scan(pipeline)
    assert scanned.exit_code == 0, scanned.output
    assert "nothing was found in what was scanned" in scanned.stdout
    assert "0 missed" in scanned.stdout
    assert "only as a whole value of a column or JSON key: member in id" in scanned.stdout


def test_residue_is_found_and_named(pipeline: Path) -> None:
    table = pa.table({"id": [1, NUMBER], "mail": ["x", EMAIL]})
    pq.write_table(table, pipeline.parent / "lakehouse" / "silver" / "b.parquet", compression="zstd")
    assert scan(pipeline).exit_code == 1
    scanned = scan(pipeline, "--json")
    assert scanned.exit_code == 1
    report = json.loads(scanned.stdout)
    assert {"silver/b.parquet"} == {f["file"] for f in report["findings"]}
    assert {"email", "member"} == {f["needle"] for f in report["findings"]}
    assert [n["place"] for n in report["not_scanned"]] == ["Kafka at broker:9092"]


def test_another_folder_is_scanned_too(pipeline: Path, tmp_path: Path) -> None:
    log = tmp_path / "kafka" / "shop.orders-0"
    log.mkdir(parents=True)
    (log / "00000000000000000000.timeindex").write_bytes(b"\x00" * 8 + EMAIL.encode())
    scanned = scan(pipeline, "--folder", str(tmp_path / "kafka"), "--json")
    assert scanned.exit_code == 1
    assert all(f["file"].startswith("shop.orders-0/") for f in json.loads(scanned.stdout)["findings"])


def test_search_terms_may_come_from_stdin(pipeline: Path) -> None:
    scanned = CliRunner().invoke(app, ["scan", str(pipeline), "--needle-file", "-"], input=NEEDLES)
    assert scanned.exit_code == 0, scanned.output
    refused = CliRunner().invoke(app, ["scan", str(pipeline), "--needle-file", "-"], input=EMAIL)
    assert isinstance(refused.exception, ConfigError)
    assert EMAIL not in str(refused.exception)
    absent = CliRunner().invoke(app, ["scan", str(pipeline), "--needle-file", "absent.json"])
    assert "can't be read" in str(absent.exception)


def test_scan_that_missed_a_canary_fails(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "check_canaries", lambda *_: (CanaryCheck("files", "gzip", 2, ("canary: hex",)),))
    scanned = scan(pipeline)
    assert isinstance(scanned.exception, ProofFailed)
    assert "files, gzip: canary: hex" in str(scanned.exception)
    assert all(not s.missed for s in check_canaries([]))


def test_places_come_from_the_pipeline_file(tmp_path: Path) -> None:
    s3a = {"spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9", "spark.hadoop.fs.s3a.secret.key": "hidden"}
    events = {"spark.eventLog.enabled": True, "spark.eventLog.dir": "file:///tmp/spark%20events"}
    more: dict[str, object] = {
        "lakehouse": "s3a://lake/house",
        "archive": {"uri": "s3://kept/changelogs"},
        "spark": {**s3a, **events},
    }
    places, left_out = search.places_of(load(written(tmp_path, more), {}))
    assert [p.name for p in places] == ["s3://lake/house", "/tmp/spark events", "s3://kept/changelogs"]
    assert "hidden" not in repr(places)
    assert [p.place for p in left_out] == ["Kafka at broker:9092"]
    places, left_out = search.places_of(load(written(tmp_path, {"lakehouse": "abfss://c@account/x"}), {}))
    assert places == []
    assert left_out[0].not_scanned[0].why == "no file system of this kind can be read here"
