"""Values of decoded Arrow arrays, at any depth of nesting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.proof.scan.encodings import IN_COLUMN
from ingest.proof.scan.search import PatternSearch
from ingest.proof.scan.search_terms import SearchTerm


@dataclass(frozen=True)
class Leaf:
    """Values of one type. `path`: names of the columns that contain them, outermost first."""

    path: tuple[str, ...]
    values: pa.Array


def leaves(path: tuple[str, ...], array: pa.Array) -> Iterator[Leaf]:
    """Yields the primitive arrays of `array`, without nulls and values within nulls. Entries of a map with text keys
    are yielded a second time as columns named by their keys."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        yield from leaves(path, array.storage)
    elif pa.types.is_dictionary(kind):
        # The dictionary may hold values that no row refers to.
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
    # `flatten`, unlike `keys` and `items`, respects the slice of the array.
    keys, items = pa.ListArray.flatten(array.cast(_as_list(array.type))).flatten()
    yield from leaves((*path, "key"), keys)
    yield from leaves((*path, "value"), items)
    if pa.types.is_string(keys.type) and not pa.types.is_nested(items.type):
        for name in pc.unique(keys).drop_null().to_pylist():
            yield from leaves((*path, name), items.filter(pc.equal(keys, name)))


def _as_list(kind: pa.MapType) -> pa.DataType:
    entry = pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)])
    return pa.list_(pa.field("entries", entry, nullable=False))


def matches_in(search: PatternSearch, leaf: Leaf) -> Iterator[tuple[str, str, int]]:
    """Yields label, encoding and count of the matches in a leaf."""
    for term in search.terms:
        if _is_in_columns(term, leaf.path):
            count = count_equal(leaf.values, term)
            if count:
                yield term.label, IN_COLUMN, count
    values = leaf.values
    if search.has_date and pa.types.is_temporal(values.type) and not pa.types.is_duration(values.type):
        values = values.cast(pa.large_string())
    body, bounds = concatenated_bytes(values)
    if body is None:
        return
    for match in search.in_bytes(body):
        # Values are adjacent in memory: a match across the end of one and the start of the next doesn't count.
        if bounds is None or np.searchsorted(bounds, match.begin, "right") == np.searchsorted(
            bounds, match.end, "left"
        ):
            yield match.label, match.encoding, 1


def concatenated_bytes(values: pa.Array) -> tuple[memoryview | None, np.ndarray | None]:
    """Returns the bytes of all text or binary values and the end of each value; None and None for other types."""
    kind = values.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return concatenated_bytes(values.cast(pa.large_binary()))
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        return concatenated_bytes(values.cast(pa.large_binary()))
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if not wide and not pa.types.is_string(kind) and not pa.types.is_binary(kind):
        return None, None
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return None, None
    ends = np.frombuffer(offsets, np.int64 if wide else np.int32)[values.offset : values.offset + len(values) + 1]
    return memoryview(data).cast("B")[int(ends[0]) : int(ends[-1])], ends - ends[0]


def _is_in_columns(term: SearchTerm, path: Sequence[str]) -> bool:
    names = {c.lower() for c in term.columns}
    return bool(names) and (path[-1].lower() in names or ".".join(path).lower() in names)


def count_equal(values: pa.Array, term: SearchTerm) -> int:
    """Returns the number of values that equal the term, as a number or as text."""
    kind = values.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        wanted: object = term.value.encode()
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        wanted = term.value
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return count_equal(pc.utf8_slice_codeunits(values.cast(pa.string()), 0, len(term.value)), term)
    elif term.number is not None and _is_number(kind):
        wanted = _as_number(term.number, kind)
    else:
        return 0
    try:
        scalar = pa.scalar(wanted, kind)
    except (pa.ArrowException, OverflowError):
        # The type can't represent this number.
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
