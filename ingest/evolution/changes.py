"""The changes that lead from one definition of a table to the next, from any origin: a message, a catalog, a schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ingest.evolution.definition import RENAME_TABLE, Cause, ColumnDefinition, Definition, Fill, FillKind
from ingest.names import caseless
from ingest.values.types import may_show


@dataclass(frozen=True)
class AddColumn:
    """A new column. `fill`: what rows from before read."""

    kind: ClassVar[str] = "add.column"
    column: str
    fill: Fill

    @property
    def is_unknown(self) -> bool:
        """True if only the source knows what rows from before read."""
        return self.fill.kind is FillKind.UNKNOWN


@dataclass(frozen=True)
class DropColumn:
    """A column that is gone."""

    kind: ClassVar[str] = "drop.column"
    column: str


@dataclass(frozen=True)
class RenameColumn:
    """A column with another name. `column`: the name before."""

    kind: ClassVar[str] = "rename.column"
    column: str
    name: str


@dataclass(frozen=True)
class AlterType:
    """A column with another type. `is_unknown`: only the source knows the values of rows from before, which an
    expression computed."""

    kind: ClassVar[str] = "alter.column.type"
    column: str
    before: ColumnDefinition
    after: ColumnDefinition
    is_unknown: bool = False


@dataclass(frozen=True)
class AlterNullability:
    """A column that became NOT NULL or nullable."""

    kind: ClassVar[str] = "alter.nullability"
    column: str
    optional: bool


@dataclass(frozen=True)
class AlterDefault:
    """A column whose new rows read another default."""

    kind: ClassVar[str] = "alter.default"
    column: str
    default: str | None


@dataclass(frozen=True)
class AlterKey:
    """Another key. `before`, `after`: names of columns; () for none."""

    kind: ClassVar[str] = "alter.key"
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class CreateTable:
    """A new relation of the name."""

    kind: ClassVar[str] = "create.table"
    relation: int | None


@dataclass(frozen=True)
class DropTable:
    """A relation that is gone, with its rows."""

    kind: ClassVar[str] = "drop.table"
    relation: int | None


@dataclass(frozen=True)
class RenameTable:
    """A relation with another name. `former`: its name before, of a name that it got; `name`: the new one, of the name
    that it left. Rows from before stay under the former name."""

    kind: ClassVar[str] = "rename.table"
    former: str | None = None
    name: str | None = None


SchemaChange = (
    AddColumn
    | DropColumn
    | RenameColumn
    | AlterType
    | AlterNullability
    | AlterDefault
    | AlterKey
    | CreateTable
    | DropTable
    | RenameTable
)
"""A change of a table's definition. `kind` is its name in a schema policy."""


@dataclass(frozen=True)
class Hints:
    """Declarations for changes without a message. `renames`: (name before, name after) of columns."""

    renames: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Matching:
    """The columns of two definitions. `same`: pairs that are one column. `gone`, `new`: those of one of them only."""

    same: tuple[tuple[ColumnDefinition, ColumnDefinition], ...]
    gone: tuple[ColumnDefinition, ...]
    new: tuple[ColumnDefinition, ...]


NO_CAUSE = Cause()
NO_HINTS = Hints()


def changes_between(
    before: Definition, after: Definition, hints: Hints = NO_HINTS, cause: Cause = NO_CAUSE
) -> tuple[SchemaChange, ...]:
    """Returns the changes that lead from `before` to `after`, those of columns in the order of the definitions.

    Columns are the same by attribute number where both have one, else by name without regard to case, or by a declared
    rename. Nothing is guessed to be a rename. Another relation under the name is a dropped table, and one that was
    created or got the name."""
    if cause.drops_table:
        return (departure(before, cause),)
    if is_other_relation(before, after):
        return DropTable(before.relation), arrival(after, cause)
    return changes_of(matched(before, after, hints), before, after, cause)


def departure(before: Definition, cause: Cause) -> SchemaChange:
    """Returns the change that leaves a name without a table. `before`: the table's definition."""
    return RenameTable(name=cause.other_name) if cause.tag == RENAME_TABLE else DropTable(before.relation)


def arrival(after: Definition, cause: Cause) -> SchemaChange:
    """Returns the change by which a name has another table."""
    return RenameTable(former=cause.other_name) if cause.other_name else CreateTable(after.relation)


