"""Messages that the source's triggers write into its log for changes of tables' definitions, as Debezium sends them."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

DDL_MESSAGE = "ingest_ddl"
"""The prefix of these messages."""
_PATHS = ("$.payload.message", "$.message")


def ddl_content(value: Column) -> Column:
    """Returns the content of a message about a table's definition, JSON text; null for other messages, empty for a
    content that can't be decoded.

    `value`: a record's value. Its content is base64 (also the form for URLs) or hexadecimal, by the connector's
    `binary.handling.mode`."""
    text = value.cast("string")
    message = F.coalesce(*(F.get_json_object(text, path) for path in _PATHS))
    content = F.get_json_object(message, "$.content")
    is_hexadecimal = content.startswith("7b")  # of {
    standard = F.translate(content, "-_", "+/")
    decoded = F.when(is_hexadecimal, F.unhex(content)).otherwise(F.try_to_binary(standard, F.lit("base64")))
    is_definition = F.get_json_object(message, "$.prefix") == DDL_MESSAGE
    return F.when(is_definition, F.coalesce(decoded.cast("string"), F.lit("")))


def ddl_table(content: Column) -> Column:
    """Returns `schema.table` of a message's content, `DDL_MESSAGE` for a content without one; null for null."""
    schema, table = F.get_json_object(content, "$.schema"), F.get_json_object(content, "$.table")
    return F.when(content.isNotNull(), F.coalesce(F.concat(schema, F.lit("."), table), F.lit(DDL_MESSAGE)))
