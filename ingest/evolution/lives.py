"""Folds the versions of a table's definition into the lives of its columns and keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ingest.evolution.changes import (
    NO_HINTS,
    Hints,
    Matching,
    SchemaChange,
    arrival,
    changes_between,
    changes_of,
    computed_columns,
    is_other_relation,
    matched,
)
from ingest.evolution.definition import (
    NULL,
    ColumnDefinition,
    Definition,
    Fill,
    FillKind,
    Origin,
    Place,
    Version,
)
from ingest.evolution.life import KeyEra, Life, Lives, NameStep, PlacedChange, TypeStep
from ingest.evolution.timeline import combined
from ingest.evolution.type_steps import with_step
from ingest.names import caseless

_EXACT = (Origin.TOLD, Origin.READ)
_NEVER: Place = ()


def lives(versions: Collection[Version], hints: Hints = NO_HINTS) -> Lives:
    """Returns the lives that a set of versions tells, in whatever order they arrived.

    A column of the lowest version has no begin: nothing tells of a time without it. Versions without a message must
    hold the first and the last position of each run of events with one definition; then a life's bounds are exact up to
    the events that there are."""
    fold = _Fold(hints)
    for version in combined(versions):
        fold.add(version)
    return fold.result()


@dataclass
class _OpenLife:
    """A life as far as the fold has come.

    `told_fill`: what the source's own catalog shows for rows from before, in the lowest version that does, if the life
    began with an assumed value. A message tells a constant only."""

    definition: ColumnDefinition
    begin: Place | None
    fill: Fill
    origin: Origin
    types: tuple[TypeStep, ...]
    names: list[NameStep]
    end: Place | None = None
    told_fill: Fill | None = None

    def closed(self) -> Life:
        fill = NULL if self.begin is None else self.told_fill or self.fill
        number, name = self.definition.number, self.definition.name
        return Life(name, number, self.begin, self.end, fill, self.types, tuple(self.names), self.origin)


@dataclass
class _Era:
    lives: tuple[_OpenLife, ...]
    begin: Place | None
    origin: Origin


@dataclass
class _Fold:
    """The fold of versions in the order of their positions.

    `added`: the version that was added last. `before`: the same with what else is known by then. `open_lives`: those of
    the columns that exist, by name. `gone_since`: the end of the last relation, until there is another one.
    `replaced_at`: the version that told of the present relation, if it isn't the first one."""

    hints: Hints
    added: Version | None = None
    before: Version | None = None
    open_lives: dict[str, _OpenLife] = field(default_factory=dict)
    all_lives: list[_OpenLife] = field(default_factory=list)
    eras: list[_Era] = field(default_factory=list)
    changes: list[PlacedChange] = field(default_factory=list)
    begin: Place | None = None
    gone_since: Place | None = None
    replaced_at: Place | None = None

    def add(self, version: Version) -> None:
        """Applies the version above those that were added."""
        definition = version.definition
        if self._is_repeated(version):
            return
        self.added = version
        if self.before is None:
            self._recreate(version, None)
            self.gone_since = version.since if version.cause.drops_table else None
            if version.cause.other_name:
                self._note_changes(version, [arrival(definition, version.cause)])
        elif version.cause.drops_table or self.before.cause.drops_table or self._is_other_relation(version):
            self._note_changes(version, self._changes_of_relation(self.before, version))
            self._replace_relation(version)
        else:
            before = self.before.definition
            matching = matched(before, definition, self.hints)
            self._note_changes(version, changes_of(matching, before, definition, version.cause))
            definition = self._alter(version, matching)
        self._set_key(version)
        self.before = replace(version, definition=definition)

    def _is_repeated(self, version: Version) -> bool:
        """Returns True if the version only says what the one added last said."""
        return (
            self.added is not None and not version.cause.using and replace(self.added, since=version.since) == version
        )

    def _is_other_relation(self, version: Version) -> bool:
        return self.before is not None and is_other_relation(self.before.definition, version.definition)

    def _changes_of_relation(self, before: Version, version: Version) -> tuple[SchemaChange, ...]:
        if before.cause.drops_table:
            return () if version.cause.drops_table else (arrival(version.definition, version.cause),)
        return changes_between(before.definition, version.definition, self.hints, version.cause)

    def _note_changes(self, version: Version, changes: Iterable[SchemaChange]) -> None:
        self.changes += [PlacedChange(version.since, change, version.origin) for change in changes]

    def _replace_relation(self, version: Version) -> None:
        """Ends the columns of the relation. Rows stay until there is another one, to which all belongs that is above
        the end of the one before: CREATE TABLE AS writes rows below its message."""
        if version.cause.drops_table:
            self.gone_since = self.gone_since or version.since
            self._recreate(version, version.since)
        else:
            self.begin = self.gone_since or version.since
            self.gone_since, self.replaced_at = None, version.since
            self._recreate(version, self.begin)

    def _recreate(self, version: Version, at: Place | None) -> None:
        for life in self.open_lives.values():
            life.end = at
        self.open_lives = {}
        if not version.cause.drops_table:
            for column in version.definition.columns:
                self._open(column, version, at)

    def _open(self, column: ColumnDefinition, version: Version, at: Place | None) -> None:
        types = (TypeStep(at, column.type, column.source_type, version.origin is not Origin.TOLD),)
        life = _OpenLife(column, at, column.fill, version.origin, types, [NameStep(at, column.name)])
        self.open_lives[column.name] = life
        self.all_lives.append(life)

    def _alter(self, version: Version, matching: Matching) -> Definition:
        """Applies changes of columns and returns the definition as it is known now: with numbers from before."""
        before = self.open_lives
        self.open_lives = {}
        for column in matching.gone:
            before[column.name].end = version.since
        computed = computed_columns(matching, version.definition, version.cause)
        for old, new in matching.same:
            self._go_on(before.pop(old.name), new, version, new.name in computed)
        if version.definition.is_partial:
            self.open_lives |= {name: life for name, life in before.items() if life.end is None}
        for column in matching.new:
            self._open(column, version, version.since)
        columns = tuple(life.definition for life in self.open_lives.values())
        return replace(version.definition, columns=columns, relation=self._relation(version), key=self._key(version))

    def _go_on(self, life: _OpenLife, column: ColumnDefinition, version: Version, is_computed: bool) -> None:
        is_shown = version.origin is not Origin.TOLD
        step = TypeStep(version.since, column.type, column.source_type, is_shown, is_computed, version.cause.zone)
        life.types = with_step(life.types, step)
        if column.name != life.definition.name:
            life.names.append(NameStep(version.since, column.name))
        number = life.definition.number if column.number is None else column.number
        source_type = column.source_type or life.definition.source_type
        type_ = column.type or life.definition.type
        life.definition = replace(column, number=number, source_type=source_type, type=type_)
        self.open_lives[column.name] = life
        self._note_fill(life, column, version.origin)

    def _note_fill(self, life: _OpenLife, column: ColumnDefinition, origin: Origin) -> None:
        is_told = origin is Origin.READ or (origin is Origin.TOLD and column.fill.kind is FillKind.CONSTANT)
        if is_told and life.told_fill is None:
            life.told_fill = column.fill if life.origin not in _EXACT else None

    def _relation(self, version: Version) -> int | None:
        known = self.before.definition.relation if self.before else None
        return known if version.definition.relation is None else version.definition.relation

    def _key(self, version: Version) -> tuple[str, ...] | None:
        if version.definition.key is not None or not self.eras:
            return version.definition.key
        return tuple(life.definition.name for life in self.eras[-1].lives)

    def _set_key(self, version: Version) -> None:
        key = version.definition.key
        by_name = {caseless(name): life for name, life in self.open_lives.items()}
        if version.cause.drops_table or key is None or any(caseless(name) not in by_name for name in key):
            return
        found = tuple(by_name[caseless(name)] for name in key)
        # The first key of another relation is that of all of its rows.
        since = self.begin if version.since == self.replaced_at else version.since
        if not self.eras:
            is_first = all(life.begin is None for life in found)
            self.eras.append(_Era(found, None if is_first else since, version.origin))
        elif {*map(id, found)} != {*map(id, self.eras[-1].lives)}:
            self.eras.append(_Era(found, since, version.origin))

    def result(self) -> Lives:
        """Returns the lives of the versions that were added."""
        ordered = sorted(self.all_lives, key=lambda life: (life.end is None, life.end or _NEVER))
        index = {id(life): number for number, life in enumerate(ordered)}
        return Lives(tuple(life.closed() for life in ordered), self._keys(index), tuple(self.changes), self.begin)

    def _keys(self, index: Mapping[int, int]) -> tuple[KeyEra, ...]:
        ends = [*(era.begin for era in self.eras[1:]), None][: len(self.eras)]
        return tuple(
            KeyEra(
                tuple(life.definition.name for life in era.lives),
                tuple(index[id(life)] for life in era.lives),
                era.begin,
                end,
                era.origin,
            )
            for era, end in zip(self.eras, ends, strict=True)
        )
