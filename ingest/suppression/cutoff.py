"""Up to where a subject's life is the old one: what was captured or written when its erasure was asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

EVERY = ""
"""All tables but those that a column of their own puts in order."""


@dataclass(frozen=True)
class CutOff:
    """`offsets`: topic → partition → the first offset that comes after it. `positions`: table → the last position
    that had been given by then, as plain numbers, under `EVERY` that of the source: an event that is sent again has a
    new offset and an old position."""

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    positions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def position(self, table: str) -> tuple[int, ...] | None:
        """The last one of a table's old life; None where none was known."""
        return self.positions.get(table, self.positions.get(EVERY))

    @property
    def said(self) -> str:
        """As `parsed` reads it, always the same text for the same."""
        whole: dict[str, Any] = {"offsets": self.offsets, "positions": self.positions}
        return json.dumps(whole, sort_keys=True, ensure_ascii=False)

    @classmethod
    def parsed(cls, text: str) -> CutOff:
        told = json.loads(text)
        offsets = {t: {int(p): int(o) for p, o in ps.items()} for t, ps in told["offsets"].items()}
        return cls(offsets, {table: tuple(at) for table, at in told["positions"].items()})
