"""The changes of a table's definition, as the source's messages tell them and the schemas of its events show them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql import SparkSession

from ingest.errors import ConfigError
from ingest.evolution.changes import (
    AddColumn,
    AlterDefault,
    AlterKey,
    AlterNullability,
    AlterType,
    CreateTable,
    DropColumn,
    DropTable,
    RenameColumn,
    RenameTable,
    SchemaChange,
)
from ingest.evolution.definition import (
    ColumnDefinition,
    Fill,
    FillKind,
    Origin,
    Place,
    Version,
    unreadable_version,
)
from ingest.evolution.followed import versions_by_name
from ingest.evolution.lives import lives
from ingest.evolution.schema_policy import Outcome, changed_column
from ingest.evolution.type_steps import values_after
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.catalog import Catalog
from ingest.lakehouse.schema_history import RecordedOutcome, SchemaHistory, SchemaOutcomes, ToldVersion
from ingest.names import Lakehouse, nearest
from ingest.values.postgres_cast import Known, is_kept

_UNKNOWN = "read them again: ingest resync PIPELINE TABLE"
_RENAMED = "read its rows from before: ingest resync PIPELINE TABLE"


@dataclass(frozen=True)
class DefinitionChange:
    """A change of a table's definition.

    Attributes:
        at: when the source made it; None if it isn't known.
        kind: `add.column` and the like; `first` for the first known definition, `fault` for a message that tells none.
        text: what changed.
        origin: how it is known.
        remedy: what to do if values of older rows, or the definition, are known to the source only.
        column: the name of the column before the change; empty if it is about the table.
        outcome: what became of the change.
        events: the number of events on which a change had no effect; None if it was not ignored.
    """

    position: Place
    at: datetime | None
    kind: str
    text: str
    origin: str
    remedy: str | None = None
    column: str = ""
    outcome: str = Outcome.APPLIED
    events: int | None = None


def table_changes(spark: SparkSession, pipeline: str, lakehouse: Lakehouse, table: str) -> list[DefinitionChange]:
    """Returns the changes of a table's definition, by position. Raises ConfigError if nothing of it is known."""
    history = SchemaHistory(spark, lakehouse.schemas, pipeline)
    entries = {entry.table_schema.table: entry for entry in Catalog(spark, lakehouse.tables).entries(pipeline)}
    told = history.all_told()
    if table not in told and table not in entries:
        remedy = nearest(table, {*entries, *told}, "see its tables with: ingest status PIPELINE")
        raise ConfigError(f"pipeline {pipeline} knows no definition of table {table}", remedy)
    messages = with_renames(told).get(table, [])
    known = entries[table].versions if table in entries else frozenset[Version]()
    found = definition_changes(messages, [version for version in known if version.origin is not Origin.TOLD])
    outcomes = SchemaOutcomes(spark, lakehouse.schema_outcomes, pipeline).of_table(table)
    waiting = {message.since for message in messages} - {version.since for version in known}
    return with_outcomes(found, outcomes, Accounts(spark, lakehouse.accounts, pipeline).ignored(table), waiting)


def with_outcomes(
    changes: Sequence[DefinitionChange],
    outcomes: Sequence[RecordedOutcome],
    ignored: Mapping[str, int],
    waiting: Collection[Place] = (),
) -> list[DefinitionChange]:
    """Returns the changes with what became of each, and those of which nothing is in the definition, by position.
    `ignored`: change → number of events on which it had no effect. `waiting`: the positions of messages that the table
    has not followed."""
    by_last = sorted(outcomes, key=lambda one: one.outcome is not Outcome.REFUSED)
    recorded = {(one.position, one.kind, one.column): one for one in by_last}
    found = []
    for change in changes:
        one = recorded.pop((change.position, change.kind, change.column), None)
        # A change that was refused once and is in the definition now was allowed since.
        if one is not None and (one.outcome is not Outcome.REFUSED or change.position in waiting):
            found.append(replace(change, outcome=one.outcome, events=_count(one, ignored)))
        else:
            found.append(change)
    for one in recorded.values():
        known_by, count = Origin.SEEN.value, _count(one, ignored)
        found.append(
            DefinitionChange(one.position, None, one.kind, one.text, known_by, None, one.column, one.outcome, count)
        )
    return sorted(found, key=lambda change: change.position)


def _count(one: RecordedOutcome, ignored: Mapping[str, int]) -> int | None:
    return ignored.get(f"{one.kind} {one.column}".rstrip()) if one.outcome is Outcome.IGNORED else None


