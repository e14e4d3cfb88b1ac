"""Readers of row images of one schema: their columns, their types, and where an image is in a record's value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.jvm.plain_json import CORRUPT
from ingest.values.columns import Column
from ingest.values.postgres_cast import Cast
from ingest.values.types import OutOfRange
from ingest.values.wire_types import wire_spark_type


class ImageChoice(Enum):
    """The image that the columns of a change are read from."""

    AFTER = "after"
    AFTER_OR_BEFORE = "after, and a value that was not sent out of the image before"
    BEFORE = "before"


@dataclass(frozen=True)
class ImageReader:
    """Reads the images of one schema. `wire`: their columns. `placeholder`: Debezium's
    `unavailable.value.placeholder`."""

    wire: tuple[Column, ...]
    placeholder: str
    names: tuple[tuple[str, str], ...] = ()
    """(column of the event, column of the table) pairs of columns whose names differ."""
    image_choice: ImageChoice = ImageChoice.AFTER
    key_changes: bool = False
    """True if any delete names a new key."""
    proven: frozenset[str] = frozenset()
    """Columns whose values in the main image are known to be of their type, so that they need no check."""
    may_repeat_fields: bool = False
    """True if some object may have a field twice, which makes its value ambiguous."""
    long_numbers: bool = False
    """True if some number may have more digits than a VARIANT keeps."""
    parsed_before: bool = False
    """True if every value has been parsed before: valid JSON whose envelope has no image twice."""
    lacking: tuple[tuple[str, Column | None], ...] = ()
    """(column of the table, column whose default it reads; None for null) pairs of columns that the images lack."""
    casts: tuple[tuple[str, tuple[Cast, ...] | None], ...] = ()
    """(column of the table, conversions) pairs of columns whose values the source has converted since, those of
    `lacking` too; None if only the source knows the result."""
    unfit: frozenset[str] = frozenset()
    """Columns of the table whose values are of another type than the table has at their positions, so that they can't
    be read."""
    wrapped: bool | None = None
    """True if all envelopes are in a `payload` (Connect's schema and payload), False if none is, None if it varies."""

    @cached_property
    def main_wire(self) -> tuple[Column, ...]:
        """The columns of the main image, those of `proven` unchecked."""
        return tuple(replace(c, wire=replace(c.wire, checked=False)) if c.name in self.proven else c for c in self.wire)

    @property
    def main(self) -> str:
        """The name of the image that the columns are read from."""
        return "before" if self.image_choice is ImageChoice.BEFORE else "after"

    def for_key(self, key: Sequence[str]) -> ImageReader:
        """Returns a reader that clamps only infinite times in columns of the key, so that two finite times stay two."""

        names = dict(self.names)

        def of_key(column: Column) -> Column:
            in_key = names.get(column.name, column.name) in key
            clamps = column.wire.out_of_range is OutOfRange.CLAMP
            if not (in_key and clamps):
                return column
            return replace(column, wire=column.wire.with_out_of_range(OutOfRange.CLAMP_INFINITE))

        return replace(self, wire=tuple(map(of_key, self.wire)))

    # Cached: a lookup per column of a wide table would otherwise cost the square of their number.
    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """The columns by the table's name, as they are written."""
        return self._by_name(self.wire)

    @cached_property
    def main_by_name(self) -> Mapping[str, Column]:
        """The columns by the table's name, as the main image is read."""
        return self._by_name(self.main_wire)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of each column by the table's name."""
        return {name: number for number, name in enumerate(self.by_name)}

    @cached_property
    def lacking_by_name(self) -> Mapping[str, Column | None]:
        """`lacking` by the table's name."""
        return dict(self.lacking)

    @cached_property
    def casts_by_name(self) -> Mapping[str, tuple[Cast, ...] | None]:
        """`casts` by the table's name."""
        return dict(self.casts)

    def _by_name(self, columns: Sequence[Column]) -> dict[str, Column]:
        names = dict(self.names)
        return {names.get(c.name, c.name): c for c in columns}


PAYLOAD = "payload"


def _struct(columns: Sequence[Column]) -> T.StructType:
    return T.StructType([T.StructField(c.name, wire_spark_type(c.wire)) for c in columns])


def value_type(reader: ImageReader, keys: Sequence[Column]) -> T.StructType:
    """Returns the type by which a record's value is parsed: all columns of the main image, the key's of the other."""
    read, other = ("before", "after") if reader.image_choice is ImageChoice.BEFORE else ("after", "before")
    images = [T.StructField(read, _struct(reader.main_wire)), T.StructField(other, _struct(keys))]
    return T.StructType([*_enveloped(images, reader), T.StructField(CORRUPT, T.StringType())])


def before_type(reader: ImageReader) -> T.StructType:
    """Returns the type by which a record's value is parsed for all columns of the image before."""
    return T.StructType(_enveloped([T.StructField("before", _struct(reader.wire))], reader))


def _enveloped(images: list[T.StructField], reader: ImageReader) -> list[T.StructField]:
    """Returns the fields in which images may be: at the top, inside of `payload`, or both."""
    inside = [] if reader.wrapped is False else [T.StructField("payload", T.StructType(images))]
    return inside if reader.wrapped else [*images, *inside]


def key_type(keys: Sequence[Column]) -> T.StructType:
    """Returns the type by which a record's key is parsed, with or without Connect's schema around it; without, if a
    column of the key has the name that the schema stands beside."""
    inner = _struct(keys)
    return inner if has_payload(keys) else T.StructType([*inner.fields, T.StructField(PAYLOAD, inner)])


def has_payload(keys: Sequence[Column]) -> bool:
    """Returns True if a column of the key is called as the member beside Connect's schema."""
    return any(column.name == PAYLOAD for column in keys)


def key_structs(opened: str, keys: Sequence[Column]) -> tuple[SparkColumn, ...]:
    """Returns where a column of the key may be in one that was parsed. `opened`: the name of its column."""
    outside = F.col(opened)
    return (outside,) if has_payload(keys) else (outside, outside[PAYLOAD])


def image(name: str, reader: ImageReader, opened: str = "_ingest_v") -> SparkColumn:
    """Returns the image `name` ("before" or "after") of a parsed value. `opened`: the name of its column."""
    inside, outside = f"{opened}.payload.{name}", f"{opened}.{name}"
    if reader.wrapped is None:
        return F.when(F.col("wrapped"), F.col(inside)).otherwise(F.col(outside))
    return F.col(inside if reader.wrapped else outside)
