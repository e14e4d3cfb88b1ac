"""Search terms of values that were collected from a subject's events, and what a certificate tells of these.

A value is searched for everywhere if it is specific and no other subject's event holds it, as a whole or within a text.
Otherwise it counts only as a whole value of its column. If the events of others have it in that very column, it isn't
searched for: nothing tells whose it is."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from ingest.proof.forms import Form, ValueType, forms_of, inferred_type
from ingest.proof.forms.value_types import is_of
from ingest.proof.needles.collected import CollectedNeedles, CollectedValue
from ingest.proof.scan.report import CollectedColumn, NotDecided
from ingest.proof.scan.search_terms import SearchTerm, is_unspecific

_TYPES = {
    "date": ValueType.DATE,
    **dict.fromkeys(("time", "time_tz"), ValueType.TIME),
    **dict.fromkeys(("timestamp", "timestamp_tz"), ValueType.TIMESTAMP),
    **dict.fromkeys(("int8", "int16", "int32", "int53", "int64", "bits", "interval_micros"), ValueType.INTEGER),
    **dict.fromkeys(("decimal", "decimal_text", "float32", "float64"), ValueType.DECIMAL),
    "uuid": ValueType.UUID,
    "bytes": ValueType.BYTES,
}
_NESTED = frozenset({"array", "map", "struct", "json"})
_ANYWHERE = frozenset({"string", "xml", "ltree", "uuid", "bytes"}) | _NESTED
"""Kinds of which a value may be one person's wherever it stands."""
_ANYBODYS = (ValueType.DATE, ValueType.TIME, ValueType.TIMESTAMP)
SHARED = "rows of other subjects, or of a later life, have the same in this column: nothing tells whose they are"
WITHIN = "data of other subjects hold it: it was searched for only as a whole value of its column"


@dataclass(frozen=True)
class Needle:
    """A value, or a part of a nested one. `json`: the whole value as JSON; None for a part."""

    table: str
    column: str
    value: str = field(repr=False)
    type: ValueType | None
    may_be_anywhere: bool
    json: str | None = field(repr=False)

    @property
    def label(self) -> str:
        """Returns the column as TABLE.COLUMN."""
        return f"{self.table}.{self.column}"

    @property
    def written(self) -> frozenset[str]:
        """Returns texts, in lower case, of which an event's JSON holds one if it holds the value."""
        return frozenset(text for form in forms_of(self.value, self._kind) for text in _written(form))

    @property
    def _kind(self) -> ValueType:
        return self.type or inferred_type(self.value)


@dataclass(frozen=True)
class CollectedTerms:
    """`terms`: to search for. `columns`: how many values these are. `not_decided`: what they leave open."""

    terms: tuple[SearchTerm, ...] = ()
    columns: tuple[CollectedColumn, ...] = ()
    not_decided: tuple[NotDecided, ...] = ()


def needles_of(collected: CollectedNeedles) -> tuple[Needle, ...]:
    """Returns the values, and the parts of nested ones, each once. Empty values are left out."""
    found = (needle for value in collected.values for needle in _needles(value) if needle.value.strip())
    return tuple(dict.fromkeys(found))


def collected_terms(
    needles: Sequence[Needle],
    uncollected: Sequence[tuple[str, str]] = (),
    shared: Collection[int] = (),
    within: Collection[int] = (),
) -> CollectedTerms:
    """Returns the search terms of these values. `uncollected`: (column, reason) of columns whose values are unknown.
    `shared`: numbers of those that events of others have in the same column. `within`: of those that they hold
    anywhere."""
    searched, left, limited = Counter[str](), Counter[str](), Counter[str]()
    terms = []
    for number, needle in enumerate(needles):
        if number in shared or (number in within and needle.json is None):
            left[needle.label] += 1
            continue
        searched[needle.label] += 1
        is_anywhere = needle.may_be_anywhere and number not in within
        limited[needle.label] += needle.may_be_anywhere and not is_anywhere
        columns, table = ((), "") if is_anywhere else ((needle.column,), needle.table)
        terms.append(SearchTerm(needle.label, needle.value, columns, needle.type, table, is_collected=True))
    labels = dict.fromkeys(needle.label for needle in needles)
    open_ = [
        *(NotDecided(label, _count(left[label]), SHARED) for label in labels if left[label]),
        *(NotDecided(label, _count(limited[label]), WITHIN) for label in labels if limited[label]),
        *(NotDecided(column, "all values", why) for column, why in uncollected),
    ]
    columns_ = tuple(CollectedColumn(label, searched[label], left[label]) for label in labels)
    return CollectedTerms(tuple(terms), columns_, tuple(open_))


def _written(form: Form) -> Iterator[str]:
    """Yields how JSON writes a form."""
    if isinstance(form.body, bytes):
        yield base64.b64encode(form.body).decode().lower()
    elif isinstance(form.body, str):
        for ascii_only in (True, False):
            yield json.dumps(form.body, ensure_ascii=ascii_only)[1:-1].lower()
    else:
        yield f"{form.body:f}" if isinstance(form.body, Decimal) else str(form.body)


def _count(number: int) -> str:
    return f"{number:,} value" if number == 1 else f"{number:,} values"


def _needles(value: CollectedValue) -> Iterator[Needle]:
    document: Any = json.loads(value.json, parse_float=str, parse_int=str, parse_constant=str)["v"]
    if value.kind in _NESTED:
        if isinstance(document, str) and value.kind == "json":
            yield _needle(value, document, None, value.json)
            document = _parsed(document)
        for part in _leaves(document):
            yield _needle(value, part, None, None)
    else:
        text = str(document).lower() if isinstance(document, bool) else str(document)
        kind = _TYPES.get(value.kind)
        if kind is ValueType.BYTES:
            # Base64 may look like hexadecimal digits.
            text = base64.b64decode(text).hex()
        yield _needle(value, text, kind if kind is not None and is_of(text, kind) else None, value.json)


def _needle(value: CollectedValue, text: str, kind: ValueType | None, whole: str | None) -> Needle:
    is_anybodys = is_unspecific(text) or (kind or inferred_type(text) if text else kind) in _ANYBODYS
    return Needle(value.table, value.column, text, kind, value.kind in _ANYWHERE and not is_anybodys, whole)


def _parsed(text: str) -> Any:
    """Returns the document of a JSON text; None if it is none: then it has no parts."""
    try:
        return json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None


def _leaves(document: Any) -> Iterator[str]:
    """Yields the texts and numbers in a document. Names of members are not values."""
    waiting = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, str):
            yield one
