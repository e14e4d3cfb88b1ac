"""The contract of an archive for its readers: objects, each with records of one topic partition, and their contents.
`ManifestArchive` and `ConnectorArchive` implement it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T


@dataclass(frozen=True)
class StoredObject:
    """An object with records of one topic partition in offset order. `records`: their number, at most. `size`:
    bytes."""

    key: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    size: int

    @property
    def description(self) -> str:
        """The events that it holds, as a phrase for error messages."""
        offsets = f"offsets {self.first_offset} to {self.last_offset}"
        return f"{self.records} records of topic {self.topic}, partition {self.partition}, {offsets}"

    def written_between(self, begin: float | None, end: float | None) -> bool:
        """Returns True if a record may have a timestamp in [`begin`, `end`), in milliseconds; None leaves an end
        open."""
        del begin, end
        return True


ObjectT = TypeVar("ObjectT", bound=StoredObject)


def row_type(kind: type[StoredObject]) -> T.StructType:
    """Returns the row type of objects of this class: int fields as long, str fields as string."""
    numbers = {f.name for f in fields(kind) if f.type == "int"}
    return T.StructType(
        [T.StructField(f.name, T.LongType() if f.name in numbers else T.StringType(), False) for f in fields(kind)]
    )


@dataclass(frozen=True)
class Damage:
    """An object that differs from what was written. `what`: the difference. `events`: the records that it held."""

    key: str
    what: str
    events: str


OnChecked = Callable[[Sequence[StoredObject]], None]
"""Is called with the objects that have been checked."""


class Layout(Protocol[ObjectT]):
    """An archive of one pipeline's changelog."""

    unchecked: Sequence[str]
    """The damage that a check of this layout can't detect, a sentence each."""

    def objects(self) -> Sequence[ObjectT]:
        """Returns all objects that exist now, those of a topic partition in offset order."""
        ...

    def records(self, spark: SparkSession, objects: Sequence[ObjectT]) -> DataFrame:
        """Returns the objects' records as `ingest.changelog.envelope.RECORD` rows.

        Reading them raises ChangelogUnusable where an object is damaged, instead of leaving rows out."""
        ...

    def damages(self, spark: SparkSession, objects: Sequence[ObjectT], on_checked: OnChecked) -> list[Damage]:
        """Reads all of these objects and returns those that are missing, truncated or altered."""
        ...
