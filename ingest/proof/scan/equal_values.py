"""Counts the values of a decoded column that are a searched value as a whole, in any of its forms."""

from __future__ import annotations

import base64
import unicodedata
from collections.abc import Iterator, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from ingest.proof.forms import Form
from ingest.proof.forms.encodings import IN_COLUMN
from ingest.proof.forms.typed_forms import AS_GIVEN, UNSCALED
from ingest.proof.scan.leaf import Leaf
from ingest.proof.scan.search_terms import SearchTerm


def equal_values(term: SearchTerm, leaf: Leaf) -> Iterator[tuple[str, str, int]]:
    """Yields label, form and count of the values that equal a form of the term: in its columns any form, elsewhere
    numbers that are long enough; texts and bytes elsewhere are found by their patterns."""
    is_named = is_in_columns(term.short_columns, leaf.path)
    is_number = _is_number(leaf.values.type)
    for form in term.forms:
        is_anywhere = is_number and form.is_specific and not term.columns and not isinstance(form.body, bytes)
        if (is_anywhere or (is_named and (term.columns or not form.is_specific))) and (
            count := count_equal(leaf.values, form)
        ):
            yield term.label, IN_COLUMN if form.name == AS_GIVEN else form.name, count


def is_in_columns(columns: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Returns True if a path ends with one of the columns, or is one, in whatever case."""
    names = {c.casefold() for c in columns}
    return path[-1].casefold() in names or ".".join(path).casefold() in names


def count_equal(values: pa.Array, form: Form) -> int:
    """Returns the number of values that equal the form in the type of the column."""
    kind, body = values.type, form.body
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return count_equal(values.cast(pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()), form)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(values, body, form.name != UNSCALED)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _binary(values, body)
    if isinstance(body, bytes):
        return 0
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        # A time counts with whatever follows the text: a finer fraction, a zone.
        if not isinstance(body, str):
            return 0
        written = body.replace("T", " ") if pa.types.is_timestamp(kind) else body
        return _count(pc.utf8_slice_codeunits(values.cast(pa.string()), 0, len(written)), [written])
    return _numbers(values, body) if _is_number(kind) else 0


def _texts(values: pa.Array, body: str | int | Decimal | bytes, in_hex: bool = True) -> int:
    if isinstance(body, bytes):
        written = [base64.b64encode(body).decode(), *((body.hex(), f"\\x{body.hex()}") if in_hex else ())]
        return _count(values, written)
    text = f"{body:f}" if isinstance(body, Decimal) else str(body)
    return _count(pc.utf8_lower(values), _lowered(text))


def _binary(values: pa.Array, body: str | int | Decimal | bytes) -> int:
    if isinstance(body, bytes):
        return _count(values, [body])
    try:
        return _texts(values.cast(pa.large_string()), body)
    except pa.ArrowInvalid:
        text = f"{body:f}" if isinstance(body, Decimal) else str(body)
        cases = {case(text) for case in (str, str.lower, str.upper, str.title, str.casefold)}
        return _count(values, [one.encode("utf-8", "surrogatepass") for one in cases])


def _numbers(values: pa.Array, body: str | int | Decimal) -> int:
    try:
        number = Decimal(body)
    except ArithmeticError:
        return 0
    if not number.is_finite():
        return 0
    wanted = _as_number(number, values.type)
    return 0 if wanted is None else _count(values, [wanted])


def _lowered(text: str) -> list[str]:
    """Returns what Arrow's lower case makes of all texts that fold to the same."""
    cases = {text.lower(), text.upper().lower(), text.casefold()}
    return [unicodedata.normalize(form, case) for case in cases for form in ("NFC", "NFD")]


def _count(values: pa.Array, wanted: Sequence[object]) -> int:
    try:
        found = pa.array(dict.fromkeys(wanted), values.type)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        # The type can't represent this value.
        return 0
    return int(pc.sum(pc.is_in(values, found)).as_py() or 0)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _as_number(number: Decimal, kind: pa.DataType) -> object:
    if pa.types.is_decimal(kind):
        return number
    if pa.types.is_integer(kind):
        return int(number) if number == number.to_integral_value() else None
    return float(number)
