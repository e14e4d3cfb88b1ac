"""The demonstration's second half: the lakehouse is lost and comes again out of the archive; then a look back."""

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
    """`archived`: records in S3. `restored`: whether every table has the digest that it had before it was lost."""

    archived: int
    restored: bool
    as_of: LookBack

    @property
    def right(self) -> bool:
        """All is as it should be."""
        return self.restored and self.as_of.equal

    def sentences(self) -> list[str]:
        """For people."""
        again = "equal those before" if self.restored else "DIFFER from those before"
        return [
            f"restored from {self.archived} records in S3 alone: the digests of all tables {again}",
            self.as_of.sentence,
        ]


def archive_in(s3: S3) -> dict[str, Any]:
    """What a pipeline file says of an archive in this server, in a new bucket."""
    boto3.client("s3", **s3.client_options).create_bucket(Bucket=BUCKET)
    return {"uri": f"s3://{BUCKET}/demo", "s3": s3.client_options}


def show_history(spark: SparkSession, pipeline: Pipeline, display: Display) -> HistorySummary:
    """Archives, loses and restores the lakehouse of `pipeline`, whose archive is there; then looks back."""
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
