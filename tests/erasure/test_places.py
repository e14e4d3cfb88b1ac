"""The register of places: what a certificate requires of a pipeline."""

from __future__ import annotations

from pathlib import Path

from ingest.erasure.places import ARCHIVE, BRONZE, DELTA_PLACES, OLD_FILES, TOPICS, used_places
from tests.erasure.people import insured


def test_places_follow_the_pipeline_file(tmp_path: Path) -> None:
    assert used_places(insured(tmp_path)) == [*DELTA_PLACES, OLD_FILES]
    assert DELTA_PLACES[-1] == BRONZE, "last, because its events are needed to find the rest"
    archived = insured(tmp_path, archive={"uri": f"s3://bucket/{tmp_path.name}"})
    assert used_places(archived) == [*DELTA_PLACES, OLD_FILES, ARCHIVE]
    privacy = {"key_file": str(tmp_path / "ledger.key"), "tombstones_in_topics": True}
    assert used_places(insured(tmp_path, privacy=privacy)) == [*DELTA_PLACES, OLD_FILES, TOPICS]
