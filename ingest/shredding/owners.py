"""Owners: the subject, or the row that leads to it, under whose key a row's values are encrypted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.config import TableSettings
from ingest.errors import ConfigError
from ingest.merge.table_schema import TableSchema
from ingest.values.types import Kind

_SAME_TEXT = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT53, Kind.INT64, Kind.STRING, Kind.UUID)
"""Types whose values have the same text in an event's JSON and in the keyed hashes of the ledger."""


@dataclass(frozen=True)
class Owner:
    """The row of `table` whose key a row holds in its `column`."""

    table: str
    column: str


@dataclass(frozen=True)
class Shredded:
    """`columns`: table → encrypted columns. `owners`: table → the owner of its rows."""

    columns: Mapping[str, frozenset[str]] = field(default_factory=dict)
    owners: Mapping[str, Owner] = field(default_factory=dict)

    def require_readable_owner(self, table_schema: TableSchema) -> None:
        """Raises ConfigError if the owners of a table's rows can't be read from its events."""
        owner = self.owners.get(table_schema.table)
        if owner is None:
            return
        kinds = {c.name: c.type.kind for c in table_schema.columns}
        if owner.column in kinds and kinds[owner.column] not in _SAME_TEXT:
            raise ConfigError(
                f"table {table_schema.table} shreds columns, and leads to its subject by {owner.column}, a "
                f"{kinds[owner.column].value}",
                "use a whole number, a text or a uuid, or remove shred there: an erasure still removes its rows",
            )


def shredded_of(tables: Mapping[str, TableSettings]) -> Shredded:
    """Returns the shredded columns that the tables' settings declare."""
    shredding = {table: settings for table, settings in tables.items() if settings.shred}
    owners = {}
    for table, settings in shredding.items():
        assert settings.subject is not None, "the configuration refuses shredded columns without a subject"
        for column, parent in (settings.subject.through or {settings.subject.key or "": table}).items():
            owners[table] = Owner(parent, column)
    return Shredded({table: frozenset(settings.shred) for table, settings in shredding.items()}, owners)
