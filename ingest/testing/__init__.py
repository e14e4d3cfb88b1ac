"""Tools for testing pipelines: a naive in-memory reference (oracle), random changelogs, a one-line notation of
changelogs, and a function that shrinks a failing one."""

from ingest.testing.assumed import assumed, without_ddl
from ingest.testing.notation import format_events, parse_events
from ingest.testing.oracle import UNAVAILABLE, Event, RowVersion, fold, fold_bag, fold_versions
from ingest.testing.shrinking import shrink
from ingest.testing.source_table import UNKNOWN, SourceColumn, SourceTable, TableChange

__all__ = [
    "UNAVAILABLE",
    "UNKNOWN",
    "Event",
    "RowVersion",
    "SourceColumn",
    "SourceTable",
    "TableChange",
    "assumed",
    "fold",
    "fold_bag",
    "fold_versions",
    "format_events",
    "parse_events",
    "shrink",
    "without_ddl",
]
