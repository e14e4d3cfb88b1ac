"""A thread that commits changes to the source while the pipeline runs."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence

import psycopg

from ingest.demo.claims import Change, ClaimsBook
from ingest.demo.source import ClaimsDatabase
from ingest.demo.story import Story
from ingest.errors import IngestError, StackFailed

TRANSACTIONS_PER_SECOND = 15.0
STORY_SECONDS = 60.0
"""The longest extension of the run time for an unfinished story."""
BEGIN_SECONDS = 180.0
_POLL_SECONDS = 0.2


class Generator(threading.Thread):
    """Waits until `begin` is set, then commits the book's transactions and the story's chapters until its time is over,
    and sets `ended`.

    `seconds`: the run time; None for no end. Setting `ended` from outside stops it. Afterwards `failure` holds the
    error that stopped it, or None.
    """

    def __init__(
        self,
        database: ClaimsDatabase,
        book: ClaimsBook,
        story: Story,
        seconds: float | None,
        ended: threading.Event,
    ) -> None:
        super().__init__(name="generator", daemon=True)
        self._database = database
        self._book = book
        self._story = story
        self._seconds = seconds
        self._ended = ended
        self.committed: Counter[str] = Counter()
        self.begin = threading.Event()
        self.failure: IngestError | None = None
        self.time_is_over = False

    def run(self) -> None:
        try:
            if self._begins():
                self._generate()
        except psycopg.Error as error:
            self.failure = StackFailed(
                f"the source refused a change ({type(error).__name__})", "read the log of its Postgres"
            )
        finally:
            self._ended.set()

    def _begins(self) -> bool:
        deadline = time.monotonic() + BEGIN_SECONDS
        while not self.begin.wait(_POLL_SECONDS):
            if self._ended.is_set():
                return False
            if time.monotonic() > deadline:
                self.failure = StackFailed(
                    f"the snapshot did not arrive in silver within {BEGIN_SECONDS:.0f} s",
                    "run it again with --folder, and read the logs of Kafka Connect and Kafka there",
                )
                return False
        return True

    def close_books(self) -> list[Change]:
        """Commits a last change of each table and returns them. Call it after the thread has ended."""
        changes = self._book.closing()
        self._commit(changes)
        return changes

    def _generate(self) -> None:
        started_at = time.monotonic()
        for transaction in self._book.transactions():
            self.time_is_over = self._over(time.monotonic() - started_at)
            if self.time_is_over or self._ended.is_set():
                return
            if chapter := self._story.due:
                self._commit([chapter.change])
                self._story.commit_done()
            self._commit(transaction)
            self._ended.wait(1 / TRANSACTIONS_PER_SECOND)

    def _over(self, elapsed: float) -> bool:
        if self._seconds is None or elapsed < self._seconds:
            return False
        return self._story.is_complete or elapsed > self._seconds + STORY_SECONDS

    def _commit(self, changes: Sequence[Change]) -> None:
        self._database.commit(changes)
        self.committed.update(change.op for change in changes)
