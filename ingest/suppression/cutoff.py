"""The cutoff of an erasure: events up to it are erased and suppressed, later ones are applied."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WHOLE_SOURCE = ""
"""The key in `Cutoff.positions` for all tables without a sequence column of their own."""


@dataclass(frozen=True)
class Cutoff:
    """`offsets`: topic → partition → first offset after the cutoff. `positions`: table (or `WHOLE_SOURCE`) → last
    position at or below the cutoff, as plain numbers. Both are needed, because an event that is sent again has a new
    offset and its old position."""

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    positions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def position(self, table: str) -> tuple[int, ...] | None:
        """Returns the last position of `table` at or below the cutoff; None if none was known."""
        return self.positions.get(table, self.positions.get(WHOLE_SOURCE))

    def to_json(self) -> str:
        """Returns canonical JSON: equal cutoffs give equal text."""
        fields: dict[str, Any] = {"offsets": self.offsets, "positions": self.positions}
        return json.dumps(fields, sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Cutoff:
        fields = json.loads(text)
        offsets = {t: {int(p): int(o) for p, o in ps.items()} for t, ps in fields["offsets"].items()}
        return cls(offsets, {table: tuple(at) for table, at in fields["positions"].items()})
