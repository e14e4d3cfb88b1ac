"""Normal forms in which values of a Postgres table and of silver are compared, for each Postgres type.

The forms are exact: decimals are text without trailing zeros, timestamps are whole microseconds, dates are days since
1970-01-01, and only floats are compared as floats. Times outside of the years 1 to 9999 are compared as the pipeline's
`times_out_of_range` converts them; a row that it quarantines counts as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.values.temporal import FIRST_INSTANT, FIRST_MICROS, LAST_MICROS
from ingest.values.types import INFINITY_MICROS, MINUS_INFINITY_MICROS, OutOfRange

_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class NormalForm:
    """`sql`: a Postgres expression over `{v}`, which psycopg returns as `arrow`. `silver`: converts a silver column
    whose type is one of `stored` to the same form; for an array, `stored` are the types of its elements."""

    sql: str
    arrow: pa.DataType
    silver: Callable[[Column], Column]
    stored: tuple[type[T.DataType], ...]
    is_array: bool = False

    def takes(self, data_type: T.DataType) -> bool:
        """Returns True if the form can be computed from a silver column of this type."""
        if self.is_array:
            return isinstance(data_type, T.ArrayType) and isinstance(data_type.elementType, self.stored)
        return isinstance(data_type, self.stored)


def _unchanged(value: Column) -> Column:
    return value


def _digits(value: Column) -> Column:
    """Returns a decimal's text as Postgres' trim_scale writes it."""
    text = value.cast("string")
    trimmed = F.regexp_replace(F.regexp_replace(text, r"(\.\d*?)0+$", "$1"), r"\.$", "")
    return F.when(trimmed == "-0", "0").otherwise(trimmed)


def _micros(value: Column) -> Column:
    """Returns microseconds. The session's time zone is UTC, so a timestamp without a zone is the same number as in
    Postgres."""
    return F.unix_micros(value.cast("timestamp"))


def _in_range(value: str, first: str, last: str, rule: OutOfRange) -> str:
    """Returns the SQL of a date or timestamp as silver stores it."""
    match rule:
        case OutOfRange.KEEP:
            return value
        case OutOfRange.SET_NULL:
            return f"CASE WHEN {value} BETWEEN {first} AND {last} THEN {value} END"
        case _:
            return f"CASE WHEN {value} < {first} THEN {first} WHEN {value} > {last} THEN {last} ELSE {value} END"


def _instant(kind: str, zone: str, rule: OutOfRange) -> str:
    ends = (FIRST_INSTANT if zone else FIRST_MICROS, LAST_MICROS)
    first, last = (f"{kind} '{_EPOCH + timedelta(microseconds=micros)}{zone}'" for micros in ends)
    inside = _in_range("{v}", first, last, rule)
    return (
        f"CASE {inside} WHEN 'infinity' THEN {INFINITY_MICROS} WHEN '-infinity' THEN {MINUS_INFINITY_MICROS} "
        f"ELSE (extract(epoch FROM {inside}) * 1000000)::bigint END"
    )


def _days(rule: OutOfRange) -> str:
    inside = _in_range("{v}", "DATE '0001-01-01'", "DATE '9999-12-31'", rule)
    return f"({inside} - DATE '1970-01-01')::bigint"


_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_INTEGER = NormalForm("{v}::bigint", pa.int64(), lambda v: v.cast("bigint"), _INTEGERS)
_FLOAT = NormalForm("{v}::double precision", pa.float64(), lambda v: v.cast("double"), (T.FloatType, T.DoubleType))
_TEXT = NormalForm("{v}", pa.string(), _unchanged, (T.StringType,))
_AS_TEXT = NormalForm("{v}::text", pa.string(), _unchanged, (T.StringType,))
_BY_NAME = {
    "bool": NormalForm("{v}", pa.bool_(), _unchanged, (T.BooleanType,)),
    **dict.fromkeys(("int2", "int4", "int8"), _INTEGER),
    **dict.fromkeys(("float4", "float8"), _FLOAT),
    "numeric": NormalForm("trim_scale({v})::text", pa.string(), _digits, (T.DecimalType, T.StringType)),
    **dict.fromkeys(("text", "varchar", "bpchar"), _TEXT),
    **dict.fromkeys(("uuid", "json", "jsonb", "xml", "citext", "time"), _AS_TEXT),
    "bytea": NormalForm("{v}", pa.binary(), _unchanged, (T.BinaryType,)),
}


def _of_time(type_name: str, rule: OutOfRange) -> NormalForm | None:
    match type_name:
        case "date":
            return NormalForm(_days(rule), pa.int64(), lambda v: F.unix_date(v).cast("bigint"), (T.DateType,))
        case "timestamp":
            return NormalForm(_instant("TIMESTAMP", "", rule), pa.int64(), _micros, (T.TimestampNTZType,))
        case "timestamptz":
            return NormalForm(_instant("TIMESTAMPTZ", "+00", rule), pa.int64(), F.unix_micros, (T.TimestampType,))
        case _:
            return None


def normal_form(type_name: str, is_enum: bool, times: OutOfRange = OutOfRange.CLAMP) -> NormalForm | None:
    """Returns the form of a scalar type by its `typname` in pg_type; None if there is no exact one."""
    return _AS_TEXT if is_enum else _BY_NAME.get(type_name) or _of_time(type_name, times)


def array_form(element: NormalForm) -> NormalForm:
    """Returns the form of a one-dimensional array."""
    inner = element.sql.format(v="e.v")
    sql = (
        "CASE WHEN {v} IS NOT NULL THEN "
        f"ARRAY(SELECT {inner} FROM unnest({{v}}) WITH ORDINALITY AS e(v, n) ORDER BY n) END"
    )
    return NormalForm(
        sql, pa.list_(element.arrow), lambda v: F.transform(v, element.silver), element.stored, is_array=True
    )


@dataclass(frozen=True)
class NormalisedColumn:
    """A column of the source and its form."""

    name: str
    form: NormalForm


def normalised_columns(silver_type: T.StructType, columns: Sequence[NormalisedColumn]) -> list[Column]:
    """Returns each column of a silver table in its form; null if it is absent or of another type."""
    found = {f.name: f.dataType for f in silver_type.fields}
    return [_normalised(column, found.get(column.name)) for column in columns]


def _normalised(column: NormalisedColumn, stored: T.DataType | None) -> Column:
    if stored is None or not column.form.takes(stored):
        return F.lit(None).alias(column.name)
    return column.form.silver(F.col("`" + column.name.replace("`", "``") + "`")).alias(column.name)
