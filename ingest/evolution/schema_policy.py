"""Decides by a schema policy what becomes of each change of a table's definition."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ingest.evolution.changes import (
    NO_HINTS,
    AddColumn,
    AlterDefault,
    AlterKey,
    AlterNullability,
    AlterType,
    CreateTable,
    DropColumn,
    DropTable,
    Hints,
    RenameColumn,
    RenameTable,
    SchemaChange,
    arrival,
    changes_between,
    has_other_type,
)
from ingest.evolution.definition import NULL, ColumnDefinition, Place, Version
from ingest.evolution.policies import TableColumn
from ingest.evolution.timeline import combined
from ingest.evolution.type_steps import values_after
from ingest.names import caseless
from ingest.values.postgres_cast import Known
from ingest.values.types import INFERRED_NUMBERS, Kind, widest

TRUNCATE_TABLE = "truncate.table"
"""The kind of a truncate, which is an event and no change of a definition."""
KINDS = (
    AddColumn.kind,
    DropColumn.kind,
    RenameColumn.kind,
    AlterType.kind,
    AlterNullability.kind,
    AlterDefault.kind,
    AlterKey.kind,
    CreateTable.kind,
    DropTable.kind,
    RenameTable.kind,
    TRUNCATE_TABLE,
)
"""The kinds of changes that a policy can include or exclude."""


class OnChange(StrEnum):
    """What becomes of a change: it is applied; applied unless it loses anything; without effect; or refused."""

    EVOLVE = "evolve"
    LENIENT = "lenient"
    IGNORE = "ignore"
    FAIL = "fail"


class Outcome(StrEnum):
    """What became of a change."""

    APPLIED = "applied"
    KEPT = "kept beside"
    IGNORED = "ignored and counted"
    REFUSED = "refused"


@dataclass(frozen=True)
class SchemaPolicy:
    """The policy of a table. `include`: the only kinds of changes that are admitted; None for all. `exclude`: kinds
    that are not, even if they are included. A kind that is not admitted is ignored."""

    on_change: OnChange = OnChange.EVOLVE
    include: frozenset[str] | None = None
    exclude: frozenset[str] = frozenset()

    def mode(self, kind: str) -> OnChange:
        """Returns what becomes of changes of a kind."""
        is_admitted = (self.include is None or kind in self.include) and kind not in self.exclude
        return self.on_change if is_admitted else OnChange.IGNORE

    def takes(self, kind: str) -> bool:
        """Returns True if changes of a kind are made in the table, at least where no value is lost."""
        return self.mode(kind) in (OnChange.EVOLVE, OnChange.LENIENT)

    @property
    def applies_all(self) -> bool:
        """True if every change is applied."""
        return all(self.mode(kind) is OnChange.EVOLVE for kind in KINDS)

    @property
    def ignores_new_columns(self) -> bool:
        """True if values of new columns are not stored."""
        return self.mode(AddColumn.kind) is OnChange.IGNORE

    @property
    def keeps_dropped(self) -> bool:
        """True if a column that the source has dropped goes on, so that one of its name that is added later is the
        same."""
        return self.mode(DropColumn.kind) in (OnChange.LENIENT, OnChange.IGNORE)

    @property
    def follows_renames(self) -> bool:
        """True if a renamed column keeps its values under its new name."""
        return self.mode(RenameColumn.kind) not in (OnChange.LENIENT, OnChange.IGNORE)

    @property
    def creates_tables(self) -> bool:
        """True if a table that the lakehouse doesn't have yet is created. It is, unless that kind is not admitted."""
        is_included = self.include is None or CreateTable.kind in self.include
        return is_included and CreateTable.kind not in self.exclude

    @property
    def on_truncate(self) -> Outcome:
        """What becomes of a truncate: without effect unless all changes are applied, so that nothing is lost."""
        match self.mode(TRUNCATE_TABLE):
            case OnChange.EVOLVE:
                return Outcome.APPLIED
            case OnChange.FAIL:
                return Outcome.REFUSED
            case _:
                return Outcome.IGNORED


EVOLVE = SchemaPolicy()


def outcome_of(change: SchemaChange, policy: SchemaPolicy, key: Sequence[str]) -> Outcome:
    """Returns what becomes of a change. `key`: the names of the table's key columns; empty if it has none.

    A change that would be ignored is refused if the rows would be wrong without it. Names that differ in case only are
    one for a table, so such a rename is applied whatever the policy is."""
    if isinstance(change, RenameColumn) and caseless(change.column) == caseless(change.name):
        return Outcome.APPLIED
    match policy.mode(change.kind):
        case OnChange.EVOLVE:
            return Outcome.APPLIED
        case OnChange.FAIL:
            return Outcome.REFUSED
        case OnChange.LENIENT:
            return _lenient(change, key)
        case OnChange.IGNORE:
            return _ignored(change, key)


def _lenient(change: SchemaChange, key: Sequence[str]) -> Outcome:
    match change:
        case DropColumn():
            # Rows without a key are matched by the columns that the source has.
            return Outcome.KEPT if key else Outcome.REFUSED
        case RenameColumn(column):
            return Outcome.APPLIED if not key or _is_among(column, key) else Outcome.KEPT
        case AlterType():
            return Outcome.APPLIED if _keeps_values(change) else Outcome.REFUSED
        case DropTable() | RenameTable():
            return Outcome.KEPT
        case _:
            return Outcome.APPLIED


