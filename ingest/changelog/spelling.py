"""Maps columns of events to columns of tables, without regard to case, as Delta does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ingest.names import caseless


@dataclass(frozen=True, slots=True)
class Spelling:
    """Rules for the names of a table's columns. `fold_case`: names are lower case. `renamed`: (column of the event,
    column of the table) pairs from the pipeline's file."""

    fold_case: bool = False
    renamed: tuple[tuple[str, str], ...] = ()

    def new_name(self, name: str) -> str:
        """Returns the name of an event's column in a new table."""
        found = dict(self.renamed).get(name, name)
        return found.lower() if self.fold_case else found

    def table_names(self, event_columns: Iterable[str], stored: Iterable[str]) -> Mapping[str, str]:
        """Returns the table's name of each column of an event. Names that differ in case only are one column, spelled
        as it was first seen.

        `event_columns`: the event's columns. `stored`: those that the table has already.
        """
        known = {caseless(name): name for name in stored}
        return {
            name: known.get(caseless(new_name), new_name)
            for name, new_name in ((n, self.new_name(n)) for n in event_columns)
        }
