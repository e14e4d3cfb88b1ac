"""The cutoff of a delete at the source, per table."""

from __future__ import annotations

from typing import Any

from ingest.changelog.change import EVENT_ID
from ingest.erasure.source_deletes import cutoff_after
from ingest.suppression.cutoff import WHOLE_SOURCE, Cutoff
from tests.erasure.people import CLAIMS, MEMBERS

DELETE: dict[str, Any] = {
    EVENT_ID: {"topic": "members", "partition": 0, "offset": 7},
    "position": (0, 91, 0, 0, 1, 7, 0),
    "begins": None,
}
CAPTURED = Cutoff({"members": {0: 99}}, {WHOLE_SOURCE: (0, 200, 0, 0, 1, 90, 0), "numbered": (0, 5, 0, 0, 1, 1, 0)})


def test_rows_that_lead_to_a_deleted_subject_end_with_what_is_captured() -> None:
    cutoff = cutoff_after(DELETE, MEMBERS, CAPTURED, [])
    assert cutoff.offsets == {"members": {0: 8}}
    assert cutoff.position(MEMBERS) == DELETE["position"]
    assert cutoff.position(CLAIMS) == (0, 200, 0, 0, 1, 90, 0)


def test_rows_that_lead_to_a_deleted_subject_end_before_it_begins_anew() -> None:
    cutoff = cutoff_after(DELETE | {"begins": (0, 95, 0, 0, 1, 8, 0)}, MEMBERS, CAPTURED, [])
    assert cutoff.position(MEMBERS) == DELETE["position"]
    assert (0, 94, 9, 9, 1) < (cutoff.position(CLAIMS) or ())[:5] < (0, 95, 0, 0, 0)


def test_numbers_of_a_table_are_not_compared_with_positions_of_the_source() -> None:
    cutoff = cutoff_after(DELETE, MEMBERS, CAPTURED, ["numbered", "empty"])
    assert cutoff.position("numbered") == (0, 5, 0, 0, 1, 1, 0)
    assert (cutoff.position("empty") or ())[:5] < (0, 0, 0, 0, 0)
