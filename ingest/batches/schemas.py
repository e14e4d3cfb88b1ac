"""The columns of each schema that the changelog carries, fetched once per schema from one of its events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.documents import require_rows_declared
from ingest.batches.group_stats import Coordinates, Group, stands_at
from ingest.batches.limits import require_flat, require_within, too_deep
from ingest.changelog.connect_schema import columns_of, declared_column
from ingest.errors import ChangelogUnusable
from ingest.evolution.inferred.inference import inferred_columns
from ingest.names import caseless
from ingest.values.columns import Column, Encoding, WireType
from ingest.values.types import Kind, LogicalType, OutOfRange


class Schemas:
    """The schemas known to this process; each is parsed once."""

    def __init__(
        self,
        sealed: Mapping[str, frozenset[str]] | None = None,
        times: OutOfRange = OutOfRange.CLAMP,
        as_stored: bool = False,
        nesting_depth: int = 64,
    ) -> None:
        """`sealed`: table → columns whose values are encrypted, whatever the schema says of them. `times`: what becomes
        of times out of range. `as_stored`: declared types are those that the tables have.
        `nesting_depth`: the most levels of a column's type."""
        self._as_stored = as_stored
        self._sealed = sealed or {}
        self._times = times
        self._nesting_depth = nesting_depth
        self._known: dict[int, tuple[Column, ...]] = {}
        self._refused: dict[int, ChangelogUnusable] = {}

    def learn(self, events: DataFrame, groups: Sequence[Group]) -> None:
        """Fetches the schemas of these groups that aren't known yet."""
        self.fetch(events, {g.schema_id: g.first for g in groups if g.schema_id is not None})

    def fetch(self, events: DataFrame, examples: Mapping[int, Coordinates]) -> None:
        """Fetches the schemas that aren't known yet. `examples`: schema_id → the coordinates of an event with it."""
        known = self._known.keys() | self._refused.keys()
        new = {schema_id: event for schema_id, event in examples.items() if schema_id not in known}
        if not new:
            return
        text = F.get_json_object(F.col("value").cast("string"), "$.schema")
        found = events.where(stands_at(list(new.values()))).select("schema_id", text.alias("text")).collect()
        for row in found:  # a row per new schema
            try:
                self._known[row.schema_id] = self._columns_of(row.text)
            except ChangelogUnusable as error:
                # Raised where the table is merged, so that it stops no other one.
                self._refused[row.schema_id] = error

    def _columns_of(self, text: str) -> tuple[Column, ...]:
        try:
            found = _image_columns(json.loads(text))
            require_flat(found, self._nesting_depth)
        except RecursionError:
            require_within(too_deep("a schema has", self._nesting_depth))
            raise
        return self._timed(found)

    def columns(self, group: Group, declared_types: Mapping[str, str]) -> tuple[Column, ...]:
        """Returns the columns of a group's images: by its schema, else inferred from its values; there a declared type
        wins.

        Raises ChangelogUnusable where the schema describes no rows, TableUnusable where images are documents."""
        if group.schema_id in self._refused:
            raise self._refused[group.schema_id]
        if group.schema_id is not None and (known := self.of_schema(group.schema_id, group.table or "")):
            return known
        sealed = self._sealed_names(group.table or "")
        kinds = {caseless(name): kind for name, kind in declared_types.items()}
        found = inferred_columns(group.kinds)
        declared_columns = {
            c.name: declared_column(c.name, kinds[caseless(c.name)]) for c in found if caseless(c.name) in kinds
        }
        declared_columns = {
            c.name: replace(c, as_stored=self._as_stored) for c in self._timed([*declared_columns.values()])
        }
        return tuple(
            _sealed(c, declared_columns.get(c.name)) if caseless(c.name) in sealed else declared_columns.get(c.name, c)
            for c in found
        )

    def of_schema(self, schema_id: int, table: str) -> tuple[Column, ...]:
        """Returns the columns of a table's images with a schema that is known; empty if it describes no rows."""
        known, sealed = self._known.get(schema_id, ()), self._sealed_names(table)
        return tuple(_sealed(c, c) if caseless(c.name) in sealed else c for c in known) if sealed else known

    def _sealed_names(self, table: str) -> set[str]:
        return {caseless(name) for name in self._sealed.get(table, ())}

    def _timed(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        return tuple(replace(c, wire=c.wire.with_out_of_range(self._times)) for c in columns)


def _sealed(column: Column, known: Column | None) -> Column:
    """Returns the column as it arrives, encrypted as text. `known`: the column as its schema or its declaration has
    it."""
    original = None if known is None else Column(known.name, known.wire, known.type)
    return Column(column.name, WireType(Encoding.TEXT), LogicalType(Kind.STRING), column.optional, sealed=original)


def _image_columns(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    for image in ("after", "before"):
        for member in schema.get("fields", ()):
            if member.get("field") == image:
                require_rows_declared(member)
                return columns_of(member)
    return ()
