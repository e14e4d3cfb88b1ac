"""The topics over which a resync is asked for, watched and recorded. They hold no changes of rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_PREFIX_OF_PATTERN = re.compile(r"([\w-]+)(?:\\\.|\[\.\])")


@dataclass(frozen=True)
class ControlTopics:
    """`prefix`: the connector's `topic.prefix`. `signals`: Debezium reads signals there. `notifications`: Debezium
    writes the progress of snapshots there. `resyncs`: ingest writes a record there when a table was read as a whole."""

    prefix: str
    signals: str
    notifications: str
    resyncs: str

    def excluded_from(self, pattern: str) -> str:
        """Returns the regular expression of the topics that match `pattern` and are none of these."""
        names = "|".join(map(re.escape, (self.signals, self.notifications, self.resyncs)))
        return f"(?!(?:{names})$)(?:{pattern})"


def common_prefix(topics: Sequence[str], pattern: str | None) -> str | None:
    """Returns the first part of the names of all topics that hold a table; None if it isn't known or differs."""
    prefixes = {topic.split(".", 1)[0] for topic in topics if topic.count(".") >= 2}
    if found := _PREFIX_OF_PATTERN.match(pattern or ""):
        prefixes.add(found[1])
    return prefixes.pop() if len(prefixes) == 1 else None
