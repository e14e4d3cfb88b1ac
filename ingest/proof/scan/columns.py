"""Values of decoded Arrow arrays, at any depth of nesting."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.proof.scan.equal_values import equal_values
from ingest.proof.scan.leaf import Leaf
from ingest.proof.scan.search import PatternSearch


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


def matches_in(
    search: PatternSearch, leaf: Leaf, note: Callable[[str], None] | None = None
) -> Iterator[tuple[str, str, int]]:
    """Yields label, form and count of the matches in a leaf."""
    for term in search.terms:
        yield from equal_values(term, leaf)
    values = leaf.values
    if pa.types.is_temporal(values.type) and not pa.types.is_duration(values.type):
        if not search.has_times:
            return
        values = values.cast(pa.large_string())
    body, bounds = concatenated_bytes(values)
    if body is None:
        return
    for match in search.in_bytes(body, note):
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
