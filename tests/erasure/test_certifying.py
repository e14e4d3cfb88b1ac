"""An erasure is certified once every record up to its cutoff was captured, and every place was visited since."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.erasure.certifying import erasure_of
from ingest.errors import ProofFailed
from tests.erasure.people import MEMBERS, cutoff, insured
from tests.erasure.test_removal import ANNA, BEN, NAME, SENT_AGAIN, STORY, merge, remove, table_event
from tests.suppression.test_suppression import write_requests

pytestmark = pytest.mark.spark
WAITING = [*STORY, table_event(MEMBERS, "u", 3, 50, ANNA, name=NAME)]


def certify(spark: SparkSession, pipeline: Pipeline) -> str:
    return erasure_of(spark, pipeline, f"r{ANNA}").request


@pytest.mark.long
def test_erasure_is_certified_after_the_last_event_of_the_old_life(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = insured(tmp_path)
    merge(spark, pipeline, tmp_path / "events", STORY)
    write_requests(spark, pipeline, {ANNA: cutoff(1, WAITING), BEN: cutoff(1, STORY)})
    remove(spark, pipeline)
    # A record was in the topic at the time of the request, and nobody has captured it.
    with pytest.raises(ProofFailed, match=r"not captured yet \(insured.members, partition 1\)"):
        certify(spark, pipeline)
    assert erasure_of(spark, pipeline, f"r{BEN}").request == f"r{BEN}"

    merge(spark, pipeline, tmp_path / "waiting", WAITING)
    with pytest.raises(ProofFailed, match="arrived after the last removal from"):
        certify(spark, pipeline)
    remove(spark, pipeline)
    assert certify(spark, pipeline) == f"r{ANNA}"

    # An event of the old life is delivered again.
    merge(spark, pipeline, tmp_path / "again", [*WAITING, *SENT_AGAIN[len(STORY) :]])
    with pytest.raises(ProofFailed, match="arrived after the last removal from"):
        certify(spark, pipeline)
    remove(spark, pipeline)
    assert certify(spark, pipeline) == f"r{ANNA}"
