"""Decodes exact decimals from bytes, JSON numbers and text, as Spark SQL expressions, without any loss to a float.

A JSON number is read as VARIANT, which keeps up to 38 digits exactly and turns longer numbers and those with an
exponent into doubles. A double is converted to a decimal only if that provably gives the number that was written; else
the result is null, which `decode.undecodable` reports.

`_computed_once` computes a value once that is used often: Spark eliminates no common subexpressions inside of CASE
branches, and the JVM never compiles a generated method of more than 8,000 bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from ingest.values.base64_text import is_base64, is_base64_of_1_to_8, is_base64_of_9_to_16
from ingest.values.types import MAX_DIGITS, Kind, LogicalType, spark_type

_WORD = 2**32
_LIMB = 10**9
_MAX_SCALE = 20_000  # Postgres' numeric has at most 16,383 digits after the point
_DOUBLE_SCALE = 21
_SPECIAL = {"NAN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}
"""The special values of Postgres' numeric: Debezium's text → that of Postgres."""
_PLAIN = r"^[+-]?[0-9]+(\.[0-9]+)?$"


def from_unscaled(variant: SparkColumn, scale: int, target: LogicalType) -> SparkColumn:
    """Returns the decimal of Connect's Decimal: base64 of the big-endian two's complement of value * 10^scale, or a
    JSON number. Null if it can't be decoded."""

    def read(text: SparkColumn) -> SparkColumn:
        if target.kind is Kind.DECIMAL_TEXT:
            written = placed(_digits(text), F.lit(scale))
        else:
            narrow = F.when(is_base64_of_1_to_8(text), _digits_of_8(text))
            digits = narrow.when(is_base64_of_9_to_16(text), _digits_of_16(text))
            written = F.concat(digits, F.lit(f"E{-scale}")).try_cast(spark_type(target))
        return F.when(_is_utf8_text(variant), written).otherwise(_from_number(text, scale, target))

    return _computed_once(text_of(variant), read)


def from_plain(variant: SparkColumn, scale: int, target: LogicalType) -> SparkColumn:
    """Returns the decimal of a JSON number, or of its digits as text. Null if it can't be decoded.

    `scale`: the declared one, 38 if none is. NaN and infinity are values of `decimal_text` only.
    """

    def read(text: SparkColumn) -> SparkColumn:
        digits = F.regexp_replace(text, r"^\+", "")
        if target.kind is not Kind.DECIMAL_TEXT:
            fraction = F.rtrim(F.split_part(text, F.lit("."), F.lit(2)), F.lit("0"))
            digits = F.when(F.length(fraction) <= target.scale, text.try_cast(spark_type(target)))
        written = F.when(text.rlike(_PLAIN), digits)
        for word, spelled in _SPECIAL.items() if target.kind is Kind.DECIMAL_TEXT else ():
            written = written.when(text == word, F.lit(spelled))
        return F.when(_is_utf8_text(variant), written).otherwise(_from_number(text, scale, target))

    return _computed_once(text_of(variant), read)


def from_variable_scale(value: SparkColumn) -> SparkColumn:
    """Returns Debezium's VariableScaleDecimal, a struct of `scale` and the base64 `value`, as decimal text."""
    return placed(_computed_once(value["value"], _digits), value["scale"])


def text_of(variant: SparkColumn) -> SparkColumn:
    """Returns the text of a VARIANT: a string as it is, anything else as JSON; null for a JSON null."""
    return F.variant_get(variant, "$", "string")


def placed(digits: SparkColumn, scale: SparkColumn) -> SparkColumn:
    """Returns the text of `digits` * 10^-scale, with `scale` digits after the point if that is positive."""
    zero = F.lit("0")
    led = F.regexp_replace(digits, F.lit("^(?!-)|(?<=^-)"), F.repeat(zero, scale))
    parts = F.concat(F.lit("^(-?)0*([0-9]+?)([0-9]{"), F.greatest(scale, F.lit(0)), F.lit("})$"))
    pointed = F.regexp_replace(F.concat(led, F.repeat(zero, -scale)), parts, F.lit("$1$2.$3"))
    return F.when(scale.between(-_MAX_SCALE, _MAX_SCALE), F.rtrim(pointed, F.lit(".")))


