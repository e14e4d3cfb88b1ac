"""Columns of a changelog without a schema, out of the values themselves.

Of each value of a row image its kind is the text of a type of the lattice in `inferred_types`; a column has the join of
the kinds of its values. An aggregate collects the kinds of each column in one pass: `shape`, the text of an object of
columns, each an object of kinds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.connect_schema import declared
from ingest.changelog.spelling import Spelling
from ingest.changelog.values.columns import NUMBERS, Column, Encoding, WireType
from ingest.changelog.values.json_text import NUMBER, plain_number
from ingest.changelog.values.types import Kind, parse
from ingest.evolution.inferred_types import is_inferable, join_all, wire_of
from ingest.evolution.policies import TableColumn
from ingest.names import identifier
from ingest.spark.plain_json import WITHOUT_LIMITS

_OUTSIDE_QUOTES = re.compile(r"`(?:[^`]|``)*`|OBJECT<")
_IMAGES = "before variant, after variant"
_UNOPENED = "_corrupt"
_EXPONENT = "exponent"
"""Beside the kinds of a column: some number is written with an exponent, or with more digits than a VARIANT keeps."""
_ALWAYS_KEPT = 15
"""So many characters of a number have no more digits than a 64-bit float keeps, whichever they are."""
_TOO_LONG = r"[:,\[]\s*-?(?:(?:[0-9]\.?){39}|(?:[0-9]\.?){18,}[eE])"
_TOO_LARGE = r"[0-9][eE]\+?(?:309|3[1-9][0-9]|[4-9][0-9]{2}|[0-9]{4,})"
_TOO_SMALL = r"[0-9][eE]-(?:32[4-9]|3[3-9][0-9]|[4-9][0-9]{2}|[0-9]{4,})"
_PROVEN = {
    Encoding.BOOLEAN: {"boolean"},
    Kind.INT64: {"int53", "int64"},
    Kind.FLOAT64: {"int53", "float64"},
}
"""Kinds of values that are what their wire type says, without looking at each once more."""


def images(value: SparkColumn) -> SparkColumn:
    """Both row images of a schemaless value, whatever is in them; for `shape`. Nothing else of the value is kept."""
    opened = f"{_IMAGES}, payload struct<{_IMAGES}>, {_UNOPENED} string"
    return F.from_json(value, opened, {"columnNameOfCorruptRecord": _UNOPENED, **WITHOUT_LIMITS})


def are_whole(opened: SparkColumn) -> SparkColumn:
    """Whether all that is in `images` could be opened. An object that names a field twice can't: no shape tells of
    it."""
    return opened.isNotNull() & opened[_UNOPENED].isNull()


def shape(opened: SparkColumn, wrapped: SparkColumn) -> SparkColumn:
    """Aggregate: the kinds of values of each column in the row images (else the images before) of `images`, as text."""

    def image(member: str) -> SparkColumn:
        found = F.when(wrapped, opened["payload"][member]).otherwise(opened[member])
        return F.when(~F.is_variant_null(found), found)

    members = F.try_variant_get(F.coalesce(image("after"), image("before")), "$", "map<string,variant>")
    kinds = F.transform_values(members, lambda _, value: _kinds(value))
    return F.schema_of_variant_agg(F.to_variant_object(kinds))


def _kinds(value: SparkColumn) -> SparkColumn:
    """Returns a map whose keys are the kind of a value and, where it needs more care, `_EXPONENT`."""
    seen = F.schema_of_variant(value)
    kind = F.when(seen.rlike("OBJECT<|VARIANT"), F.lit("json")).otherwise(_plain_kind(value, seen))
    careful = seen.contains("DOUBLE")
    one = F.create_map(kind, F.lit(True))
    return F.when(careful, F.create_map(kind, F.lit(True), F.lit(_EXPONENT), F.lit(True))).otherwise(one)


def _plain_kind(value: SparkColumn, seen: SparkColumn) -> SparkColumn:
    """Returns the kind of a scalar, or of arrays of arrays of scalars of one kind. `seen`: its type as Spark says."""
    scalar = F.regexp_extract(seen, "^(?:ARRAY<)*([A-Z]+)", 1)
    number, whole = scalar.isin("BIGINT", "DECIMAL", "DOUBLE"), scalar == "BIGINT"
    text = F.to_json(value)
    long = number & text.rlike(f"[0-9.]{{{_ALWAYS_KEPT + 1}}}")
    found = F.when(long, F.regexp_extract_all(text, F.lit(NUMBER), F.lit(0)))
    inexact = F.coalesce(F.exists(found, lambda digits: ~_is_kept(digits)), F.lit(False))
    of_number = F.when(inexact, F.when(whole, "int64").otherwise("decimal_text"))
    of_number = of_number.otherwise(F.when(whole, "int53").otherwise("float64"))
    other = F.when(scalar == "VOID", F.lit("unknown")).otherwise(F.lower(scalar))
    depth = F.regexp_count(seen, F.lit("ARRAY<"))
    return F.concat(
        F.repeat(F.lit("array<"), depth), F.when(number, of_number).otherwise(other), F.repeat(F.lit(">"), depth)
    )


def _is_kept(digits: SparkColumn) -> SparkColumn:
    """Returns whether the digits of a number come back from a 64-bit float. What is written with an exponent, or as
    Spark writes a float (`1500.0`), is one."""
    back = plain_number(digits.try_cast("double").cast("string"))
    return digits.rlike(r"E|\.0$") | F.coalesce(back == digits, F.lit(False))


def inferred(shape_text: str | None) -> tuple[Column, ...]:
    """Columns out of the text that `shape` gives; none for a text that names no object."""
    found = []
    for name, kinds in _kinds_of(shape_text).items():
        own = join_all(parse(kind) for kind in kinds - {_EXPONENT})
        only_texts = kinds <= {"string", "unknown"}
        found.append(Column(name, wire_of(own, only_texts), own, inferred=True))
    return tuple(found)


def joined(one: str | None, other: str | None) -> str | None:
    """The shape of all values that had the one or the other, as `shape` would have joined them."""
    if one is None or other is None or one == other:
        return other if one is None else one
    both: dict[str, frozenset[str]] = dict(_kinds_of(one))
    for name, kinds in _kinds_of(other).items():
        both[name] = both.get(name, frozenset()) | kinds
    return _text({name: _text(dict.fromkeys(sorted(both[name]), "BOOLEAN")) for name in sorted(both)})


def _text(members: Mapping[str, str]) -> str:
    return f"OBJECT<{', '.join(f'{identifier(name)}: {kind}' for name, kind in members.items())}>"


@lru_cache(maxsize=512)
def _kinds_of(shape_text: str | None) -> Mapping[str, frozenset[str]]:
    if not shape_text or not shape_text.startswith("OBJECT<"):
        return {}
    parsed = T.DataType.fromDDL(_OUTSIDE_QUOTES.sub(lambda m: "STRUCT<" if m[0] == "OBJECT<" else m[0], shape_text))
    assert isinstance(parsed, T.StructType)
    return {f.name: frozenset(f.dataType.names) for f in parsed.fields if isinstance(f.dataType, T.StructType)}


def vouched(columns: Sequence[Column], shape_text: str | None) -> frozenset[str]:
    """Of the columns that no schema vouches for, those whose every value the shape of all images shows to be one of
    their type."""
    kinds = _kinds_of(shape_text)
    return frozenset(c.name for c in columns if c.wire.checked and c.name in kinds and _proves(kinds[c.name], c.wire))


def _proves(kinds: frozenset[str], wire: WireType) -> bool:
    of_number = wire.number if wire.encoding in NUMBERS else None
    if of_number is Kind.FLOAT64 and wire.encoding is not Encoding.NUMBER:
        return False
    proven = _PROVEN.get(of_number or wire.encoding, set())
    told = kinds - {"unknown"}
    return bool(told) and told <= proven


def holds_long_numbers(shape_text: str | None) -> bool:
    """Returns whether `is_inexact` has to be asked of each value that had the shape."""
    return any(_EXPONENT in kinds for kinds in _kinds_of(shape_text).values())


def is_inexact(value: SparkColumn) -> SparkColumn:
    """Returns whether JSON holds a number of more digits than a VARIANT keeps (38, with an exponent 17), or one that is
    no 64-bit float: without a schema nothing says what to make of it."""
    return value.cast("string").rlike(f"{_TOO_LONG}|{_TOO_LARGE}|{_TOO_SMALL}")


def settled(
    columns: Sequence[Column],
    table: Sequence[TableColumn],
    key: Sequence[str] = (),
    spelling: Spelling | None = None,
) -> tuple[Column, ...]:
    """Inferred columns as they are read for their table; and `key` columns that stand in the records' keys alone (a
    delete without an image)."""
    known = {c.name: c for c in table}
    names = (spelling or Spelling()).of([c.name for c in columns], known)
    named = {names[c.name]: c for c in columns}
    read = (_read_for(c, known.get(name)) for name, c in named.items())
    return (*read, *(read_as(known[k]) for k in key if k not in named))


def _read_for(column: Column, target: TableColumn | None) -> Column:
    if not column.inferred or target is None or not target.inferred:
        return column
    only_texts = column.wire.encoding is Encoding.TEXT
    return replace(column, wire=wire_of(target.type, only_texts))


def read_as(column: TableColumn) -> Column:
    """Returns how to read a table's column where no event says how it is written."""
    if column.inferred and is_inferable(column.type):
        return Column(column.name, wire_of(column.type), column.type, inferred=True)
    return declared(column.name, str(column.type))
