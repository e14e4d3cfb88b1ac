"""Decoded columns: every value of an Arrow array, however deep it is nested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.proof.scan.encodings import IN_COLUMN
from ingest.proof.scan.search import Search
from ingest.proof.scan.search_terms import Needle


@dataclass(frozen=True)
class Leaf:
    """Values of one kind. `path`: the names of the columns they lie in, the outermost first."""

    path: tuple[str, ...]
    values: pa.Array


def leaves(path: tuple[str, ...], array: pa.Array) -> Iterator[Leaf]:
    """What is null, or lies within a null, is not there. The entries of a map whose keys are text lie in columns of
    these names too."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        yield from leaves(path, array.storage)
    elif pa.types.is_dictionary(kind):
        # Also what stands in the dictionary and in no row.
        yield from leaves(path, array.dictionary)
    elif pa.types.is_struct(kind):
        for field, values in zip(kind, array.flatten(), strict=True):
            yield from leaves((*path, field.name), values)
    elif pa.types.is_map(kind):
        yield from _entries(path, array)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from leaves(path, array.flatten())
    elif pa.types.is_nested(kind) or pa.types.is_run_end_encoded(kind):
        raise NotImplementedError(f"values of the type {kind.id}")
    elif not pa.types.is_null(kind):
        yield Leaf(path, array)


def _entries(path: tuple[str, ...], array: pa.MapArray) -> Iterator[Leaf]:
    # `flatten`, unlike `keys` and `items`, leaves out what another slice of the array holds.
    keys, items = pa.ListArray.flatten(array.cast(_as_list(array.type))).flatten()
    yield from leaves((*path, "key"), keys)
    yield from leaves((*path, "value"), items)
    if pa.types.is_string(keys.type) and not pa.types.is_nested(items.type):
        for name in pc.unique(keys).drop_null().to_pylist():
            yield from leaves((*path, name), items.filter(pc.equal(keys, name)))


def _as_list(kind: pa.MapType) -> pa.DataType:
    entry = pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)])
    return pa.list_(pa.field("entries", entry, nullable=False))


def found_in(search: Search, leaf: Leaf) -> Iterator[tuple[str, str, int]]:
    """Label, form and how many times."""
    for needle in search.needles:
        if _named(needle, leaf.path):
            count = equal_values(leaf.values, needle)
            if count:
                yield needle.label, IN_COLUMN, count
    values = leaf.values
    if search.has_date and pa.types.is_temporal(values.type) and not pa.types.is_duration(values.type):
        values = values.cast(pa.large_string())
    body, bounds = text_of(values)
    if body is None:
        return
    for match in search.in_bytes(body):
        # Values lie side by side: the end of one and the beginning of the next are no value.
        if bounds is None or np.searchsorted(bounds, match.begin, "right") == np.searchsorted(
            bounds, match.end, "left"
        ):
            yield match.label, match.form, 1


def text_of(values: pa.Array) -> tuple[memoryview | None, np.ndarray | None]:
    """The bytes of all values of text or binary, and where each ends; None where they are of another type."""
    kind = values.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return text_of(values.cast(pa.large_binary()))
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        return text_of(values.cast(pa.large_binary()))
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if not wide and not pa.types.is_string(kind) and not pa.types.is_binary(kind):
        return None, None
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return None, None
    ends = np.frombuffer(offsets, np.int64 if wide else np.int32)[values.offset : values.offset + len(values) + 1]
    return memoryview(data).cast("B")[int(ends[0]) : int(ends[-1])], ends - ends[0]


def _named(needle: Needle, path: Sequence[str]) -> bool:
    names = {c.lower() for c in needle.columns}
    return bool(names) and (path[-1].lower() in names or ".".join(path).lower() in names)


def equal_values(values: pa.Array, needle: Needle) -> int:
    """How many of these values are the needle's, as a number or as text."""
    kind = values.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        wanted: object = needle.value.encode()
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        wanted = needle.value
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return equal_values(pc.utf8_slice_codeunits(values.cast(pa.string()), 0, len(needle.value)), needle)
    elif needle.number is not None and _is_number(kind):
        wanted = _as_number(needle.number, kind)
    else:
        return 0
    try:
        scalar = pa.scalar(wanted, kind)
    except (pa.ArrowException, OverflowError):
        # No value of this type can be this number.
        return 0
    return int(pc.sum(pc.equal(values, scalar)).as_py() or 0)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _as_number(number: Decimal, kind: pa.DataType) -> object:
    if pa.types.is_decimal(kind):
        return number
    if pa.types.is_integer(kind):
        return int(number) if number == number.to_integral_value() else None
    return float(number)
