"""The demo's generator is deterministic: a seed gives the same rows and changes."""

from __future__ import annotations

from itertools import islice

from ingest.demo.claims import CLAIM_COUNT, MEMBER_COUNT, Change, ClaimsBook
from ingest.demo.story import Story

SEED = 7


def first_changes(book: ClaimsBook, transactions: int = 400) -> list[Change]:
    return [change for transaction in islice(book.transactions(), transactions) for change in transaction]


def test_seed_gives_the_same_rows_and_changes() -> None:
    one, other = ClaimsBook(SEED), ClaimsBook(SEED)
    assert (one.members, one.accident_claims) == (other.members, other.accident_claims)
    assert one.new_claim() == other.new_claim()
    assert first_changes(one) == first_changes(other)


def test_another_seed_gives_other_rows() -> None:
    assert ClaimsBook(SEED).accident_claims != ClaimsBook(SEED + 1).accident_claims


def test_history_begins_with_a_thousand_claims_of_known_members() -> None:
    book = ClaimsBook(SEED)
    assert (len(book.members), len(book.accident_claims)) == (MEMBER_COUNT, CLAIM_COUNT)
    members = {member["id"] for member in book.members}
    assert {claim["member_id"] for claim in book.accident_claims} <= members


def test_every_change_finds_its_row() -> None:
    book = ClaimsBook(SEED)
    live = {"members": {m["id"] for m in book.members}, "accident_claims": {c["id"] for c in book.accident_claims}}
    for change in first_changes(book):
        rows = live[change.table]
        if change.op == "insert":
            assert change.id not in rows
            assert "member_id" not in change.values or change.values["member_id"] in live["members"]
            rows.add(change.id)
            continue
        assert change.id in rows
        if change.op == "delete":
            rows.remove(change.id)
    assert {table: sorted(ids) for table, ids in live.items()} == {
        "members": book.ids("members"),
        "accident_claims": book.ids("accident_claims"),
    }


def test_changes_are_inserts_updates_and_deletes() -> None:
    assert {change.op for change in first_changes(ClaimsBook(SEED))} == {"insert", "update", "delete"}


def test_only_the_story_changes_its_claim() -> None:
    book = ClaimsBook(SEED)
    claim = book.new_claim()
    assert claim.id not in book.ids("accident_claims")
    assert claim.id not in {c.id for c in first_changes(book) if c.table == "accident_claims"}


def test_last_changes_touch_a_live_row_of_each_table() -> None:
    book = ClaimsBook(SEED)
    first_changes(book)
    closing = book.closing()
    assert [change.table for change in closing] == ["members", "accident_claims"]
    assert all(change.id in book.ids(change.table) for change in closing)


def test_next_chapter_waits_for_silver() -> None:
    story = Story(ClaimsBook(SEED).new_claim())
    titles: list[str] = []
    while chapter := story.due:
        story.commit_done()
        assert story.due is None
        assert story.awaited is chapter
        story.chapter_seen()
        titles.append(chapter.title)
    assert titles == story.seen == ["appears", "changes", "vanishes"]
    assert story.is_complete
