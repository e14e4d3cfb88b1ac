"""The demo's second part: deletes the lakehouse, restores it from the archive, and reads silver as of an earlier
position."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass
from typing import Any

import boto3
from pyspark.sql import SparkSession

from ingest.backfill.digests import table_digests
from ingest.backfill.restoring import restore
from ingest.config import Pipeline
from ingest.demo.display import Display
from ingest.demo.looking_back import LookBack, look_back
from ingest.names import Lakehouse
from ingest.pipeline.archiving import archiving_of
from ingest.stack import S3

BUCKET = "changelogs"


@dataclass(frozen=True)
class HistorySummary:
    """The result. `archived`: records in S3. `restored`: True if every table has the same digest as before its loss."""

    archived: int
    restored: bool
    as_of: LookBack

    @property
    def is_right(self) -> bool:
        """True if the restored tables and the look back are both equal to what they should be."""
        return self.restored and self.as_of.equal

    def sentences(self) -> list[str]:
        """Returns the result in sentences."""
        outcome = "equal those before" if self.restored else "DIFFER from those before"
        return [
            f"restored from {self.archived} records in S3 alone: the digests of all tables {outcome}",
            self.as_of.sentence,
        ]


def archive_in(s3: S3) -> dict[str, Any]:
    """Creates a bucket and returns the `archive` section of a pipeline file for it."""
    boto3.client("s3", **s3.client_options).create_bucket(Bucket=BUCKET)
    return {"uri": f"s3://{BUCKET}/demo", "s3": s3.client_options}


def show_history(spark: SparkSession, pipeline: Pipeline, display: Display) -> HistorySummary:
    """Archives the changelog of `pipeline`, deletes its lakehouse, restores it and compares digests; then looks
    back."""
    with display.step("archive: the changelog into S3"):
        archiving = archiving_of(spark, pipeline)
        archived = 0
        while (manifest := archiving.step()) is not None:
            archived += manifest.records
    before = table_digests(spark, pipeline.layout, pipeline.name)
    with display.step("the lakehouse is deleted, and restored from S3 alone"):
        shutil.rmtree(pipeline.lakehouse)
        restore(spark, pipeline, threading.Event())
    after = table_digests(spark, pipeline.layout, pipeline.name)
    with display.step("silver as of a position in the middle"):
        then = Lakehouse(f"{pipeline.lakehouse}-then")
        looked = look_back(spark, pipeline, then)
        shutil.rmtree(then.root)
    return HistorySummary(archived, bool(before) and before == after, looked)
