"""Stored rows as a merge keeps them: the newest value per key and column with its position. They are revised from one
state of knowledge to the next, or read from all events again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ingest.evolution.definition import Place, is_at_or_above
from ingest.evolution.life import Lives
from ingest.evolution.revisions import ColumnRevision, Refold, Source, revisions
from ingest.testing import UNAVAILABLE, Event
from ingest.testing.table_versions import place_of
from tests.evolution.evidence import converted, filled, image_as_now, read_event

Values = dict[str, tuple[Place, Any]]


@dataclass
class StoredRow:
    position: Place = ()
    deleted: Place = ()
    values: Values = field(default_factory=dict)
    sent: dict[str, Any] = field(default_factory=dict)
    """Values as their events sent them, which those of types that can be undone tell."""


class Stored:
    """Rows by `keys`: event → the row that it belongs to, whatever its key looks like."""

    def __init__(self, keys: dict[Place, Hashable]) -> None:
        self._keys = keys
        self.rows: dict[Hashable, StoredRow] = {}

    def merge(self, event: Event, now: Lives) -> None:
        at = place_of(event)
        if not is_at_or_above(at, now.begin):
            return
        row = self.rows.setdefault(self._keys[at], StoredRow())
        if event.op == "d":
            row.deleted = max(row.deleted, at)
            return
        row.position = max(row.position, at)
        read = read_event(now, event)
        sent = {column: event.image[name] for name, column in read.names.items()}
        for column, value in image_as_now(dict(event.image), read).items():
            if value is not UNAVAILABLE and row.values.get(column, ((), None))[0] < at:
                row.values[column], row.sent[column] = (at, value), sent.get(column)

    def revise(self, before: Lives, after: Lives) -> None:
        each = revisions(before, after)
        self.rows = {
            key: row for key, row in self.rows.items() if is_at_or_above(max(row.position, row.deleted), after.begin)
        }
        for row in self.rows.values():
            revised = {one.column: _revised(row, one) for one in each}
            row.values = {column: value for column, value in revised.items() if value is not None}
            row.sent = {
                one.column: row.sent[one.stored] for one in each if one.stored is not None and one.stored in row.sent
            }

    def is_lost(self, refold: Refold | None) -> bool:
        """Returns True if anything stored lies in a range that can't be revised, or was deleted."""
        return refold is not None and any(
            lost.is_gone
            or any(
                is_at_or_above(at, lost.begin) and (lost.end is None or at < lost.end)
                for row in self.rows.values()
                for at in _positions(row, lost.stored)
            )
            for lost in refold.ranges
        )

    def shown(self) -> dict[Hashable, Values]:
        """Returns the values of each row that exists."""
        return {
            key: {column: value for column, value in row.values.items() if value[0] > row.deleted}
            for key, row in self.rows.items()
            if row.position > row.deleted
        }


def read_again(events: Iterable[Event], now: Lives, keys: dict[Place, Hashable]) -> Stored:
    stored = Stored(keys)
    for event in events:
        stored.merge(event, now)
    return stored


def _positions(row: StoredRow, column: str | None) -> list[Place]:
    if column is None:
        return [at for at in (row.position, row.deleted) if at]
    return [row.values[column][0]] if column in row.values else []


def _revised(row: StoredRow, one: ColumnRevision) -> tuple[Place, Any] | None:
    if one.stored is not None and one.stored not in row.values:
        return None
    at, value = (row.position, None) if one.stored is None else row.values[one.stored]
    piece = next(p for p in one.pieces if is_at_or_above(at, p.begin) and (p.end is None or at < p.end))
    match piece.source:
        case Source.STORED:
            assert one.stored is not None
            return at, converted(row.sent[one.stored] if piece.undone else value, piece.types[1:])
        case Source.CONSTANT:
            return at, converted(filled(piece.fill), piece.types[1:])
        case _:
            return None
