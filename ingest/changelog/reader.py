"""How the images of one schema are read: which columns they have, where they lie in a value, and how each is typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.values.columns import Column
from ingest.changelog.values.decode import wire_spark_type
from ingest.changelog.values.types import OutOfRange
from ingest.spark.plain_json import CORRUPT


class Reading(Enum):
    """Which image an event is read for."""

    AFTER = "after"
    AFTER_OR_BEFORE = "after, and a value that was not sent out of the image before"
    BEFORE = "before"


@dataclass(frozen=True)
class Reader:
    """How to read the images of one schema."""

    wire: tuple[Column, ...]
    placeholder: str
    names: tuple[tuple[str, str], ...] = ()
    """Pairs of a column of the event and the table's, where their names differ."""
    reading: Reading = Reading.AFTER
    key_changes: bool = False
    """Whether any delete names a new key."""
    plain: frozenset[str] = frozenset()
    """Columns whose values, in the main image, are known to be what their type says."""
    doubtful: bool = False
    """Whether some object may name a field twice: which of its values counts nobody knows."""
    long_numbers: bool = False
    """Whether some number may have more digits than are kept without a schema."""
    known: bool = False
    """Whether every value has been read before: whole JSON, of which no envelope names an image twice."""
    wrapped: bool | None = None
    """Whether all envelopes lie in another one, as `payload`; None where each tells for itself."""

    @cached_property
    def main_wire(self) -> tuple[Column, ...]:
        """The columns as the main image is read."""
        return tuple(replace(c, wire=replace(c.wire, checked=False)) if c.name in self.plain else c for c in self.wire)

    @property
    def main(self) -> str:
        """The image that the columns come from."""
        return "before" if self.reading is Reading.BEFORE else "after"

    def for_key(self, key: Sequence[str]) -> Reader:
        """Returns a reader by which two times in a column of the key never become one, unless both are infinite."""

        own = dict(self.names)

        def of_key(column: Column) -> Column:
            in_key = own.get(column.name, column.name) in key
            clamps = column.wire.out_of_range is OutOfRange.CLAMP
            if not (in_key and clamps):
                return column
            return replace(column, wire=column.wire.with_out_of_range(OutOfRange.CLAMP_INFINITE))

        return replace(self, wire=tuple(map(of_key, self.wire)))

    # Once each: who asks for every column of a wide table would make them as often as it has columns.
    @cached_property
    def named(self) -> Mapping[str, Column]:
        """name → column, as the image is written."""
        return self._by_name(self.wire)

    @cached_property
    def named_in_main(self) -> Mapping[str, Column]:
        """name → column, as the main image is read."""
        return self._by_name(self.main_wire)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """name → number of a column."""
        return {name: number for number, name in enumerate(self.named)}

    def _by_name(self, columns: Sequence[Column]) -> dict[str, Column]:
        names = dict(self.names)
        return {names.get(c.name, c.name): c for c in columns}


def _struct(columns: Sequence[Column]) -> T.StructType:
    return T.StructType([T.StructField(c.name, wire_spark_type(c.wire)) for c in columns])


def value_type(reader: Reader, keys: Sequence[Column]) -> T.StructType:
    """Of a record's value, as it is opened by: the image that is read, and the key in the other one."""
    read, other = ("before", "after") if reader.reading is Reading.BEFORE else ("after", "before")
    images = [T.StructField(read, _struct(reader.main_wire)), T.StructField(other, _struct(keys))]
    return T.StructType([*_enveloped(images, reader), T.StructField(CORRUPT, T.StringType())])


def before_type(reader: Reader) -> T.StructType:
    """The same of the image before alone, all of it."""
    return T.StructType(_enveloped([T.StructField("before", _struct(reader.wire))], reader))


def _enveloped(images: list[T.StructField], reader: Reader) -> list[T.StructField]:
    """Where they may lie."""
    inside = [] if reader.wrapped is False else [T.StructField("payload", T.StructType(images))]
    return inside if reader.wrapped else [*images, *inside]


def key_type(keys: Sequence[Column]) -> T.StructType:
    """Of a record's key."""
    inner = _struct(keys)
    return T.StructType([*inner.fields, T.StructField("payload", inner)])


def image(name: str, reader: Reader, opened: str = "_v") -> SparkColumn:
    """The image of this name in the column `opened`, a value read by `value_type`."""
    inside, outside = F.col(f"{opened}.payload.{name}"), F.col(f"{opened}.{name}")
    if reader.wrapped is None:
        return F.when(F.col("wrapped"), inside).otherwise(outside)
    return inside if reader.wrapped else outside
