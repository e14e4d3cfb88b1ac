"""The contract between a source and the capture.

- A source resumes after the last record in bronze: `pending` gets bronze's own offsets, so only durable records count
as
  read.
- `read` of one range returns the same records every time, each once.
- A range that can't be read any more (retention, a recreated topic) raises an error; it never shrinks silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

Offsets = dict[str, dict[int, int]]
"""topic → partition → next offset."""


@dataclass(frozen=True)
class OffsetRange:
    """Offsets from `start` (inclusive) to `end` (exclusive) of the same topic partitions."""

    start: Offsets
    end: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """topic → the id that distinguishes it from a later topic of the same name, where the source has one."""
    behind: int = 0
    """The number of offsets that follow the range and are not read yet."""

    @property
    def size(self) -> int:
        """The number of offsets in the range; an upper bound of its records."""
        return sum(
            end - self.start[topic][partition]
            for topic, partitions in self.end.items()
            for partition, end in partitions.items()
        )


class ChangelogSource(Protocol):
    """A changelog that is read by ranges of offsets."""

    def pin_end(self) -> None:
        """Fixes the end of the source at this moment; later calls of `pending` stop there."""
        ...

    def pending(self, captured: Offsets, limit: int) -> OffsetRange | None:
        """Returns the next range after `captured` with about `limit` records at most; None if there is nothing new."""
        ...

    def read(self, spark: SparkSession, span: OffsetRange) -> DataFrame:
        """Returns the records of a range as `ingest.changelog.envelope.RECORD` rows."""
        ...
