"""Infers the columns of a changelog without a schema from its values.

The kind of a value is the text of a type of the lattice in `inferred_types`; the type of a column is the join of the
kinds of its values. The aggregate `column_kinds` collects the kinds of each column in one pass, as the text of an
object type: its members are the columns, each an object type whose members are kinds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.connect_schema import declared_column
from ingest.changelog.spelling import Spelling
from ingest.evolution.inferred.lattice import is_inferable, join_all, wire_of
from ingest.evolution.policies import TableColumn
from ingest.jvm.plain_json import WITHOUT_LIMITS
from ingest.names import identifier
from ingest.values.columns import NUMBERS, Column, Encoding, WireType
from ingest.values.json_text import NUMBER, plain_number
from ingest.values.types import Kind, parse

_OUTSIDE_QUOTES = re.compile(r"`(?:[^`]|``)*`|OBJECT<")
_IMAGES = "before variant, after variant"
_CORRUPT = "_ingest_corrupt"
_EXPONENT = "exponent"
"""A mark among the kinds of a column: some number has an exponent, or may have more digits than a VARIANT keeps."""
_EXACT_DIGITS = 15
"""The number of decimal digits that a 64-bit float always keeps."""
_TOO_LONG = r"[:,\[]\s*-?(?:(?:[0-9]\.?){39}|(?:[0-9]\.?){18,}[eE])"
_TOO_LARGE = r"[0-9][eE]\+?(?:309|3[1-9][0-9]|[4-9][0-9]{2}|[0-9]{4,})"
_TOO_SMALL = r"[0-9][eE]-(?:32[4-9]|3[3-9][0-9]|[4-9][0-9]{2}|[0-9]{4,})"
_PROVEN = {
    Encoding.BOOLEAN: {"boolean"},
    Kind.INT64: {"int53", "int64"},
    Kind.FLOAT64: {"int53", "float64"},
}
"""Kinds that prove a value to be of its wire type, so that it needs no check."""


def parsed_images(value: SparkColumn) -> SparkColumn:
    """Returns both row images of a value without a schema, as a struct of VARIANTs, for `column_kinds`."""
    parsed_value = f"{_IMAGES}, payload struct<{_IMAGES}>, {_CORRUPT} string"
    return F.from_json(value, parsed_value, {"columnNameOfCorruptRecord": _CORRUPT, **WITHOUT_LIMITS})


def are_parsed(parsed_value: SparkColumn) -> SparkColumn:
    """Returns true if `images` could be parsed. An object that has a field twice can't be: `column_kinds` doesn't see
    it."""
    return parsed_value.isNotNull() & parsed_value[_CORRUPT].isNull()


def column_kinds(parsed_value: SparkColumn, wrapped: SparkColumn) -> SparkColumn:
    """Returns an aggregate: the kinds of each column's values in images after, or before if there is none, as text.

    `opened`: a column from `images`. `wrapped`: true if the images are in a `payload`.
    """

    def image(member: str) -> SparkColumn:
        found = F.when(wrapped, parsed_value["payload"][member]).otherwise(parsed_value[member])
        return F.when(~F.is_variant_null(found), found)

    members = F.try_variant_get(F.coalesce(image("after"), image("before")), "$", "map<string,variant>")
    kinds = F.transform_values(members, lambda _, value: _kinds(value))
    return F.schema_of_variant_agg(F.to_variant_object(kinds))


def _kinds(value: SparkColumn) -> SparkColumn:
    """Returns a map whose keys are the kind of a value and, for a number that may be inexact, `_EXPONENT`."""
    variant_type = F.schema_of_variant(value)
    kind = F.when(variant_type.rlike("OBJECT<|VARIANT"), F.lit("json")).otherwise(_plain_kind(value, variant_type))
    may_be_inexact = variant_type.contains("DOUBLE")
    one = F.create_map(kind, F.lit(True))
    return F.when(may_be_inexact, F.create_map(kind, F.lit(True), F.lit(_EXPONENT), F.lit(True))).otherwise(one)


def _plain_kind(value: SparkColumn, variant_type: SparkColumn) -> SparkColumn:
    """Returns the kind of a scalar, or of nested arrays of scalars of one kind. `variant_type`: its
    `schema_of_variant`."""
    scalar = F.regexp_extract(variant_type, "^(?:ARRAY<)*([A-Z]+)", 1)
    is_number, is_whole = scalar.isin("BIGINT", "DECIMAL", "DOUBLE"), scalar == "BIGINT"
    text = F.to_json(value)
    is_long = is_number & text.rlike(f"[0-9.]{{{_EXACT_DIGITS + 1}}}")
    numbers = F.when(is_long, F.regexp_extract_all(text, F.lit(NUMBER), F.lit(0)))
    inexact = F.coalesce(F.exists(numbers, lambda digits: ~_is_exact(digits)), F.lit(False))
    number_kind = F.when(inexact, F.when(is_whole, "int64").otherwise("decimal_text"))
    number_kind = number_kind.otherwise(F.when(is_whole, "int53").otherwise("float64"))
    other_kind = F.when(scalar == "VOID", F.lit("unknown")).otherwise(F.lower(scalar))
    depth = F.regexp_count(variant_type, F.lit("ARRAY<"))
    return F.concat(
        F.repeat(F.lit("array<"), depth),
        F.when(is_number, number_kind).otherwise(other_kind),
        F.repeat(F.lit(">"), depth),
    )


def _is_exact(digits: SparkColumn) -> SparkColumn:
    """Returns true if a 64-bit float keeps the digits of a number. A number with an exponent, or in the form of a float
    (`1500.0`), is one already."""
    round_trip = plain_number(digits.try_cast("double").cast("string"))
    return digits.rlike(r"E|\.0$") | F.coalesce(round_trip == digits, F.lit(False))


def inferred_columns(kinds_text: str | None) -> tuple[Column, ...]:
    """Returns the columns of a text from `column_kinds`; none if it is not that of an object."""
    found = []
    for name, kinds in _kinds_of(kinds_text).items():
        joined = join_all(parse(kind) for kind in kinds - {_EXPONENT})
        only_texts = kinds <= {"string", "unknown"}
        found.append(Column(name, wire_of(joined, only_texts), joined, inferred=True))
    return tuple(found)


def union_of_kinds(one: str | None, other: str | None) -> str | None:
    """Returns the union of two texts from `column_kinds`: that of all values together."""
    if one is None or other is None or one == other:
        return other if one is None else one
    both: dict[str, frozenset[str]] = dict(_kinds_of(one))
    for name, kinds in _kinds_of(other).items():
        both[name] = both.get(name, frozenset()) | kinds
    return _text({name: _text(dict.fromkeys(sorted(both[name]), "BOOLEAN")) for name in sorted(both)})


def _text(members: Mapping[str, str]) -> str:
    return f"OBJECT<{', '.join(f'{identifier(name)}: {kind}' for name, kind in members.items())}>"


@lru_cache(maxsize=512)
def _kinds_of(kinds_text: str | None) -> Mapping[str, frozenset[str]]:
    if not kinds_text or not kinds_text.startswith("OBJECT<"):
        return {}
    parsed_type = T.DataType.fromDDL(
        _OUTSIDE_QUOTES.sub(lambda m: "STRUCT<" if m[0] == "OBJECT<" else m[0], kinds_text)
    )
    assert isinstance(parsed_type, T.StructType)
    return {f.name: frozenset(f.dataType.names) for f in parsed_type.fields if isinstance(f.dataType, T.StructType)}


def proven_columns(columns: Sequence[Column], kinds_text: str | None) -> frozenset[str]:
    """Returns the names of the checked columns whose values are all proven, by `kinds_text`, to be of their type."""
    kinds = _kinds_of(kinds_text)
    return frozenset(c.name for c in columns if c.wire.checked and c.name in kinds and _proves(kinds[c.name], c.wire))


def _proves(kinds: frozenset[str], wire: WireType) -> bool:
    of_number = wire.number if wire.encoding in NUMBERS else None
    if of_number is Kind.FLOAT64 and wire.encoding is not Encoding.NUMBER:
        return False
    proven = _PROVEN.get(of_number or wire.encoding, set())
    known = kinds - {"unknown"}
    return bool(known) and known <= proven


def holds_long_numbers(kinds_text: str | None) -> bool:
    """Returns true if `is_inexact` has to test each of the values that `kinds_text` was made from."""
    return any(_EXPONENT in kinds for kinds in _kinds_of(kinds_text).values())


def is_inexact(value: SparkColumn) -> SparkColumn:
    """Returns true for JSON with a number of more digits than a VARIANT keeps (38, or 17 with an exponent), or beyond
    the range of a 64-bit float. Without a schema such a number has no type."""
    return value.cast("string").rlike(f"{_TOO_LONG}|{_TOO_LARGE}|{_TOO_SMALL}")


def columns_for_table(
    columns: Sequence[Column],
    table: Sequence[TableColumn],
    key: Sequence[str] = (),
    spelling: Spelling | None = None,
) -> tuple[Column, ...]:
    """Returns columns with inferred ones typed as in their table, and the `key` columns that only records' keys have
    (as in a delete without an image)."""
    known = {c.name: c for c in table}
    names = (spelling or Spelling()).table_names([c.name for c in columns], known)
    named = {names[c.name]: c for c in columns}
    read = (_read_for(c, known.get(name)) for name, c in named.items())
    return (*read, *(stored_column(known[k]) for k in key if k not in named))


def _read_for(column: Column, target: TableColumn | None) -> Column:
    if not column.inferred or target is None or not target.inferred:
        return column
    only_texts = column.wire.encoding is Encoding.TEXT
    return replace(column, wire=wire_of(target.type, only_texts))


def stored_column(column: TableColumn) -> Column:
    """Returns the column by which to read a table's column if no event defines its encoding."""
    if column.inferred and is_inferable(column.type):
        return Column(column.name, wire_of(column.type), column.type, inferred=True)
    return declared_column(column.name, str(column.type))
