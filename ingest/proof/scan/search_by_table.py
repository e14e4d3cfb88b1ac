"""Searches for terms of single tables only in what holds rows of these tables, or of tables that are not known."""

from __future__ import annotations

from collections.abc import Sequence

from ingest.proof.scan.search import PatternSearch
from ingest.proof.scan.search_terms import SearchTerm
from ingest.proof.scan.table_columns import table_of


class SearchByTable:
    """The searches of one place. `tables`: all that are known, so that rows of others are not taken for theirs."""

    def __init__(self, terms: Sequence[SearchTerm], tables: Sequence[str] = ()) -> None:
        self.searched = tuple(dict.fromkeys(term.table for term in terms if term.table))
        """Tables that terms name."""
        self.known = tuple(dict.fromkeys((*tables, *self.searched)))
        self.whole = PatternSearch(terms)
        self.general = _of(terms, "") if self.searched else self.whole
        """Searches for terms of any table."""
        self.of_table = {table: _of(terms, table) for table in self.searched}
        """Table → searches for its terms alone."""
        self._of_files = {table: _of(terms, "", table) for table in self.searched}

    def of_file(self, name: str) -> PatternSearch:
        """Returns the search for a file: for all terms if it may hold rows of any table."""
        table = table_of(name, self.known) if self.searched else None
        return self.whole if table is None else self._of_files.get(table, self.general)


def _of(terms: Sequence[SearchTerm], *tables: str) -> PatternSearch:
    return PatternSearch([term for term in terms if term.table in tables])
