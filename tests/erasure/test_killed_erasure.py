"""SIGKILL at each step of an erasure: the same command continues and ends with an equal certificate."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.erasure.certifying import erasure_of
from ingest.erasure.request import SubjectId, current_cutoff, plan_erasure, request_erasure
from ingest.lakehouse.quarantine import Quarantine
from ingest.pipeline.archiving import archiving_of
from ingest.pipeline.composition import bronze_of
from ingest.pipeline.shredding import decrypted_rows
from ingest.proof.certificate import issue_certificate
from ingest.proof.certificate.keys import make_key_pair, signing_key
from ingest.proof.scan import SearchTerm
from ingest.proof.search import places_of, scan_with_canaries
from ingest.spark.session import SHORT_LIVED
from ingest.stack import S3
from ingest.suppression.ledger import REQUESTED, Ledger
from tests.erasure.people import MEMBERS, SETTINGS
from tests.erasure.test_removal import ANNA, BEN, NAME, merge, remove, table_event
from tests.shredding.test_shredding import shredding
from tests.suppression.test_suppression import rows

pytestmark = [pytest.mark.integration, pytest.mark.long]
STEPS = ("asked", "data keys", "tombstones", "quarantine", "tables", "bronze", "old files", "archive")
MAIL, OTHERS = "aenne@uebelhoer.example", "ben@other.example"
NEEDLES = (SearchTerm("name", NAME), SearchTerm("mail", MAIL), SearchTerm("member", str(ANNA), ("id", "member_id")))
KILLED = """
import os, signal, sys
from ingest.cli import main
from ingest.cli.erasure import erase
from ingest.erasure import request
from ingest.erasure.places import old_files

step = sys.argv.pop(1)

def dying(done):
    def die(*arguments):
        if step != "asked":  # which ends before the keys are destroyed
            result = done(*arguments)
        if step in ("asked", "old files") or step == arguments[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return die

place = {"asked": (request, "shred"), "old files": (old_files, "remove_old_files")}.get(step, (erase, "_print_place"))
setattr(*place, dying(getattr(*place)))
main()
"""
STORY = [
    table_event(MEMBERS, "c", 0, 10, ANNA, name="a name before", mail=MAIL),
    table_event(MEMBERS, "c", 1, 11, BEN, name="Ben", mail=OTHERS),
    table_event(MEMBERS, "u", 2, 12, ANNA, name=NAME, mail=MAIL),
]


def prepared(spark: SparkSession, folder: Path, s3: S3) -> Pipeline:
    """Returns a pipeline with everything merged and archived, encrypted mails, and a record in quarantine."""
    settings = {MEMBERS: SETTINGS[MEMBERS] | {"personal": ["id", "name", "mail"], "shred": ["mail"], "history": True}}
    boto3.client("s3", **s3.client_options).create_bucket(Bucket=folder.name)
    archive = {"uri": f"s3://{folder.name}/insured", "s3": s3.client_options}
    pipeline = shredding(folder, tables=settings, spark=SHORT_LIVED, archive=archive)
    merge(spark, pipeline, folder / "events", STORY)
    archiving = archiving_of(spark, pipeline)
    while archiving.step() is not None:
        pass
    first = bronze_of(spark, pipeline).rows().where("offset = 0")
    aside = first.selectExpr("*", "source_table as table", "'x' as code", "'for the test' as reason")
    Quarantine(spark, pipeline.layout.quarantine, pipeline.name).add(aside)
    return pipeline


def erase(file: Path, step: str, *more: str) -> subprocess.CompletedProcess[bytes]:
    """Runs an erasure that is killed after the step."""
    command = [sys.executable, "-c", KILLED, step, "erase", str(file), "--keep-old-files", "0", *more]
    return subprocess.run(command, check=False, capture_output=True, timeout=900)


def certified(spark: SparkSession, pipeline: Pipeline, keys: Path) -> dict[str, Any]:
    """Returns the statements of the certificate that are equal for equal lakehouses."""
    ledger = Ledger(spark, pipeline.layout.ledger, pipeline.name)
    (request,) = (e.request for e in ledger.entries() if e.kind == REQUESTED)
    keys.mkdir()
    make_key_pair(keys / "sign.pem")
    places, left_out = places_of(pipeline)
    signer = signing_key(keys / "sign.pem", [Path(pipeline.lakehouse)])
    certificate = issue_certificate(
        erasure_of(spark, pipeline, request), scan_with_canaries(places, NEEDLES, left_out), signer, datetime.now(UTC)
    ).content
    return {what: certificate[what] for what in ("subject", "cut_offs", "needles", "forms", "residues")}


def test_erasure_killed_at_each_step_is_completed(spark: SparkSession, s3: S3, tmp_path: Path) -> None:
    killed, lived = (prepared(spark, tmp_path / name, s3) for name in ("killed", "lived"))
    subject = ("--subject", f"member:{ANNA}", "--upto", "bronze")
    for step in STEPS:
        done = erase(tmp_path / "killed" / "insured.yaml", step, *(subject if step == "asked" else ()))
        assert done.returncode == -signal.SIGKILL, (step, done.stderr[-2000:])
    request_erasure(
        spark,
        lived,
        plan_erasure(spark, lived, [SubjectId("member", str(ANNA))], None, current_cutoff(spark, lived, False)),
    )
    for pipeline in (killed, lived):
        remove(spark, pipeline)
        assert rows(spark, pipeline, MEMBERS) == {BEN: {"name": "Ben"}}
        assert [row["mail"] for row in decrypted_rows(spark, pipeline, MEMBERS).collect()] == [OTHERS]
    summary = certified(spark, killed, tmp_path / "keys")
    assert summary == certified(spark, lived, tmp_path / "other keys")
    assert summary["residues"] == []
