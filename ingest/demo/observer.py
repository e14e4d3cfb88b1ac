"""Observes a running pipeline: adds up its reports, and reads silver between batches."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

from ingest.changelog.accounting import COUNTS
from ingest.demo.claims import ACCIDENT_CLAIMS, CLAIM_COUNT, MEMBER_COUNT, MEMBERS
from ingest.demo.display import Display, Numbers
from ingest.demo.generator import Generator
from ingest.demo.lakehouse import LagPercentiles, LakehouseView
from ingest.demo.story import Story
from ingest.pipeline.composition import Progress

_SNAPSHOT = {MEMBERS: MEMBER_COUNT, ACCIDENT_CLAIMS: CLAIM_COUNT}
_COUNT_EVERY_SECONDS = 4.0
_LAG_EVERY_SECONDS = 10.0


class Observer:
    """Shows a pipeline's progress. The pipeline calls `report` after each batch, on one thread. Once the snapshot is in
    silver, `report` starts the generator."""

    def __init__(self, view: LakehouseView, display: Display, story: Story) -> None:
        self._view = view
        self._display = display
        self._story = story
        self._numbers = Numbers()
        self._read: Counter[str] = Counter()
        self._counted_at = self._lagged_at = 0.0
        self.generator: Generator | None = None

    def report(self, progress: Progress) -> None:
        """Adds the counts of a merged batch and updates the display."""
        numbers = self._numbers
        numbers.captured += progress.captured
        for account in progress.accounts:
            self._read[account.table] += account.read
            for name in COUNTS:
                numbers.accounts[name] = numbers.accounts.get(name, 0) + getattr(account, name)
        self._begin_generator()
        self._look_for_chapter()
        self._measure()
        self._display.show(numbers)

    def final(self, accounts: Mapping[str, int], silver_rows: Mapping[str, int], lag: LagPercentiles | None) -> None:
        """Shows the final numbers, which are read from the tables."""
        numbers = self._numbers
        numbers.accounts, numbers.silver_rows, numbers.lag = dict(accounts), dict(silver_rows), lag
        self._display.show(numbers, now=True)

    def _begin_generator(self) -> None:
        generator = self.generator
        if generator is None:
            return
        self._numbers.committed = generator.committed
        if not generator.begin.is_set() and all(self._read[t] >= n for t, n in _SNAPSHOT.items()):
            self._display.say("the snapshot is in silver; from here on the source changes")
            generator.begin.set()
            self._lagged_at = time.monotonic()

    def _look_for_chapter(self) -> None:
        chapter = self._story.awaited
        if chapter is None:
            return
        row = self._view.row(ACCIDENT_CLAIMS, self._story.id)
        if chapter.shown_by(row):
            self._story.chapter_seen()
            self._display.chapter(self._story.id, chapter.title, row)

    def _measure(self) -> None:
        now = time.monotonic()
        if now - self._counted_at > _COUNT_EVERY_SECONDS:
            tables = [table for table in _SNAPSHOT if self._read[table]]
            self._numbers.silver_rows = {table: self._view.count(table) for table in tables}
            self._counted_at = time.monotonic()
        is_begun = self.generator is not None and self.generator.begin.is_set()
        if is_begun and now - self._lagged_at > _LAG_EVERY_SECONDS:
            self._numbers.lag = self._view.lag()
            self._lagged_at = time.monotonic()
