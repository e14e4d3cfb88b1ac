"""Exact decimals out of bytes, JSON numbers and text, as Spark SQL expressions. No step goes through a float.

A JSON number comes as VARIANT, which keeps up to 38 digits exactly and makes a double of anything longer or
written with an exponent. Such a double is taken back to a decimal only where that provably gives the number
that was written, else the value is null here, which `decode.undecodable` reports.
"""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from ingest.changelog.types import MAX_DIGITS, Kind, LogicalType, spark_type

_WORD = 2**32
_LIMB = 10**9
_MAX_SCALE = 20_000  # Postgres' numeric has at most 16,383 digits after the point
_DOUBLE_SCALE = 21
_PLAIN = r"^[+-]?[0-9]+(\.[0-9]+)?$"


def from_unscaled(variant: SparkColumn, scale: int, target: LogicalType) -> SparkColumn:
    """Connect's Decimal: base64 of the big-endian two's complement of value * 10^scale, or a JSON number."""
    shape = F.schema_of_variant(variant)
    text = F.try_variant_get(variant, "$", "string")
    unscaled = F.try_to_binary(text, F.lit("base64"))
    number = _from_number(variant, shape, text, scale, target)
    if target.kind is Kind.DECIMAL_TEXT:
        encoded = placed(_digits(unscaled), F.lit(scale))
        return F.when(shape == "STRING", encoded).otherwise(number)
    # The first condition reads `unscaled`, so Spark computes it once for all branches.
    wide = F.octet_length(unscaled) > 8
    pointed = F.when(wide, _digits_16(unscaled)).otherwise(_digits_8(unscaled))
    encoded = F.concat(pointed, F.lit(f"E{-scale}")).try_cast(spark_type(target))
    return F.when(shape == "STRING", encoded).otherwise(number)


def from_plain(variant: SparkColumn, scale: int, target: LogicalType) -> SparkColumn:
    """A JSON number, or its digits as text; `scale` is the declared one, 38 where none is."""
    shape = F.schema_of_variant(variant)
    text = F.try_variant_get(variant, "$", "string")
    digits = F.when(text.rlike(_PLAIN), F.regexp_replace(text, r"^\+", ""))
    number = _from_number(variant, shape, text, scale, target)
    return F.when(shape == "STRING", _from_digits(digits, target)).otherwise(number)


def from_variable_scale(value: SparkColumn) -> SparkColumn:
    """Debezium's VariableScaleDecimal, a struct of `scale` and the base64 `value`, as decimal text."""
    unscaled = F.try_to_binary(value["value"], F.lit("base64"))
    return placed(_digits(unscaled), value["scale"])


def placed(digits: SparkColumn, scale: SparkColumn) -> SparkColumn:
    """The text of `digits` * 10^-scale, with `scale` digits after the point where that is positive."""
    sign = F.when(digits.startswith("-"), F.lit("-")).otherwise(F.lit(""))
    magnitude = F.ltrim(digits, F.lit("-"))
    length = F.length(magnitude)
    padded = F.lpad(magnitude, F.greatest(length, scale + 1), F.lit("0"))
    whole = F.left(padded, F.length(padded) - scale)
    with_point = F.concat(sign, whole, F.lit("."), F.right(padded, scale))
    with_zeros = F.when(magnitude == "0", magnitude).otherwise(F.concat(sign, magnitude, F.repeat(F.lit("0"), -scale)))
    return F.when(scale.between(-_MAX_SCALE, _MAX_SCALE), F.when(scale > 0, with_point).otherwise(with_zeros))


def _from_number(
    variant: SparkColumn, shape: SparkColumn, text: SparkColumn, scale: int, target: LogicalType
) -> SparkColumn:
    exact = F.when((shape == "BIGINT") | shape.startswith("DECIMAL"), _from_digits(text, target))
    if scale > _DOUBLE_SCALE:
        return exact
    return exact.when(shape == "DOUBLE", _from_double(variant, text, target))


def _from_digits(text: SparkColumn, target: LogicalType) -> SparkColumn:
    if target.kind is Kind.DECIMAL_TEXT:
        return text
    fraction = F.rtrim(F.split_part(text, F.lit("."), F.lit(2)), F.lit("0"))
    return F.when(F.length(fraction) <= target.scale, text.try_cast(spark_type(target)))