def changes_of(
    matching: Matching, before: Definition, after: Definition, cause: Cause = NO_CAUSE
) -> tuple[SchemaChange, ...]:
    """Returns `changes_between` of two definitions of one relation whose columns are matched already."""
    computed = computed_columns(matching, after, cause)
    return (
        *(DropColumn(column.name) for column in matching.gone),
        *(change for pair in matching.same for change in _altered(*pair, pair[1].name in computed)),
        *(AddColumn(column.name, column.fill) for column in matching.new),
        *_altered_key(before, after, matching),
    )


def is_other_relation(before: Definition, after: Definition) -> bool:
    """Returns True if both definitions tell their relation and it differs."""
    return None not in (before.relation, after.relation) and before.relation != after.relation


def matched(before: Definition, after: Definition, hints: Hints = NO_HINTS) -> Matching:
    """Returns which columns of two definitions of one relation are the same. `gone` is empty if `after` is partial."""
    rest = list(before.columns)
    same: dict[str, ColumnDefinition] = {}
    old_names: dict[str, set[str]] = {}
    for old_name, new_name in hints.renames:
        old_names.setdefault(caseless(new_name), set()).add(caseless(old_name))
    for is_same in (_has_same_number, _has_same_name, _has_equal_name):
        for column in after.columns:
            found = None if column.name in same else next((old for old in rest if is_same(old, column)), None)
            if found is not None:
                same[column.name] = found
                rest.remove(found)
    for column in after.columns:
        names = old_names.get(caseless(column.name), set())
        renamed = (old for old in rest if caseless(old.name) in names and not _has_both_numbers(old, column))
        found = None if column.name in same else next(renamed, None)
        if found is not None:
            same[column.name] = found
            rest.remove(found)
    pairs = tuple((same[column.name], column) for column in after.columns if column.name in same)
    new = tuple(column for column in after.columns if column.name not in same)
    return Matching(pairs, () if after.is_partial else tuple(rest), new)


def has_other_type(before: ColumnDefinition, after: ColumnDefinition) -> bool:
    """Returns True if a column's type at the source changed, as far as both definitions tell it. One that events have
    shown before any message may be another form of the type that the first one tells."""
    if before.source_type and after.source_type:
        return before.source_type != after.source_type
    if before.type is None or after.type is None:
        return False
    is_form = after.source_type != "" and may_show(before.type, after.type)
    return before.type != after.type and not is_form


def computed_columns(matching: Matching, after: Definition, cause: Cause) -> frozenset[str]:
    """Returns the names of the columns whose values from before an expression computed anew.

    Without attribute numbers in `cause` these are the columns with another type; if none has one, all but the key."""
    if not cause.using:
        return frozenset()
    if cause.numbers:
        return frozenset(new.name for _, new in matching.same if new.number in cause.numbers)
    retyped = frozenset(new.name for old, new in matching.same if has_other_type(old, new))
    return retyped or frozenset(new.name for _, new in matching.same if new.name not in (after.key or ()))


def _has_both_numbers(before: ColumnDefinition, after: ColumnDefinition) -> bool:
    return before.number is not None and after.number is not None


def _has_same_number(before: ColumnDefinition, after: ColumnDefinition) -> bool:
    return _has_both_numbers(before, after) and before.number == after.number


def _has_same_name(before: ColumnDefinition, after: ColumnDefinition) -> bool:
    return not _has_both_numbers(before, after) and before.name == after.name


def _has_equal_name(before: ColumnDefinition, after: ColumnDefinition) -> bool:
    return not _has_both_numbers(before, after) and caseless(before.name) == caseless(after.name)


def _altered(before: ColumnDefinition, after: ColumnDefinition, is_computed: bool) -> Iterator[SchemaChange]:
    if before.name != after.name:
        yield RenameColumn(before.name, after.name)
    if is_computed or has_other_type(before, after):
        yield AlterType(after.name, before, after, is_computed)
    # Defaults are compared in one origin's spelling only.
    if _has_both_numbers(before, after) or (before.number is None and after.number is None):
        if before.optional != after.optional:
            yield AlterNullability(after.name, after.optional)
        if before.default != after.default:
            yield AlterDefault(after.name, after.default)


def _altered_key(before: Definition, after: Definition, matching: Matching) -> Iterator[AlterKey]:
    if before.key is None or after.key is None:
        return
    names = {old.name: new.name for old, new in matching.same}
    renamed = {caseless(names.get(name, name)) for name in before.key}
    is_replaced = any(column.name in before.key for column in matching.gone)
    if is_replaced or renamed != {*map(caseless, after.key)}:
        yield AlterKey(before.key, after.key)
