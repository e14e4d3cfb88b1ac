"""One entry in the register makes a new place part of search, removal, old files, vacuum, certificate and scan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.config import Pipeline
from ingest.delta.delta_table import NO_STATISTICS, Table
from ingest.erasure.certifying import erasure_of
from ingest.erasure.places import BRONZE, OLD_FILES, register
from ingest.erasure.places.place import ITEM, PLACE, REQUEST, ErasurePlace, FoundRows, Removed
from ingest.erasure.places.register import REGISTER
from ingest.erasure.removal import Removal
from ingest.erasure.removal_run import RemovalRun
from ingest.erasure.request import SubjectId, current_cutoff, plan_erasure, request_erasure
from ingest.errors import ProofFailed
from ingest.lakehouse import row_rewrites
from ingest.merge.actions import TOMBSTONE_KEY, tombstone_key
from ingest.proof.search import places_of, scan_with_canaries
from ingest.suppression.key_references import OWN_KEYS, REFERENCES, own_keys, rows_referencing, with_key_hashes
from ingest.suppression.ledger import STATE, Ledger
from ingest.upkeep.old_files import every_table
from tests.erasure.people import MEMBERS, insured
from tests.erasure.test_removal import ANNA, BEN, NAME, NEEDLES, merge, table_event

pytestmark = pytest.mark.spark
NOTES = "notes"
STORY = [table_event(MEMBERS, "c", 0, 10, ANNA, name=NAME), table_event(MEMBERS, "c", 1, 11, BEN, name="Ben")]


def notes_of(spark: SparkSession, pipeline: Pipeline) -> Table:
    """The members' notes: a Delta table beside silver."""
    return Table(spark, f"{pipeline.layout.root}/notes/{pipeline.name}/members")


def find(found: FoundRows) -> DataFrame | None:
    if found.table != MEMBERS:
        return None
    notes = (
        notes_of(found.context.spark, found.context.pipeline).rows().withColumn(TOMBSTONE_KEY, tombstone_key(["id"]))
    )
    keys = found.rows.select(TOMBSTONE_KEY, REQUEST).distinct()
    return notes.join(keys, TOMBSTONE_KEY).select(
        F.lit(NOTES).alias(PLACE), F.col("id").cast("string").alias(ITEM), REQUEST
    )


def remove(run: RemovalRun) -> Removed:
    context = run.context
    (members,) = (e.table_schema for e in context.subject_tables if e.table_schema.table == MEMBERS)
    notes, own = notes_of(context.spark, context.pipeline), own_keys(members)
    keyed = notes.rows().select("id", own.alias(OWN_KEYS), own.alias(REFERENCES))
    erased = rows_referencing(with_key_hashes(keyed, context.keys, context.keys.newest), context.ledger.keys())
    ids = erased.select("id").distinct().localCheckpoint()
    return Removed({"files": row_rewrites.remove_rows(notes, ids, ["id"], lambda rows, files: rows.coalesce(files))})


def folders(spark: SparkSession, pipeline: Pipeline, tables: Sequence[str]) -> Iterable[str]:
    return [notes_of(spark, pipeline).path] if MEMBERS in tables else []


ENTRY = ErasurePlace(NOTES, find=find, remove=remove, folders=folders, outside=None)


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    """With a note of each member."""
    made = insured(tmp_path)
    merge(spark, made, tmp_path / "events", STORY)
    notes = spark.createDataFrame([(ANNA, f"{NAME} rang"), (BEN, "rang twice")], "id bigint, note string")
    notes_of(spark, made).commit(notes.coalesce(1), properties=NO_STATISTICS)
    return made


def found(pipeline: Pipeline) -> set[tuple[str, str]]:
    """Returns label and part of the lakehouse for each residue of the name, by the scan of the pipeline's places."""
    places, left_out = places_of(pipeline)
    return {(f.needle, f.file.split("/")[0]) for f in scan_with_canaries(places, NEEDLES[:1], left_out).findings}


@pytest.mark.long
def test_one_entry_adds_a_place_to_every_part(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [place.name for place in REGISTER].index(BRONZE)
    monkeypatch.setattr(register, "REGISTER", (*REGISTER[:before], ENTRY, *REGISTER[before:]))
    cutoff = current_cutoff(spark, pipeline, topics=False)
    plan = plan_erasure(spark, pipeline, [SubjectId("member", str(ANNA))], None, cutoff)
    assert plan.counts[NOTES, MEMBERS] == 1, "the search counts its rows"
    (entry,) = request_erasure(spark, pipeline, plan)
    with monkeypatch.context() as unaware:
        unaware.setattr(register, "REGISTER", REGISTER)
        Removal(spark, pipeline, keep_hours=0).run()
        assert erasure_of(spark, pipeline, entry.request).request == entry.request
        assert found(pipeline) == {("name", NOTES)}, "the scan finds what no entry removes"
    with pytest.raises(ProofFailed, match=f"nothing was removed yet from {NOTES}"):
        erasure_of(spark, pipeline, entry.request)
    assert notes_of(spark, pipeline).path in every_table(spark, pipeline), "a vacuum takes it"

    kept = Removal(spark, pipeline, keep_hours=1).run()
    assert kept.taken[NOTES] == {"files": 1}
    assert kept.remain_until is not None
    assert found(pipeline) == {("name", NOTES)}, "in an old file"
    with pytest.raises(ProofFailed, match=OLD_FILES):
        erasure_of(spark, pipeline, entry.request)

    done = Removal(spark, pipeline, keep_hours=0).run()
    assert (done.taken[NOTES], done.remain_until) == ({"files": 0}, None)
    assert found(pipeline) == set()
    assert erasure_of(spark, pipeline, entry.request).request == entry.request
    assert [row["id"] for row in notes_of(spark, pipeline).rows().collect()] == [BEN]
    states = [e.place for e in Ledger(spark, pipeline.layout.ledger, pipeline.name).entries() if e.kind == STATE]
    assert states.count(NOTES) == 1
