"""The names of tables in queries: `schema.table`, and `pipeline.schema.table` if several pipelines have such a table.
Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ingest.errors import ConfigError
from ingest.names import nearest

SEE_TABLES = "see the tables with SHOW TABLES IN <schema>"
_ABSENT = "TABLE_OR_VIEW_NOT_FOUND"


@dataclass(frozen=True)
class NamedPath:
    """The table at `path`, by its namespace and its name in it."""

    namespace: tuple[str, ...]
    name: str
    path: str

    @property
    def text(self) -> str:
        """Returns the name as a query writes it, without quotes."""
        return ".".join((*self.namespace, self.name))


@dataclass(frozen=True)
class PipelineTable:
    """A pipeline's table: its name at the source, and suffix → path of silver and of its history."""

    pipeline: str
    table: str
    paths: Mapping[str, str]


@dataclass(frozen=True)
class QueryNames:
    """`tables`: by unambiguous names. `several`: an ambiguous name → the unambiguous names of the tables that it may
    mean."""

    tables: tuple[NamedPath, ...]
    several: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def path(self, name: str) -> str | None:
        """Returns the path of the table with this name, quoted or not."""
        plain = name.replace("`", "")
        return next((one.path for one in self.tables if one.text.replace("`", "") == plain), None)

    def absent(self, name: str) -> ConfigError:
        """Returns the error for a `name` that is not among `tables`."""
        if name in self.several:
            return ConfigError(
                f"{name} may be any of {len(self.several[name])} tables",
                f"name the one that is meant: {' or '.join(self.several[name])}",
            )
        known = [one.text for one in self.tables] + list(self.several)
        if name in known:
            return ConfigError(
                f"nothing was ever written to {name} ({_ABSENT})",
                "`system` tables exist after their first entry, row histories with tables: {…: {history: true}}",
            )
        if all(one.namespace == ("system",) for one in self.tables):
            return ConfigError(
                f"there is no table {name} ({_ABSENT}), nor any other: nothing was merged into this lakehouse",
                "see that --lakehouse, or the pipeline's file, names the right folder",
            )
        return ConfigError(f"there is no table {name} ({_ABSENT})", nearest(name, known, SEE_TABLES))


def query_names(
    sources: Iterable[PipelineTable], system_tables: Mapping[str, str], preferred: str | None = None
) -> QueryNames:
    """Returns the names of the tables of all pipelines of a lakehouse. `system_tables`: name → path of the lakehouse's
    own tables. `preferred`: the pipeline whose table a name without a pipeline means, if it has one."""
    sources = list(sources)
    preferred_tables = {one.table for one in sources if one.pipeline == preferred}
    by_text: defaultdict[str, list[NamedPath]] = defaultdict(list)
    qualified: dict[str, str] = {}
    for source in sources:
        schema, _, table = source.table.rpartition(".")
        for suffix, path in source.paths.items():
            spaces = [(source.pipeline, *filter(None, (schema,)))]
            if source.pipeline == preferred or source.table not in preferred_tables:
                spaces.append(tuple(filter(None, (schema,))))
            names = [NamedPath(space, table + suffix, path) for space in spaces]
            qualified[path] = names[0].text
            for one in names:
                by_text[one.text].append(one)
    for name, path in system_tables.items():
        schema, _, table = name.rpartition(".")
        by_text[name].append(NamedPath((schema,), table, path))
    single = tuple(found[0] for found in by_text.values() if len({one.path for one in found}) == 1)
    readable = {one.text for one in single}
    several = {
        text: tuple(sorted(_other_name(one, qualified, readable) for one in found))
        for text, found in by_text.items()
        if text not in readable
    }
    return QueryNames(single, several)


def _other_name(one: NamedPath, qualified: Mapping[str, str], readable: set[str]) -> str:
    name = qualified.get(one.path)
    return name if name in readable and name is not None else f"delta.`{one.path}`"