def _ignored(change: SchemaChange, key: Sequence[str]) -> Outcome:
    match change:
        case AddColumn(column):
            is_wrong = _is_among(column, key)
        case DropColumn():
            is_wrong = not key
        case RenameColumn(column):
            is_wrong = not key or _is_among(column, key)
        case AlterType():
            is_wrong = not _fits(change)
        case AlterKey():
            is_wrong = True
        case _:
            is_wrong = False
    return Outcome.REFUSED if is_wrong else Outcome.IGNORED


def _is_among(column: str, key: Sequence[str]) -> bool:
    return caseless(column) in {caseless(name) for name in key}


def _keeps_values(change: AlterType) -> bool:
    """Returns True if all values from before are known in the new type."""
    return values_after(change.before, change.after, change.is_unknown) is Known.EVERY


def _fits(change: AlterType) -> bool:
    """Returns True if the column holds values of the new type as it is."""
    before, after = change.before.type, change.after.type
    return before is None or after is None or widest(before, after) == before


@dataclass(frozen=True)
class Decision:
    """What became of a change. `at`: the position from which events show it."""

    at: Place
    change: SchemaChange
    outcome: Outcome


@dataclass(frozen=True)
class Accepted:
    """Changes of a table that were decided before: its columns, the known versions of its definition, and its keys."""

    columns: tuple[TableColumn, ...] = ()
    versions: frozenset[Version] = frozenset()
    keys: tuple[tuple[str, ...], ...] = ()


def decisions(
    known: Collection[Version],
    shown: Collection[Version],
    policy: SchemaPolicy,
    key: Sequence[str],
    hints: Hints = NO_HINTS,
) -> tuple[Decision, ...]:
    """Returns what becomes of the changes that `shown` adds to the `known` versions, by position. The lowest version of
    all is the table as it was created, and no change. A dropped column that goes on is not new when its name is added
    again, but may get another type. `key`: the names of the table's key columns."""
    found: list[Decision] = []
    decided = {version.since for version in known}
    before: Version | None = None
    held: dict[str, ColumnDefinition] = {}
    for version in combined({*known, *shown}):
        whole = replace(version, definition=replace(version.definition, is_partial=False))
        columns = {caseless(column.name): column for column in version.definition.columns}
        if before is not None and version.since not in decided:
            changes: Iterable[SchemaChange] = _changes(before, whole, hints)
            if policy.keeps_dropped:
                changes = (one for change in changes for one in _of_kept(change, held, columns))
            found += [Decision(version.since, change, outcome_of(change, policy, key)) for change in changes]
        held |= columns
        before = whole
    return tuple(found)


def _of_kept(
    change: SchemaChange, held: Mapping[str, ColumnDefinition], columns: Mapping[str, ColumnDefinition]
) -> Iterator[SchemaChange]:
    """Yields the change; in place of a new column whose name the table holds, the change of its type, if any."""
    name = caseless(changed_column(change))
    if not isinstance(change, AddColumn) or name not in held:
        yield change
    elif has_other_type(held[name], columns[name]):
        yield AlterType(columns[name].name, held[name], columns[name])


def _changes(before: Version, after: Version, hints: Hints) -> tuple[SchemaChange, ...]:
    if before.cause.drops_table:
        return () if after.cause.drops_table else (arrival(after.definition, after.cause),)
    return changes_between(before.definition, after.definition, hints, after.cause)


def column_changes(before: Sequence[TableColumn], after: Sequence[TableColumn]) -> tuple[SchemaChange, ...]:
    """Returns the changes between the columns of a table, for events without a schema.

    An inferred type follows from the values so far: null, or another form of number, shows no change of the source."""
    old = {caseless(column.name): column for column in before}
    found: list[SchemaChange] = []
    for column in after:
        same = old.get(caseless(column.name))
        if same is None:
            found.append(AddColumn(column.name, NULL))
        elif same.type != column.type and not _is_same_inferred(same, column):
            pair = ColumnDefinition(same.name, same.type), ColumnDefinition(column.name, column.type)
            found.append(AlterType(column.name, *pair))
    return tuple(found)


def _is_same_inferred(before: TableColumn, after: TableColumn) -> bool:
    if not before.inferred or before.type.kind is Kind.UNKNOWN:
        return before.inferred
    if before.type.kind is after.type.kind is Kind.ARRAY:
        elements = zip((before, after), (before.type.elements[0], after.type.elements[0]), strict=True)
        return _is_same_inferred(*(replace(column, type=element) for column, element in elements))
    return before.type.kind in INFERRED_NUMBERS and after.type.kind in INFERRED_NUMBERS


def changed_column(change: SchemaChange) -> str:
    """Returns the name of the column that a change is about, before the change; empty if it is about the table."""
    return getattr(change, "column", "")


def summary(change: SchemaChange) -> str:
    """Returns a change in a few words, without defaults."""
    match change:
        case RenameColumn(column, name):
            return f"{change.kind} {column} to {name}"
        case AlterType(column, before, after):
            return f"{change.kind} {column} from {_type(before)} to {_type(after)}"
        case AlterNullability(column, optional):
            return f"{change.kind} {column} to {'nullable' if optional else 'NOT NULL'}"
        case AlterKey(before, after):
            return f"{change.kind} from ({', '.join(before)}) to ({', '.join(after)})"
        case RenameTable(former, name):
            return f"{change.kind} {f'to {name}' if former is None else f'from {former}'}"
        case _:
            return f"{change.kind} {changed_column(change)}".rstrip()


def _type(column: ColumnDefinition) -> str:
    return column.source_type or str(column.type)
