"""Versions of definitions as the catalog stores them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from ingest.evolution.definition import Cause, unreadable_version
from ingest.evolution.lives import lives
from ingest.lakehouse.schema_json import versions_from_json, versions_to_json
from ingest.testing.table_versions import seen_versions, told_versions
from ingest.testing.tables import random_table
from tests.evolution.versions import at, column, seen, told


def test_told_and_seen_versions_are_read_as_they_were_written() -> None:
    for seed in range(30):
        story = random_table(Random(seed))
        versions = {*told_versions(story), *seen_versions(story), unreadable_version(at(7, -1))}
        half = {version for version in versions if Random(str(version)).random() < 0.5}
        found = versions_from_json([versions_to_json(half), None, versions_to_json(versions - half)])
        assert found == versions
        assert lives(found) == lives(versions)


def test_causes_are_kept() -> None:
    cause = Cause("ALTER TABLE", True, True, "Europe/Berlin", (2, 3), "s.former")
    version = told(10, column("id", 1), cause=cause, key=("id",))
    assert versions_from_json([versions_to_json([version])]) == {version}


def test_a_version_that_a_late_message_withdraws_is_gone() -> None:
    kept, wrong = seen(10, "id"), told(20, cause=Cause("RENAME TABLE", other_name="s.b"))
    right = replace(wrong, cause=Cause("RENAME TABLE", other_name="s.a"))
    texts = [versions_to_json([kept, wrong]), versions_to_json([right], [wrong])]
    assert versions_from_json(texts) == {kept, right}
    assert versions_from_json([*texts, versions_to_json([wrong])]) == {kept, right, wrong}
