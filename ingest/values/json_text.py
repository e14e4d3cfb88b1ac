"""Renders JSON values as canonical text: numbers in plain digits, without an exponent and without trailing zeros."""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from ingest.values.decimals import placed

NUMBER = r"-?[0-9][0-9.]*(?:E-?[0-9]+)?"
"""Matches the text of a number in a VARIANT or of a double."""
_NOT_PLAIN = r"E|\.0(?![0-9])"
_NUMBER_OR_REST = NUMBER + r"|[^0-9-]+"


def plain_number(text: SparkColumn) -> SparkColumn:
    """Returns the plain digits of a number that is written in the form of Java's doubles or decimals."""
    mantissa, exponent = F.split_part(text, F.lit("E"), F.lit(1)), F.split_part(text, F.lit("E"), F.lit(2))
    fraction = F.split_part(mantissa, F.lit("."), F.lit(2))
    scale = F.length(fraction) - F.coalesce(exponent.try_cast("int"), F.lit(0))
    pointed = placed(F.translate(mantissa, ".", ""), scale)
    short = F.when(pointed.contains("."), F.regexp_replace(pointed, r"\.?0+$", "")).otherwise(pointed)
    return F.when(text.rlike(_NOT_PLAIN), F.when(short == "-0", "0").otherwise(short)).otherwise(text)


def json_text(variant: SparkColumn) -> SparkColumn:
    """Returns the JSON of a VARIANT; null for a JSON null. Numbers in a value that also contains strings or field names
    stay as Spark writes them: such a value was never stored in another form."""
    text = F.when(~F.is_variant_null(variant), F.to_json(variant))
    parts = F.transform(
        F.regexp_extract_all(text, F.lit(_NUMBER_OR_REST), F.lit(0)),
        lambda part: F.when(part.rlike("^[-0-9]"), plain_number(part)).otherwise(part),
    )
    plain = F.when(~text.contains('"') & text.rlike(_NOT_PLAIN), F.array_join(parts, ""))
    return F.coalesce(plain, text)
