"""What threads hand in at about the same time is committed together, and fails apart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from ingest.delta.group_commit import GroupCommit
from ingest.errors import Contended


class Commits:
    """A table whose first commit goes on until `end_first`."""

    def __init__(self, check: Callable[[Sequence[str]], None] = lambda _: None) -> None:
        """`check`: raises what the commit of these items raises."""
        self.tried = list[list[str]]()
        self._check = check
        self._has_begun, self._may_end = threading.Event(), threading.Event()

    def commit(self, items: Sequence[str]) -> None:
        self.tried.append(sorted(items))
        if not self._has_begun.is_set():
            self._has_begun.set()
            assert self._may_end.wait(60)
        self._check(items)

    def hand_in(self, first: str, later: Sequence[str]) -> dict[str, Future[None]]:
        """Hands the later items in during the commit of the first. Returns the outcome of each."""
        group = GroupCommit(self.commit)
        with ThreadPoolExecutor(1 + len(later)) as pool:
            found = {first: pool.submit(group.commit, first)}
            assert self._has_begun.wait(60)
            found |= {item: pool.submit(group.commit, item) for item in later}
            while len(group._waiting) < len(later):
                time.sleep(0.01)
            self._may_end.set()
        return found


def test_items_handed_in_during_a_commit_are_committed_together() -> None:
    commits = Commits()
    outcomes = commits.hand_in("a", "bcd")
    assert [outcome.exception() for outcome in outcomes.values()] == [None] * 4
    assert commits.tried == [["a"], ["b", "c", "d"]]


def test_a_conflict_of_one_item_is_that_of_its_thread_alone() -> None:
    def check(items: Sequence[str]) -> None:
        if "c" in items:
            raise Contended("another writer has recorded c", "again")

    commits = Commits(check)
    outcomes = commits.hand_in("a", "bcd")
    failed = {item: type(outcome.exception()) for item, outcome in outcomes.items() if outcome.exception()}
    assert failed == {"c": Contended}
    assert commits.tried[:2] == [["a"], ["b", "c", "d"]]
    assert sorted(commits.tried[2:]) == [["b"], ["c"], ["d"]]


def test_a_run_that_ends_during_a_commit_commits_nothing_more() -> None:
    def check(items: Sequence[str]) -> None:
        if "b" in items:
            raise KeyboardInterrupt

    commits = Commits(check)
    outcomes = commits.hand_in("a", "bc")
    assert outcomes["a"].exception() is None
    for item in "bc":
        with pytest.raises(KeyboardInterrupt):
            outcomes[item].result()
    assert commits.tried == [["a"], ["b", "c"]]
