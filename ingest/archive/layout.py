"""What an archive is to those who read it: objects, each with records of one topic partition, and their contents. Who
wrote them, and what is known of them, is a layout's own business."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T


@dataclass(frozen=True)
class StoredObject:
    """Records of one topic partition, in the order of their offsets. `records`: how many, at most. `size`: bytes."""

    key: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    size: int

    @property
    def told(self) -> str:
        """Which events it holds, for an error."""
        offsets = f"offsets {self.first_offset} to {self.last_offset}"
        return f"{self.records} records of topic {self.topic}, partition {self.partition}, {offsets}"

    def written_between(self, begin: float | None, end: float | None) -> bool:
        """Whether any record may have been written from `begin` on and before `end`, in milliseconds."""
        del begin, end
        return True


Kept = TypeVar("Kept", bound=StoredObject)


def rows_of(kind: type[StoredObject]) -> T.StructType:
    """Rows of these objects, whose fields are whole numbers and texts."""
    numbers = {f.name for f in fields(kind) if f.type == "int"}
    return T.StructType(
        [T.StructField(f.name, T.LongType() if f.name in numbers else T.StringType(), False) for f in fields(kind)]
    )


@dataclass(frozen=True)
class Damage:
    """An object that is not what was written. `events`: which records it held."""

    key: str
    what: str
    events: str


Seen = Callable[[Sequence[StoredObject]], None]
"""Is told which objects have been looked at."""


class Layout(Protocol[Kept]):
    """An archive of one pipeline's changelog."""

    unchecked: Sequence[str]
    """What can't be known of its wholeness, a sentence each."""

    def objects(self) -> Sequence[Kept]:
        """All that there are now, those of a topic partition in the order of their offsets."""
        ...

    def records(self, spark: SparkSession, objects: Sequence[Kept]) -> DataFrame:
        """`ingest.changelog.envelope.RECORD` rows of these objects. Reading them fails where one is not what was
        written: no table gets smaller without a word."""
        ...

    def damages(self, spark: SparkSession, objects: Sequence[Kept], seen: Seen) -> list[Damage]:
        """Every object of these that is missing, truncated or altered: all are read, none is kept."""
        ...
