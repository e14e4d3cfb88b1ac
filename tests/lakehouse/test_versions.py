"""Lakehouses written by earlier versions are read and continued. Each archive in `versions/` holds three members, their
claims (with row history) and photos, without one erased member: created rows, an update, a delete, and a row that moved
to another key."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.rebuilding import Rebuild
from ingest.suppression.cutoff import WHOLE_SOURCE, Cutoff
from tests.erasure.people import CLAIMS, MEMBERS, PHOTOS, SETTINGS, insured, topic
from tests.erasure.test_removal import ANNA, BEN, TEXT, check_accounts_and_silver, merge, remove, table_event
from tests.suppression.test_suppression import rows, write_requests

pytestmark = pytest.mark.spark
CARL = 99002
VERSIONS = sorted((Path(__file__).parent / "versions").glob("*.tar.xz"))
NEXT = [
    table_event(CLAIMS, "u", 6, 22, 62, member_id=CARL, text="late, and deleted since"),
    table_event(CLAIMS, "u", 7, 24, 64, member_id=CARL, text="late, and moved since"),
    table_event(CLAIMS, "u", 8, 23, 60, member_id=ANNA, text=TEXT),
    table_event(CLAIMS, "u", 9, 40, 61, member_id=BEN, text="found again"),
    table_event(CLAIMS, "c", 10, 41, 65, member_id=CARL, text="fire"),
]


@pytest.mark.parametrize("archive", VERSIONS, ids=lambda path: path.name)
def test_lakehouse_of_an_earlier_version_is_continued(spark: SparkSession, tmp_path: Path, archive: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    made = insured(tmp_path, tables=SETTINGS | {CLAIMS: SETTINGS[CLAIMS] | {"history": True}})
    assert rows(spark, made, MEMBERS) == {BEN: {"name": "Ben"}, CARL: {"name": "Carl"}}
    merge(spark, made, tmp_path / "events", NEXT)
    claims = {
        61: {"member_id": BEN, "text": "found again"},
        63: {"member_id": CARL, "text": "moved"},
        65: {"member_id": CARL, "text": "fire"},
    }
    assert rows(spark, made, CLAIMS) == claims
    check_accounts_and_silver(spark, made, tmp_path / "proof")
    ends = {topic(CLAIMS): {1: 11}, topic(MEMBERS): {1: 3}, topic(PHOTOS): {1: 2}}
    write_requests(spark, made, {BEN: Cutoff(ends, {WHOLE_SOURCE: (0, 41, 0, 0, 1, 0, 0)})})
    remove(spark, made)
    del claims[61]
    assert rows(spark, made, CLAIMS) == claims
    assert rows(spark, made, MEMBERS) == {CARL: {"name": "Carl"}}
    assert rows(spark, made, PHOTOS) == {}
    Rebuild(spark, made).run()
    assert rows(spark, made, CLAIMS) == claims
