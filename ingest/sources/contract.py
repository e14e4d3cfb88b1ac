"""What a source promises to the capture.

- It resumes after the last record that bronze holds: `pending` is asked with bronze's own offsets, so only what is
  durable counts as read.
- `read` of one range gives the same records every time, each once.
- A range that can't be read any more (retention, a recreated topic) is an error, never a smaller range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

Offsets = dict[str, dict[int, int]]
"""topic → partition → next offset."""


@dataclass(frozen=True)
class Range:
    """Offsets from `start` (inclusive) to `end` (exclusive) of the same topic partitions."""

    start: Offsets
    end: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """topic → what tells it from another one of its name, where the source knows."""
    behind: int = 0
    """How many offsets wait after it."""

    @property
    def size(self) -> int:
        """How many offsets it spans; an upper bound of its records."""
        return sum(
            end - self.start[topic][partition]
            for topic, partitions in self.end.items()
            for partition, end in partitions.items()
        )


class Source(Protocol):
    """A changelog that can be read by ranges of offsets."""

    def pin_end(self) -> None:
        """From here on `pending` ends where the source ends at this moment."""
        ...

    def pending(self, captured: Offsets, limit: int) -> Range | None:
        """The next range of at most about `limit` records after `captured`; None when there is nothing new."""
        ...

    def read(self, spark: SparkSession, span: Range) -> DataFrame:
        """The records of a range, as `ingest.changelog.envelope.RECORD`."""
        ...
