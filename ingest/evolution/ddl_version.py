"""Reads the content of a message of the source's triggers (`ingest.connector.ddl_trigger`) as a version of a table."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from ingest.errors import ChangelogUnusable
from ingest.evolution.definition import (
    NULL,
    UNKNOWN,
    Cause,
    ColumnDefinition,
    Definition,
    Fill,
    FillKind,
    Origin,
    Place,
    Version,
)
from ingest.evolution.postgres_types import told_column, with_default
from ingest.values.columns import Column

_PUBLISHES = ("CREATE PUBLICATION", "ALTER PUBLICATION")
"""Commands by which columns that existed before come into events."""
BASELINE = "BASELINE"
"""The tag of a message that tells a definition which was there before the trigger."""
_REMEDY = "run SELECT ingest_ddl.send_definitions() in the source's database"


def ddl_version(content: str, at: Place) -> tuple[str, Version]:
    """Returns the name `schema.table` that a message tells, and the table's version from the message's position on.

    Raises ChangelogUnusable for a message that tells of a failure, or in a form that this version of ingest doesn't
    know."""
    try:
        message = json.loads(content, parse_float=Decimal)
        if message.get("v") == 1 and "error" not in message:
            return f"{message['schema']}.{message['table']}", _version(message, at)
    except (ValueError, KeyError, TypeError, AttributeError):
        # The message may hold defaults, so nothing of it gets into the error.
        raise ChangelogUnusable(
            f"the message of a table's definition at {at} has an unknown form",
            "install the triggers of this version of ingest again: ingest connector ddl-trigger postgres",
        ) from None
    if "error" in message:
        name = f"{message['schema']}.{message['table']}" if message.get("table") else "a table"
        raise ChangelogUnusable(
            f"the source could not tell the definition of {name} after {message['tag']} (SQLSTATE {message['error']}, "
            f"position {at})",
            _REMEDY,
        )
    raise ChangelogUnusable(
        f"the message of a table's definition at {at} has version {message.get('v')}, not 1",
        "use a version of ingest as new as the source's triggers",
    )


def _version(message: dict[str, Any], at: Place) -> Version:
    rewrite = any(message["rewrite"].values())
    cause = Cause(message["tag"], message["using"], rewrite, message["zone"], tuple(message["computed"]))
    numbers = {column["n"]: column["name"] for column in message["columns"]}
    columns = tuple(_column(column, message["tag"], rewrite) for column in message["columns"] if column["sent"])
    key = tuple(numbers[n] for n in message["key"]["columns"])
    return Version(at, Definition(columns, key, message["oid"]), Origin.TOLD, cause)


def _column(column: dict[str, Any], tag: str, is_rewritten: bool) -> ColumnDefinition:
    base = column["base"]
    # A domain doesn't show the modifiers of the type below it.
    known = told_column(column["name"], base if column["kind"] == "d" else column["type"], base, bool(column["labels"]))
    if column["kind"] == "d" and base.removesuffix("[]") == "numeric":
        known = None
    fill = _fill(column, known, tag, is_rewritten)
    type_ = None if known is None else known.type
    optional = not column["notnull"]
    return ColumnDefinition(column["name"], type_, column["n"], fill, optional, column["default"], column["type"])


def _fill(column: dict[str, Any], known: Column | None, tag: str, is_rewritten: bool) -> Fill:
    """Returns what rows from before the column read, if it is new. Without a value in the catalog that is null, unless
    the rows themselves hold it."""
    if column["missing"] is not None:
        constant = None if known is None else with_default(known, column["missing"][0])
        return UNKNOWN if constant is None else Fill(FillKind.CONSTANT, constant)
    has_values = column["default"] is not None or column["generated"] != "" or column["identity"] != ""
    if tag in _PUBLISHES or (has_values and (is_rewritten or tag == BASELINE)):
        return UNKNOWN
    return NULL
