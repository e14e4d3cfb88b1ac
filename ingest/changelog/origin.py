"""Origins of tables: the server and database of their changes.

An origin is text, `server/database`: the connector's logical name (its topic prefix) and the database, from
`source.name` and `source.db`. It has no database if that is part of the table's name already (MySQL), and is empty if
an event names no source, or if the pipeline's file names the table of its topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

ORIGIN = "origin"
UNNAMED = ""
Parts = Literal["schema.table", "database.schema.table", "server.schema.table", "server.database.schema.table"]
_SOURCE = "struct<name string, db string, schema string, table string>"


def origin(source: Column) -> Column:
    """Returns the origin of an event. `source`: the envelope's struct, may be null."""
    database = F.when(source["schema"].isNotNull() & source["db"].isNotNull(), F.concat(F.lit("/"), source["db"]))
    parts = (F.coalesce(part, F.lit("")) for part in (source["name"], database))
    return F.when(source["table"].isNotNull(), F.concat(*parts)).otherwise(F.lit(UNNAMED))


def origin_of_value(value: Column) -> Column:
    """Returns the origin from a record's value, for events captured before bronze had the column."""
    text = value.cast("string")
    source = F.coalesce(*(F.get_json_object(text, path) for path in ("$.payload.source", "$.source")))
    return F.coalesce(origin(F.from_json(source, _SOURCE)), F.lit(UNNAMED))


@dataclass(frozen=True)
class TableNaming:
    """The form of table names. `parts`: those that a name consists of. `mapped`: topics whose table the pipeline's file
    names."""

    parts: Parts = "schema.table"
    mapped: frozenset[str] = frozenset()

    @property
    def is_unqualified(self) -> bool:
        """Returns true if names equal those in bronze."""
        return self.parts == "schema.table"

    def qualified(self, table: Column, table_origin: Column) -> Column:
        """Returns a table's name: that in bronze (`table`, `schema.table`), prefixed with parts of the origin `of`."""
        if self.is_unqualified:
            return table
        return F.when(table.isNotNull(), F.concat(self._prefix(table_origin), table))

    def is_named_by(self, table: str, table_origin: str) -> bool:
        """Returns true if the name of `table` begins with the parts of its origin `of`. False for a table that was
        created under another setting of `parts`."""
        return table.startswith(self._prefix_text(table_origin))

    def in_source(self, table: str, table_origin: str) -> str:
        """Returns the name of `table` at its source."""
        return table.removeprefix(self._prefix_text(table_origin))

    def unqualified(self, qualified: Column, table_origin: Column) -> Column:
        """Returns the name in bronze of a table `named` by this form. `of`: its origin."""
        return qualified if self.is_unqualified else F.substr(qualified, F.length(self._prefix(table_origin)) + 1)

    def _prefix_text(self, table_origin: str) -> str:
        server, database = _parts(table_origin)
        before = [{"server": server, "database": database}.get(part) for part in self.parts.split(".")]
        return "".join(f"{name}." for name in before if name)

    def _prefix(self, table_origin: Column) -> Column:
        server = F.substring_index(table_origin, "/", 1)
        database = F.when(F.instr(table_origin, "/") > 0, F.substr(table_origin, F.instr(table_origin, "/") + 1))
        before = {"server": server, "database": database}
        wanted = [F.nullif(before[part], F.lit("")) for part in self.parts.split(".") if part in before]
        return F.concat_ws("", *(F.concat(part, F.lit(".")) for part in wanted))


def origins_differ(one: str, other: str) -> bool:
    """Returns true if two origins name different servers or databases. A part that either lacks is ignored."""
    pairs = zip(_parts(one), _parts(other), strict=True)
    return any(part and other_part and part != other_part for part, other_part in pairs)


def origin_in_words(table_origin: str) -> str:
    """Returns the origin as text for messages, such as "server shop, database orders"."""
    server, database = _parts(table_origin)
    return ", ".join(f"{what} {name}" for what, name in (("server", server), ("database", database)) if name)


def database_of(table_origin: str) -> str:
    """Returns the database of an origin; empty if it has none."""
    return _parts(table_origin)[1]


def _parts(table_origin: str) -> tuple[str, str]:
    server, _, database = table_origin.partition("/")
    return server, database


def former_origin(table_origin: str, names: Mapping[str, str]) -> str:
    """Returns the former name of an origin, or the origin itself. `names`: present name → former name."""
    return names.get(table_origin, table_origin)
