"""Tells before a run what becomes of changes of tables that the newest events of the source show. Needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from ingest.changelog.spelling import Spelling
from ingest.config import Pipeline, TableSettings
from ingest.errors import ChangelogUnusable
from ingest.evolution.changes import AlterType, CreateTable, DropColumn, RenameColumn, SchemaChange, changes_between
from ingest.evolution.definition import ColumnDefinition, Definition
from ingest.evolution.followed import unfollowed
from ingest.evolution.schema_policy import Outcome, outcome_of, summary
from ingest.evolution.seen_definitions import seen_definition, stored_version
from ingest.lakehouse.schema_json import column_from_json, versions_from_json
from ingest.names import caseless
from ingest.pipeline.composition import policy_of
from ingest.sources.newest_events import RecordShape, UnreadableTopic


@dataclass(frozen=True)
class KnownTable:
    """A table of the catalog: the newest definition that its events have shown, with its key, and its columns."""

    definition: Definition
    names: tuple[str, ...]

    def renamed(self, names: Mapping[str, str]) -> KnownTable:
        """Returns the table with other names of columns. `names`: name before → name."""
        columns = tuple(replace(c, name=names.get(c.name, c.name)) for c in self.definition.columns)
        key = tuple(names.get(name, name) for name in self.definition.key or ())
        definition = replace(self.definition, columns=columns, key=key)
        return KnownTable(definition, tuple(names.get(name, name) for name in self.names))


@dataclass(frozen=True)
class PendingChange:
    """A change that the newest events of a table show and that is not merged yet.

    `outcome`: what becomes of it by the schema policy. `depends`: what in the pipeline's file names the column that
    goes or changes."""

    table: str
    kind: str
    change: str
    outcome: Outcome
    depends: tuple[str, ...] = ()


def known_tables(path: str, pipeline: str) -> dict[str, KnownTable]:
    """Returns the tables of a pipeline in the catalog at `path`, a local folder. Raises ChangelogUnusable if it can't
    be read."""
    try:
        if not DeltaTable.is_deltatable(path):
            return {}
        # A row for each change of a table's columns.
        found = QueryBuilder().register("found", DeltaTable(path)).execute("SELECT * FROM found").read_all()
    except (DeltaError, OSError) as error:
        raise ChangelogUnusable(
            f"the catalog at {path} can't be read ({type(error).__name__})",
            "check the folder's permissions and that no file of it is damaged",
        ) from None
    rows = [row for row in pa.table(found).to_pylist() if row["pipeline"] == pipeline]
    newest = {row["table"]: row for row in sorted(rows, key=lambda row: int(row["revision"]))}
    texts = {table: [row.get("versions") for row in rows if row["table"] == table] for table in newest}
    return {table: _known(row, texts[table]) for table, row in newest.items()}


def _known(row: Mapping[str, object], texts: Sequence[str | None]) -> KnownTable:
    columns = [column_from_json(fields) for fields in json.loads(str(row["columns"]))]
    versions = versions_from_json(texts) or {stored_version(columns)}
    definition = max(versions, key=lambda version: version.since).definition
    key = row["primary_key"]
    assert isinstance(key, list)
    return KnownTable(replace(definition, key=tuple(key)), tuple(column.name for column in columns))


def pending_changes(
    pipeline: Pipeline, shapes: Sequence[RecordShape | UnreadableTopic], known: Mapping[str, KnownTable]
) -> list[PendingChange]:
    """Returns the changes from the known definitions to those of the newest events, by table. Tables that the catalog
    doesn't have are named only if they are not created."""
    found: list[PendingChange] = []
    for shape in shapes:
        if not isinstance(shape, RecordShape):
            continue
        settings = pipeline.tables.get(shape.table, TableSettings())
        policy = policy_of(pipeline.schema_settings.of_table(settings.schema_settings))
        table = known.get(shape.table)
        if table is None:
            if not policy.creates_tables:
                found.append(PendingChange(shape.table, CreateTable.kind, CreateTable.kind, Outcome.IGNORED))
            continue
        key = table.definition.key or ()
        names = settings.names if policy.follows_renames else settings.rename
        spelling = Spelling(pipeline.source.case_insensitive, tuple(sorted(names.items())))
        renames = _declared_renames(table, settings, spelling) if policy.follows_renames else {}
        # A column of the key is renamed by a rebuild only.
        pairs: list[tuple[SchemaChange, Outcome]] = [
            (RenameColumn(old, new), Outcome.REFUSED if old in key else Outcome.APPLIED) for old, new in renames.items()
        ]
        changes = _changes(shape, table.renamed(renames), settings, spelling)
        pairs += [(change, outcome_of(change, policy, key)) for change in changes]
        for change, outcome in pairs:
            depends = tuple(_dependents(change, settings, key))
            found.append(PendingChange(shape.table, change.kind, summary(change), outcome, depends))
    return sorted(found, key=lambda change: change.table)


