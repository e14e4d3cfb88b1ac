"""Tools for testing pipelines: a naive in-memory reference (oracle), random changelogs, a one-line notation of
changelogs, and a function that shrinks a failing one."""

from ingest.testing.notation import parsed, written
from ingest.testing.oracle import UNAVAILABLE, Event, Version, fold, fold_bag, versions
from ingest.testing.shrinking import smallest

__all__ = ["UNAVAILABLE", "Event", "Version", "fold", "fold_bag", "parsed", "smallest", "versions", "written"]
