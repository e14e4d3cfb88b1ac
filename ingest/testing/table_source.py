"""A source with one table: its definition, its true rows, and the log of its events. Statements on it are in
`row_statements` and `definition_statements`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from ingest.testing.oracle import Event, Op, Row
from ingest.testing.source_table import ChangeKind, SourceColumn, SourceTable, TableChange, changed, key_of, same_name
from ingest.testing.type_forms import SourceType

ODD_NAMES = (
    *("unit price", "a.b", 'quo"te', "back`tick", "com,ma", "semi;colon", "{brace}", "(parenthesis)", "tab\there"),
    *("new\nline", "eq=ual", "émoji 😀", "x" * 63, "select", "Order", "'single'", "per%cent", "back\\slash", "$dollar"),
    *("1", "a/b", " leading", "trailing ", "table", "before", "payload", "offset", "_x", "col-1", "straße"),
)
"""Names of columns that a source allows and others stumble over."""
PLAIN_NAMES = ("name", "note", "total", "tier", "zip", "state", "at", "kind", "size", "ref")
_TRIES = 20


class TableSource:
    """A source with one table.

    Attributes:
        table: the definition.
        rows: the true rows.
        events: the changelog, changes of the definition included, in the source's order, which the offsets count. It
            begins with `create.table`.
        types: those that columns may have, by name.
        dropped: names of columns that are gone.
        random: the random numbers of the statement that is executed.
        columns_ever: the highest attribute number that a column has had.
        has_unknown: True once a change of the definition has written values that no event tells. Such a table stays
            keyed, and a keyless one has no such changes: its rows could no longer be told apart.
    """

    def __init__(self, table: SourceTable, types: Mapping[str, SourceType], full: bool) -> None:
        """`full`: updates and deletes have whole before images (REPLICA IDENTITY FULL), as they always have in a
        keyless table."""
        self.table = SourceTable()
        self.rows: list[Row] = []
        self.events: list[Event] = []
        self.types = types
        self.dropped: list[str] = []
        self.random = Random(0)
        self.columns_ever = 0
        self.has_unknown = False
        self._full = full
        self._lsn = 0
        self._follows_change = False
        self.create(table)

    @property
    def key(self) -> Sequence[str]:
        """The key columns; empty for a keyless table."""
        return self.table.key or ()

    @property
    def other_columns(self) -> list[str]:
        """The columns outside of the key."""
        return [name for name in self.table.columns if name not in self.key]

    @property
    def has_whole_images(self) -> bool:
        """True if updates and deletes have whole before images, and no value is unavailable."""
        return self._full or self.table.keyless

    def create(self, table: SourceTable) -> None:
        """Creates the table, with attribute numbers of its own."""
        numbered = enumerate(table.columns.items(), 1)
        columns = {name: replace(column, number=n, missing=None) for n, (name, column) in numbered}
        self.columns_ever = len(columns)
        self.change("create.table", table=replace(table, columns=columns))

    def change(self, kind: ChangeKind, column: str = "", **more: Any) -> None:
        """Changes the definition, at a position of its own, and logs the change. `more`: as of `TableChange`."""
        change = TableChange(kind, column, **more)
        self.table = changed(self.table, change)
        self._lsn += 10
        self._follows_change = True
        self.events.append(Event("ddl", len(self.events), self._lsn, ddl=change, carried=self.table))

    def start_log(self) -> None:
        """Starts the log anew: with the definition as it is, and a snapshot of the rows."""
        self.events = []
        self.change("create.table", table=self.table)
        self.begin()
        for row in self.rows:
            self.log("r", row, row)

    def begin(self) -> None:
        """Goes to the next position; right after a change of the definition that may be the change's own."""
        self._lsn += 0 if self._follows_change and self.random.random() < 0.5 else 10
        self._follows_change = False

    def log(
        self, op: Op, row: Row, image: Row | None = None, before: Row | None = None, old: Row | None = None, **more: Any
    ) -> None:
        """Logs an event at the current position, or a null tombstone. `row`: one that has the event's key. `old`: one
        that has its old key."""
        key = self._key_of(row) if op != "t" else None
        images = dict(image or {}), None if before is None else dict(before)
        old_key = None if old is None else self._key_of(old)
        lsn = 0 if op == "null" else self._lsn
        event = Event(op, len(self.events), lsn, key, *images, old_key, carried=self.table, **more)
        self.events.append(event)

    def some_row(self) -> Row | None:
        """Returns one of the rows; None if there are none."""
        return self.random.choice(self.rows) if self.rows else None

    def with_free_key(self, make: Callable[[], Row], rows: Sequence[Row]) -> Row | None:
        """Returns a row whose key none of `rows` has; None if `make` finds none."""
        taken = {self._key_of(row) for row in rows} - {None}
        made = (make() for _ in range(_TRIES))
        return next((row for row in made if self._key_of(row) not in taken), None)

    def value(self, column: SourceColumn) -> Any:
        """Returns a random value of a column, perhaps null."""
        is_null = column.optional and self.random.random() < 0.2
        return None if is_null else self.random.choice(self.types[column.type].values)

    def free_name(self) -> str:
        """Returns a name for a column, rather often that of a dropped one."""
        names = [*PLAIN_NAMES, *ODD_NAMES, *self.dropped * 8]
        return self.random.choice([n for n in names if not any(same_name(n, column) for column in self.table.columns)])

    def _key_of(self, row: Row) -> Hashable:
        return key_of(row, self.key) if self.key else None
