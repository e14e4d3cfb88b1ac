"""For testing pipelines: a naive reference of what a changelog means, random changelogs to hold against it, a notation
to write them in, and a way to make a failing one small."""

from ingest.testing.notation import parsed, written
from ingest.testing.oracle import UNAVAILABLE, Event, Version, fold, fold_bag, versions
from ingest.testing.shrinking import smallest

__all__ = ["UNAVAILABLE", "Event", "Version", "fold", "fold_bag", "parsed", "smallest", "versions", "written"]
