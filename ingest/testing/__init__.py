"""Tools for testing pipelines: a naive in-memory reference (oracle), random changelogs, a one-line notation of
changelogs, and a function that shrinks a failing one."""

from ingest.testing.notation import format_events, parse_events
from ingest.testing.oracle import UNAVAILABLE, Event, RowVersion, fold, fold_bag, fold_versions
from ingest.testing.shrinking import shrink

__all__ = [
    "UNAVAILABLE",
    "Event",
    "RowVersion",
    "fold",
    "fold_bag",
    "fold_versions",
    "format_events",
    "parse_events",
    "shrink",
]
