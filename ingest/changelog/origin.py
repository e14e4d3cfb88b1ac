"""The origin of a table: the server and the database that its changes come from.

An origin is text, `server/database`: the connector's logical name (its topic prefix) and the database, as `source.name`
and `source.db` give them. The database is left out where it is part of the table's name already (MySQL). It is empty
where an event names no source, or the pipeline's file names the table of its topic.
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
    """The origin of an event out of its envelope's `source`, which may be null."""
    database = F.when(source["schema"].isNotNull() & source["db"].isNotNull(), F.concat(F.lit("/"), source["db"]))
    parts = (F.coalesce(part, F.lit("")) for part in (source["name"], database))
    return F.when(source["table"].isNotNull(), F.concat(*parts)).otherwise(F.lit(UNNAMED))


def origin_of_value(value: Column) -> Column:
    """The same out of a record's value, for events that were captured before origins were kept."""
    text = value.cast("string")
    said = F.coalesce(*(F.get_json_object(text, path) for path in ("$.payload.source", "$.source")))
    return F.coalesce(origin(F.from_json(said, _SOURCE)), F.lit(UNNAMED))


@dataclass(frozen=True)
class TableNames:
    """The parts of a table's name, and the topics whose table the pipeline's file names."""

    parts: Parts = "schema.table"
    mapped: frozenset[str] = frozenset()

    @property
    def are_plain(self) -> bool:
        """Whether names are as bronze keeps them."""
        return self.parts == "schema.table"

    def named(self, table: Column, of: Column) -> Column:
        """The name of a table: `schema.table`, which bronze keeps, with the parts of its origin before it."""
        if self.are_plain:
            return table
        return F.when(table.isNotNull(), F.concat(self._prefix(of), table))

    def are_of(self, table: str, of: str) -> bool:
        """Whether a table has such a name: one that was made under another setting has not."""
        server, database = _parts(of)
        before = [{"server": server, "database": database}.get(part) for part in self.parts.split(".")]
        return table.startswith("".join(f"{name}." for name in before if name))

    def plain(self, named: Column, of: Column) -> Column:
        """The name that bronze keeps."""
        return named if self.are_plain else F.substr(named, F.length(self._prefix(of)) + 1)

    def _prefix(self, of: Column) -> Column:
        server = F.substring_index(of, "/", 1)
        database = F.when(F.instr(of, "/") > 0, F.substr(of, F.instr(of, "/") + 1))
        before = {"server": server, "database": database}
        wanted = [F.nullif(before[part], F.lit("")) for part in self.parts.split(".") if part in before]
        return F.concat_ws("", *(F.concat(part, F.lit(".")) for part in wanted))


def differ(one: str, other: str) -> bool:
    """Whether two origins are of different servers or databases. What one of them doesn't name makes no difference."""
    pairs = zip(_parts(one), _parts(other), strict=True)
    return any(mine and others and mine != others for mine, others in pairs)


def in_words(of: str) -> str:
    server, database = _parts(of)
    return ", ".join(f"{what} {name}" for what, name in (("server", server), ("database", database)) if name)


def _parts(of: str) -> tuple[str, str]:
    server, _, database = of.partition("/")
    return server, database


def renamed(of: str, names: Mapping[str, str]) -> str:
    """An origin under the name that it had before; `names`: name now → name before."""
    return names.get(of, of)
