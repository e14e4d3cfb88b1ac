"""Reserved names of columns: those that a table or Delta's change data feed adds, and every name that begins with the
prefix of internal columns. A source's column can't have one of them."""

from __future__ import annotations

_OF_TABLES = "_position _source_ts _column_positions _valid_from _valid_to _until _arrived _other_key _deleted"
_OF_DELTA = "_metadata _change_type _commit_version _commit_timestamp"
RESERVED_NAMES = frozenset((*_OF_TABLES.split(), *_OF_DELTA.split()))
PREFIX = "_ingest_"
"""The prefix of columns that exist only while rows are merged, searched or erased."""


def is_reserved(name: str) -> bool:
    """Returns true if the name is reserved, in any case: Delta's column names are case-insensitive."""
    folded = name.lower()
    return folded in RESERVED_NAMES or folded.startswith(PREFIX)
