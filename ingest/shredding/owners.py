"""Under whose key a row's values are encrypted: its subject, or the row through which it leads to one. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.changelog.values.types import Kind
from ingest.config import TableSettings
from ingest.errors import ConfigError
from ingest.merge.images import Shape

_TOLD_ALIKE = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT53, Kind.INT64, Kind.STRING, Kind.UUID)
"""Types whose values are the same text in an event's JSON and as the ledger hashes a key."""


@dataclass(frozen=True)
class Owner:
    """The row of `table` whose key a row holds in its `column`."""

    table: str
    column: str


@dataclass(frozen=True)
class Shredded:
    """`columns`: table → columns that are encrypted. `owners`: table → by whose key."""

    columns: Mapping[str, frozenset[str]] = field(default_factory=dict)
    owners: Mapping[str, Owner] = field(default_factory=dict)

    def require_alike(self, shape: Shape) -> None:
        """Raises ConfigError where a table's owners can't be told out of its events."""
        owner = self.owners.get(shape.table)
        if owner is None:
            return
        kinds = {c.name: c.type.kind for c in shape.columns}
        if owner.column in kinds and kinds[owner.column] not in _TOLD_ALIKE:
            raise ConfigError(
                f"table {shape.table} shreds columns, and leads to its subject by {owner.column}, a "
                f"{kinds[owner.column].value}",
                "only whole numbers, texts and uuids do: take shred away there; an erasure removes its rows anyway",
            )


def shredded_by(tables: Mapping[str, TableSettings]) -> Shredded:
    """What a pipeline's file says."""
    told = {table: settings for table, settings in tables.items() if settings.shred}
    owners = {}
    for table, settings in told.items():
        assert settings.subject is not None, "the configuration refuses shredded columns of nobody"
        for column, parent in (settings.subject.through or {settings.subject.key or "": table}).items():
            owners[table] = Owner(parent, column)
    return Shredded({table: frozenset(settings.shred) for table, settings in told.items()}, owners)
