"""For testing pipelines: a naive reference of what a changelog means, and random changelogs to hold against it."""

from ingest.testing.oracle import UNAVAILABLE, Event, fold, fold_bag

__all__ = ["UNAVAILABLE", "Event", "fold", "fold_bag"]