def _computed_once(value: SparkColumn, body: Callable[[SparkColumn], SparkColumn]) -> SparkColumn:
    """Returns `body(value)`, where `value` is computed once however often `body` uses it."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


def _is_utf8_text(variant: SparkColumn) -> SparkColumn:
    return F.schema_of_variant(variant) == "STRING"


def _from_number(text: SparkColumn, scale: int, target: LogicalType) -> SparkColumn:
    """Returns the decimal of `text`, a VARIANT's number; null if it may have lost digits.

    The text is plain and without trailing zeros, or that of a double (`1.0E-7`, `1500.0`). Java's BigDecimal, by which
    Debezium writes, uses an exponent below 10^-6, and for a whole number whose trailing zeros were stripped. With at
    most 21 digits after the point the former has at most 15 digits, and the latter is accepted only up to 15: a double
    keeps both exactly. Any other double stands for more than 38 digits and is in neither range.
    """
    if target.kind is Kind.DECIMAL_TEXT:
        number = text.try_cast(f"decimal({MAX_DIGITS},{_DOUBLE_SCALE})")
        from_double = _shortest(number)
        from_plain = F.when(text.rlike(r"^-?[0-9]+(\.[0-9]*[1-9])?$"), text)
    else:
        number = from_double = text.try_cast(spark_type(target))
        canonical = _shortest(number) if target.scale else number.cast("string")
        from_plain = F.when(text == canonical, number)
    if scale > _DOUBLE_SCALE:
        return from_plain
    double = text.try_cast("double")
    is_exact = (F.abs(double) < 1e-6) | ((F.abs(double) < 1e15) & (F.floor(double) == double))
    return from_plain.when(text.rlike(r"E|\.0$") & is_exact & (number.cast("double") == double), from_double)


def _shortest(number: SparkColumn) -> SparkColumn:
    return F.regexp_replace(number.cast("string"), r"\.?0+$", "")


def _digits(text: SparkColumn) -> SparkColumn:
    return (
        F.when(is_base64_of_1_to_8(text), _digits_of_8(text))
        .when(is_base64_of_9_to_16(text), F.coalesce(_digits_of_16(text), _digits_of_any(text)))
        .when(is_base64(text) & (text != ""), _digits_of_any(text))
    )


def _is_negative(text: SparkColumn) -> SparkColumn:
    """Returns the sign bit of base64 text, from its first character: cheaper than after decoding."""
    return (text >= "g") | (text < "A")


def _hex(text: SparkColumn, digits: int | SparkColumn) -> SparkColumn:
    """Returns the bytes in hexadecimal, sign-extended to `digits` digits."""
    return F.lpad(F.hex(F.unbase64(text)), digits, F.when(_is_negative(text), F.lit("F")).otherwise(F.lit("0")))


def _digits_of_8(text: SparkColumn) -> SparkColumn:
    return F.conv(_hex(text, 16), 16, -10)


def _digits_of_16(text: SparkColumn) -> SparkColumn:
    """Returns the decimal digits of 9 to 16 bytes; null for more than 38 digits."""
    words = _hex(text, 32)
    high = F.conv(F.left(words, F.lit(16)), 16, -10).cast("decimal(20,0)")
    low = F.conv(F.right(words, F.lit(16)), 16, 10).cast("decimal(20,0)")
    # `high` is rounded towards zero, so that no partial result has more digits than the total.
    borrowed = F.when(_is_negative(text), F.lit(1)).otherwise(F.lit(0)).cast("decimal(20,0)")
    word = F.lit(str(2**64)).cast("decimal(20,0)")
    whole = F.try_multiply(high + borrowed, word)
    return F.try_add(whole, low - borrowed * word).try_cast(f"decimal({MAX_DIGITS},0)").cast("string")


def _digits_of_any(text: SparkColumn) -> SparkColumn:
    """Returns the decimal digits of any number of bytes, by long multiplication from base 2^32 to base 10^9: no type of
    Spark holds such numbers."""
    count = F.call_function("div", F.octet_length(F.unbase64(text)) + 3, F.lit(4)).cast("int")
    negative = _is_negative(text)
    words = _hex(text, count * 8)
    inverted = F.when(negative, F.translate(words, "0123456789ABCDEF", "FEDCBA9876543210")).otherwise(words)
    each = F.transform(
        F.regexp_extract_all(inverted, F.lit("[0-9A-F]{8}"), F.lit(0)),
        lambda word: F.conv(word, 16, 10).cast("bigint"),
    )
    zero = F.array(F.lit(0).cast("bigint"))
    limbs = F.aggregate(each, zero, lambda limbs, word: _times_plus(limbs, _WORD, word))
    limbs = _times_plus(limbs, 1, negative.cast("bigint"))
    joined = F.array_join(F.reverse(F.transform(limbs, lambda limb: F.lpad(limb.cast("string"), 9, "0"))), "")
    magnitude = F.regexp_replace(joined, "^0+(?=[0-9])", "")
    return F.concat(F.when(negative, F.lit("-")).otherwise(F.lit("")), magnitude)


def _times_plus(limbs: SparkColumn, factor: int, addend: SparkColumn) -> SparkColumn:
    """Returns `limbs` * factor + addend, little-endian in base 10^9. Factor and addend are at most 2^32."""
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
