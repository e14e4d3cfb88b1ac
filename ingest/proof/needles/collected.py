"""The content of a sealed file: the collected values by table, column and type, as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ingest.errors import ConfigError

_FORMAT = "ingest needles 1"


@dataclass(frozen=True)
class CollectedValue:
    """A value of a personal column. `kind`: the kind of its logical type, such as `date` or `array`. `json`: the value
    as JSON: texts, numbers, dates in ISO 8601, bytes in base64."""

    table: str
    column: str
    kind: str
    json: str = field(repr=False)


@dataclass(frozen=True)
class CollectedNeedles:
    """The values of one request, each once. `uncollected`: (column, reason) pairs of personal columns whose values
    could not be collected; the column as `TABLE.COLUMN`."""

    values: tuple[CollectedValue, ...] = ()
    uncollected: tuple[tuple[str, str], ...] = ()

    def union(self, other: CollectedNeedles) -> CollectedNeedles:
        """Returns what either holds."""
        return CollectedNeedles(
            tuple(dict.fromkeys((*self.values, *other.values))),
            tuple(dict.fromkeys((*self.uncollected, *other.uncollected))),
        )

    def to_bytes(self) -> bytes:
        values = [[v.table, v.column, v.kind, v.json] for v in self.values]
        document = {_FORMAT: {"values": values, "uncollected": [*map(list, self.uncollected)]}}
        return json.dumps(document).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> CollectedNeedles:
        """Returns what `to_bytes` wrote. Raises ConfigError, which shows nothing of it, for anything else."""
        try:
            document: Any = json.loads(body)
            # Another version has no such member.
            content = document[_FORMAT]
            values = tuple(CollectedValue(*map(str, fields)) for fields in content["values"])
            return cls(values, tuple((str(column), str(why)) for column, why in content["uncollected"]))
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                "the collected values of the request are in a form that this version doesn't know",
                "take the version of ingest that requested the erasure",
            ) from None
