"""The story of one claim: it appears, changes and vanishes. Each chapter is committed once silver has shown the one
before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ingest.demo.claims import Change


@dataclass(frozen=True)
class Chapter:
    """A change of the claim. `title`: describes what silver shows after it."""

    title: str
    change: Change

    def shown_by(self, row: Mapping[str, Any] | None) -> bool:
        """Returns True if `row`, the claim's row in silver (None if absent), is that after the change."""
        if self.change.op == "delete":
            return row is None
        return row is not None and row["revision"] == self.change.values["revision"]


class Story:
    """The story's progress. Two threads share it: one commits the chapter that is `due`, the other looks for the one
    that is `awaited`."""

    def __init__(self, claim: Change) -> None:
        """`claim`: the insert of a claim that nothing else changes."""
        changed = {"status": "paid", "amount_paid": claim.values["amount_claimed"], "revision": 1}
        self.id = claim.id
        self._chapters = (
            Chapter("appears", claim),
            Chapter("changes", Change("update", claim.table, claim.id, changed)),
            Chapter("vanishes", Change("delete", claim.table, claim.id, {})),
        )
        self._committed = 0
        self._seen = 0

    @property
    def due(self) -> Chapter | None:
        """The next chapter, once silver has shown the one before."""
        waiting = self._committed > self._seen or self._committed == len(self._chapters)
        return None if waiting else self._chapters[self._committed]

    @property
    def awaited(self) -> Chapter | None:
        """The chapter that is committed and not yet seen in silver."""
        return self._chapters[self._seen] if self._committed > self._seen else None

    @property
    def seen(self) -> list[str]:
        """The titles of the chapters that silver has shown."""
        return [chapter.title for chapter in self._chapters[: self._seen]]

    @property
    def is_complete(self) -> bool:
        return self._seen == len(self._chapters)

    def commit_done(self) -> None:
        self._committed += 1

    def chapter_seen(self) -> None:
        self._seen += 1
