"""Alters a table as a message tells, as far as its schema policy applies it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from zlib import crc32

from ingest.evolution.changes import (
    AddColumn,
    AlterDefault,
    AlterKey,
    AlterNullability,
    AlterType,
    DropColumn,
    Matching,
    RenameColumn,
    SchemaChange,
    changes_of,
    has_other_type,
)
from ingest.evolution.ddl_version import BASELINE
from ingest.evolution.definition import NULL, ColumnDefinition, Definition, Version
from ingest.evolution.schema_policy import OnChange, Outcome, changed_column
from ingest.evolution.told.taken_table import TakenTable
from ingest.names import caseless


class Alteration:
    """A version that alters the table of the one before it."""

    def __init__(self, table: TakenTable, version: Version, before: Definition, matching: Matching) -> None:
        """`before`: the definition that the source had. `matching`: its columns and those of the version."""
        self._table = table
        self._version = version
        self._before = before
        self._matching = matching
        self._partners = {new.name: old for old, new in matching.same}
        self._outcomes: dict[tuple[str, str], Outcome] = {}
        self._followed: dict[str, str] = {}

    def taken(self) -> Version:
        """Returns the version that the table takes, which is its last one from here on."""
        self._decide()
        columns: dict[str, ColumnDefinition] = {}
        names: dict[str, str] = {}
        gone_on = {*self._followed.values()}
        for column in self._version.definition.columns:
            held = self._held(column)
            if held is not None:
                found = self._gone_on(self._table.columns[held], column)
                gone_on.add(held)
            elif self._is_taken(column):
                fill = NULL if column.name in self._partners else column.fill
                found = replace(column, number=self._number(column), fill=fill)
            else:
                continue
            columns[caseless(found.name)] = found
            names[column.name] = found.name
        return self._version_of(columns, names, self._kept(gone_on, columns))

    def _decide(self) -> None:
        """Decides on all changes of columns that the table has, and on new ones."""
        changes = changes_of(self._matching, self._before, self._version.definition, self._version.cause)
        for change in changes:
            if isinstance(change, RenameColumn) and caseless(change.column) in self._table.columns:
                self._settle(change)
        for old, new in self._matching.same:
            is_same = caseless(old.name) == caseless(new.name) or self._applies(RenameColumn.kind, old.name)
            if is_same and caseless(old.name) in self._table.columns:
                self._followed[new.name] = caseless(old.name)
        for change in changes:
            if self._is_open(change):
                self._settle(change)

    def _is_open(self, change: SchemaChange) -> bool:
        """Returns True if a change, which is no rename, has to be decided."""
        match change:
            case AddColumn(column):
                return not self._is_kept(column) and not self._is_first_told()
            case DropColumn(column):
                return caseless(column) in self._table.columns
            case AlterType(column):
                return column in self._followed and not self._is_first_told()
            case AlterNullability(column) | AlterDefault(column):
                return column in self._followed
            case AlterKey():
                key = self._table.table.key
                return not self._table.table.is_key_declared and (not key or {*key} != {*change.after})
        return False

    def _settle(self, change: SchemaChange) -> Outcome:
        outcome = self._table.outcome(self._version.since, change, self._key())
        self._outcomes[change.kind, changed_column(change)] = outcome
        return outcome

    def _key(self) -> tuple[str, ...]:
        """Returns the names of key columns, before and after the version; () if rows have no key before."""
        table = self._table.table
        key = table.key if table.is_key_declared else self._before.key or table.key
        return (*key, *(self._version.definition.key or ())) if key and not table.is_key_declared else key

    def _is_first_told(self) -> bool:
        """Returns True if the version is the first one, and tells what was so before: types in another form than events
        show them, and columns that these may lack."""
        return self._table.source is None and self._version.cause.tag == BASELINE

    def _applies(self, kind: str, column: str) -> bool:
        return self._outcomes.get((kind, column)) is Outcome.APPLIED

    def _is_kept(self, name: str) -> bool:
        """Returns True if the table has a column of a name that none of its columns goes on from."""
        return caseless(name) in self._table.columns and caseless(name) not in self._followed.values()

    def _held(self, column: ColumnDefinition) -> str | None:
        """Returns the `caseless` name of the table's column that goes on as `column`; None if it is a new one."""
        followed = self._followed.get(column.name)
        return caseless(column.name) if followed is None and self._is_kept(column.name) else followed

    def _is_taken(self, column: ColumnDefinition) -> bool:
        """Returns True if a column is new in the table, and its policy takes it."""
        old = self._partners.get(column.name)
        if old is None and not self._is_first_told():
            return self._applies(AddColumn.kind, column.name)
        is_other = old is None or caseless(old.name) != caseless(column.name)
        return is_other and self._table.policy.takes(AddColumn.kind)

    def _gone_on(self, held: ColumnDefinition, column: ColumnDefinition) -> ColumnDefinition:
        """Returns a column of the table after the version."""
        old = self._partners.get(column.name)
        is_renamed = old is not None and self._applies(RenameColumn.kind, old.name)
        is_told = held.number is None  # Events alone have shown it.
        type_change = AlterType.kind, column.name
        is_joined = column.name not in self._followed
        if is_joined and has_other_type(held, column) and not self._is_first_told():
            self._settle(AlterType(column.name, held, column))
        is_retyped = self._applies(*type_change)
        is_retyped |= type_change not in self._outcomes and (held.type is None or held.source_type == "")
        return replace(
            column,
            name=column.name if is_renamed else held.name,
            number=self._number(column) if is_told else held.number,
            type=column.type if is_retyped else held.type,
            source_type=column.source_type if is_retyped or is_told else held.source_type,
            optional=column.optional if is_told or self._applies(AlterNullability.kind, column.name) else held.optional,
            default=column.default if is_told or self._applies(AlterDefault.kind, column.name) else held.default,
        )

    def _number(self, column: ColumnDefinition) -> int | None:
        """Returns the number of a column that is new in the table: that of the source, unless it is another one's."""
        if column.number is None or column.number not in self._table.numbers:
            return column.number
        relation = self._version.definition.relation
        return -1 - crc32(f"{relation}/{column.number}/{caseless(column.name)}".encode())

    def _kept(self, gone_on: Collection[str], columns: Mapping[str, ColumnDefinition]) -> dict[str, ColumnDefinition]:
        """Returns the columns that the source has no more and the table keeps. Refuses a version by which another
        column would get the name of one."""
        if self._table.policy.mode(DropColumn.kind) is OnChange.EVOLVE:
            return {}
        dropped = {caseless(one.name) for one in self._matching.gone if self._applies(DropColumn.kind, one.name)}
        found = {n: one for n, one in self._table.columns.items() if n not in gone_on and n not in dropped}
        for name in sorted(found.keys() & columns.keys()):
            self._table.refuse(self._version.since, DropColumn(found[name].name))
        return found

    def _version_of(
        self, columns: Mapping[str, ColumnDefinition], names: Mapping[str, str], kept: Mapping[str, ColumnDefinition]
    ) -> Version:
        source, cause, table = self._version.definition, self._version.cause, self._table
        key = None if source.key is None else tuple(names.get(name, name) for name in source.key)
        relation = source.relation if table.relation is None else table.relation
        definition = Definition(tuple(columns.values()), key, relation, is_partial=bool(kept))
        table.take(source, definition, kept)
        if any(kind == AlterType.kind and one is Outcome.IGNORED for (kind, _), one in self._outcomes.items()):
            cause = replace(cause, using=False, numbers=())
        taken = {c.number: columns[caseless(names[c.name])].number for c in source.columns if c.name in names}
        numbers = tuple(number for one in cause.numbers if (number := taken.get(one)) is not None)
        return replace(self._version, definition=definition, cause=replace(cause, numbers=numbers))