def unfollowed_tables(pipeline: Pipeline) -> dict[str, str]:
    """Returns table → a sentence, of each table on which messages of the source have no effect: it goes by the renames
    that the pipeline's file declares."""
    policies = {
        table: policy_of(pipeline.schema_settings.of_table(settings.schema_settings))
        for table, settings in pipeline.tables.items()
        if settings.renames
    }
    return {table: unfollowed(table) for table, policy in sorted(policies.items()) if policy.follows_renames}


def _declared_renames(table: KnownTable, settings: TableSettings, spelling: Spelling) -> dict[str, str]:
    """Returns column of the table → name that it gets because the pipeline's file declares so."""
    known = {caseless(name) for name in table.names}
    names = {old: spelling.new_name(old) for old in settings.renames if old in table.names}
    return {old: new for old, new in names.items() if caseless(new) not in known}


def _changes(
    shape: RecordShape, table: KnownTable, settings: TableSettings, spelling: Spelling
) -> tuple[SchemaChange, ...]:
    before = table.definition
    if shape.fields:
        names = spelling.table_names([column.name for column in shape.fields], table.names)
        after = seen_definition(shape.fields, names)
    else:
        names = spelling.table_names(shape.columns, table.names)
        after = Definition(tuple(ColumnDefinition(names[name], None) for name in shape.columns), is_partial=True)
        before = replace(before, columns=tuple(ColumnDefinition(name, None) for name in table.names))
    # Values of these are encrypted, as text.
    sealed = {caseless(name) for name in settings.shred}
    types = {column.name: column.type for column in before.columns}
    columns = (replace(c, type=types.get(c.name)) if caseless(c.name) in sealed else c for c in after.columns)
    carried = tuple(spelling.table_names(shape.key, table.names).values())
    is_part = not shape.fields and {*carried} < {*(before.key or ())}
    is_declared = settings.primary_key is not None or settings.append_only
    key = None if is_declared or is_part or not carried else carried
    return changes_between(before, replace(after, columns=tuple(columns), key=key))


def _dependents(change: SchemaChange, settings: TableSettings, key: Sequence[str]) -> Iterator[str]:
    """Yields what depends on the column that a change drops, renames or gives another type."""
    if not isinstance(change, DropColumn | RenameColumn | AlterType):
        return
    spelling = Spelling(renamed=tuple(settings.names.items()))
    column = caseless(change.column)
    if column in {caseless(name) for name in key}:
        yield "the table's key"
    settings_of_columns: dict[str, Collection[str]] = {
        "primary_key": settings.primary_key or (),
        "sequence": [settings.sequence] if settings.sequence else (),
        "columns": settings.columns,
        "rename": settings.rename,
        "subject, personal, shred or on_erasure": settings.erasure_columns,
    }
    for where, names in settings_of_columns.items():
        if column in {caseless(form) for name in names for form in (name, spelling.new_name(name))}:
            yield where
