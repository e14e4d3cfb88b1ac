"""Kills runs in front of a commit, as SIGKILL does."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from ingest.delta.delta_table import Table


class Died(Exception):
    """Raised in place of SIGKILL: no commit of the run comes after it."""


class Deaths:
    """Kills a run in front of a commit whose files are written. `after`: how often a run died after a commit, by the
    path of that commit's table. Commits that bring nothing are not counted: each run makes them again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.after: Counter[str] = Counter()
        self._lock, self._left, self._last = threading.Lock(), 0, ""
        commit = Table._commit_actions

        def dying(
            table: Table,
            transaction: Any,
            added: Any,
            removed: Any,
            actions: Any,
            user_metadata: Any = None,
            *more: Any,
            **named: Any,
        ) -> None:
            with self._lock:
                brings_nothing = not actions and user_metadata is not None
                if self._left < 0 or (self._left == 0 and not brings_nothing):
                    self.after[self._last] += self._left == 0
                    self._left = -1
                    raise Died
                if not brings_nothing:
                    self._left -= 1
                    self._last = table.path
            commit(table, transaction, added, removed, actions, user_metadata, *more, **named)

        monkeypatch.setattr(Table, "_commit_actions", dying)

    def begin(self, commits: int) -> None:
        """Begins a run that makes this many commits and dies at the next one."""
        self._left, self._last = commits, ""