def with_renames(told: Mapping[str, Sequence[ToldVersion]]) -> dict[str, list[ToldVersion]]:
    """Returns the messages of each table, by position, with renames told under both names (`versions_by_name`)."""
    versions = {name: [one.version for one in messages if one.version] for name, messages in told.items()}
    times = {one.since: one.at for messages in told.values() for one in messages}
    faults = {name: [one for one in messages if one.version is None] for name, messages in told.items()}
    return {
        name: sorted(
            [*faults[name], *(ToldVersion(one.since, times[one.since], one) for one in found)],
            key=lambda message: message.since,
        )
        for name, found in versions_by_name(versions).items()
    }


def definition_changes(messages: Sequence[ToldVersion], seen: Collection[Version] = ()) -> list[DefinitionChange]:
    """Returns the changes that messages about one table tell and its events show, by position. `seen`: the versions
    that events show."""
    times = {message.since: message.at for message in messages}
    told = (message.version or unreadable_version(message.since) for message in messages)
    versions = sorted({*told, *seen}, key=lambda version: version.since)
    found = [
        DefinitionChange(message.since, message.at, "fault", message.fault.problem, "", message.fault.remedy)
        for message in messages
        if message.fault is not None
    ]
    for first in [one for one in versions if not one.cause.is_unreadable][:1]:
        text = f"columns {_columns(first.definition.columns)}; key {_names(first.definition.key or ())}"
        found.append(DefinitionChange(first.since, times.get(first.since), "first", text, first.origin.value))
    for placed in lives(versions).changes:
        at, kind, text = times.get(placed.at), placed.change.kind, change_text(placed.change)
        if isinstance(placed.change, AddColumn | AlterType) and placed.origin not in (Origin.TOLD, Origin.READ):
            text += ", it is assumed"
        remedy, column = _remedy(placed.change), changed_column(placed.change)
        found.append(DefinitionChange(placed.at, at, kind, text, placed.origin.value, remedy, column))
    return sorted(found, key=lambda change: change.position)


def _is_unknown(change: SchemaChange) -> bool:
    """Returns True if the values of some rows from before are known to the source only."""
    if isinstance(change, AlterType):
        return values_after(change.before, change.after, change.is_unknown) is not Known.EVERY
    return isinstance(change, AddColumn) and change.is_unknown


def _remedy(change: SchemaChange) -> str | None:
    """Returns what to do after a change of which silver lacks rows or values."""
    if isinstance(change, RenameTable) and change.former is not None:
        return _RENAMED
    return _UNKNOWN if _is_unknown(change) else None


def change_text(change: SchemaChange) -> str:
    """Returns what a change did, in words."""
    match change:
        case AddColumn(column, fill):
            return f"column {column} added; rows from before read {_fill(fill)}"
        case DropColumn(column):
            return f"column {column} dropped"
        case RenameColumn(column, name):
            return f"column {column} renamed to {name}"
        case AlterType(column, before, after, is_unknown):
            text = f"column {column} was {_type(before)}, is {_type(after)}"
            computed = ", computed by an expression: values from before are known to the source only"
            return text + (computed if is_unknown else _values_from_before(before, after))
        case AlterNullability(column, optional):
            return f"column {column} is {'nullable' if optional else 'NOT NULL'}"
        case AlterDefault(column, default):
            return f"column {column} has {'no default' if default is None else f'the default {default}'} for new rows"
        case AlterKey(before, after):
            return f"key was {_names(before)}, is {_names(after)}"
        case CreateTable():
            return "table created"
        case DropTable():
            return "table dropped; its rows stay until another table has the name"
        case RenameTable(former=None, name=name):
            return f"table renamed to {name}; its rows stay until another table has the name"
        case RenameTable(former=former):
            return f"table renamed from {former}, under which its rows from before stay"


def _values_from_before(before: ColumnDefinition, after: ColumnDefinition) -> str:
    if before.type is None or after.type is None:
        return ""
    values = values_after(before, after)
    return "" if values is Known.EVERY and is_kept(before.type, after.type) else f"; values from before are {values}"


def _fill(fill: Fill) -> str:
    if fill.kind is FillKind.CONSTANT and fill.column is not None:
        return str(fill.column.default)
    return "null" if fill.kind is FillKind.NULL else "what only the source knows"


def _type(column: ColumnDefinition) -> str:
    return column.source_type or str(column.type)


def _columns(columns: Sequence[ColumnDefinition]) -> str:
    return ", ".join(f"{column.name} {_type(column)}" for column in columns)


def _names(names: Sequence[str]) -> str:
    return f"({', '.join(names)})" if names else "none"