def _from_double(variant: SparkColumn, text: SparkColumn, target: LogicalType) -> SparkColumn:
    """A number that Java's BigDecimal wrote with an exponent.

    It does so below 10^-6, and where trailing zeros were dropped from a whole number. With at most 21 digits
    after the point the former has at most 15 digits, and the latter is read only up to 15: a double keeps
    both. Whatever else became a double has more than 38 digits, so it is in neither range.
    """
    double = F.try_variant_get(variant, "$", "double")
    as_text = target.kind is Kind.DECIMAL_TEXT
    roomy = f"decimal({MAX_DIGITS},{_DOUBLE_SCALE})"
    decimal = text.try_cast(roomy if as_text else spark_type(target))
    whole = (F.abs(double) < 1e15) & (F.floor(double) == double)
    result = F.regexp_replace(decimal.cast("string"), r"\.?0+$", "") if as_text else decimal
    return F.when(((F.abs(double) < 1e-6) | whole) & (decimal.cast("double") == double), result)


def _digits(unscaled: SparkColumn) -> SparkColumn:
    length = F.octet_length(unscaled)
    narrow = F.when(length <= 8, _digits_8(unscaled)).when(length <= 16, _digits_16(unscaled))
    return F.coalesce(narrow, _digits_any(unscaled))


def _fill(unscaled: SparkColumn) -> SparkColumn:
    """The hexadecimal digit that extends the sign."""
    return F.when(unscaled >= F.lit(b"\x80"), F.lit("F")).otherwise(F.lit("0"))


def _digits_8(unscaled: SparkColumn) -> SparkColumn:
    return F.when(F.octet_length(unscaled) > 0, F.conv(F.lpad(F.hex(unscaled), 16, _fill(unscaled)), 16, -10))


def _digits_16(unscaled: SparkColumn) -> SparkColumn:
    """Null beyond 16 bytes or 38 digits."""
    words = F.lpad(F.hex(unscaled), 32, _fill(unscaled))
    high = F.conv(F.left(words, F.lit(16)), 16, -10).cast("decimal(20,0)")
    low = F.conv(F.right(words, F.lit(16)), 16, 10).cast("decimal(20,0)")
    shifted = F.try_multiply(high, F.lit(str(2**64)).cast("decimal(20,0)"))
    total = F.try_add(shifted, low).try_cast(f"decimal({MAX_DIGITS},0)")
    return F.when(F.octet_length(unscaled) <= 16, total.cast("string"))


def _digits_any(unscaled: SparkColumn) -> SparkColumn:
    """Base 2^32 to base 10^9 by long multiplication: for numbers that no type of Spark holds."""
    count = F.call_function("div", F.octet_length(unscaled) + 3, F.lit(4)).cast("int")
    words = F.lpad(F.hex(unscaled), count * 8, _fill(unscaled))
    negative = unscaled >= F.lit(b"\x80")
    inverted = F.when(negative, F.translate(words, "0123456789ABCDEF", "FEDCBA9876543210")).otherwise(words)
    each = F.transform(
        F.sequence(F.lit(0), count - 1),
        lambda i: F.conv(F.substring(inverted, i * 8 + 1, F.lit(8)), 16, 10).cast("bigint"),
    )
    zero = F.array(F.lit(0).cast("bigint"))
    limbs = F.aggregate(each, zero, lambda limbs, word: _times_plus(limbs, _WORD, word))
    limbs = _times_plus(limbs, 1, negative.cast("bigint"))
    text = F.array_join(F.reverse(F.transform(limbs, lambda limb: F.lpad(limb.cast("string"), 9, "0"))), "")
    magnitude = F.ltrim(text, F.lit("0"))
    sign = F.when(negative, F.lit("-")).otherwise(F.lit(""))
    signed = F.when(magnitude == "", F.lit("0")).otherwise(F.concat(sign, magnitude))
    return F.when(F.octet_length(unscaled) > 0, signed)


def _times_plus(limbs: SparkColumn, factor: int, addend: SparkColumn) -> SparkColumn:
    """`limbs` * factor + addend, little-endian in base 10^9; factor and addend are at most 2^32."""
    start = F.struct(addend.alias("carry"), F.array().cast("array<bigint>").alias("limbs"))

    def step(state: SparkColumn, limb: SparkColumn) -> SparkColumn:
        total = limb * F.lit(factor).cast("bigint") + state["carry"]
        return F.struct(
            F.call_function("div", total, F.lit(_LIMB).cast("bigint")).alias("carry"),
            F.concat(state["limbs"], F.array(total % _LIMB)).alias("limbs"),
        )

    def finish(state: SparkColumn) -> SparkColumn:
        carry = state["carry"]
        rest = F.array(carry % _LIMB, F.call_function("div", carry, F.lit(_LIMB).cast("bigint")))
        return F.when(carry > 0, F.concat(state["limbs"], rest)).otherwise(state["limbs"])

    return F.aggregate(limbs, start, step, finish)
