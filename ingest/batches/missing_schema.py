"""Explains why no schema of a table follows from a batch of its events."""

from __future__ import annotations

from collections.abc import Collection

from ingest.batches.rules import Rules
from ingest.batches.seen_versions import Incoming
from ingest.names import caseless


def why_no_schema(
    table: str, key: tuple[str, ...] | None, incoming: Incoming, names: Collection[str], rules: Rules
) -> str:
    """Returns the reason: the key is unknown, or no event has one of its columns. `names`: of the table's columns."""
    then = "then replay the quarantine"
    if key is None:
        return (
            "the records' keys are no JSON objects, so no primary key is known: set the connector's key.converter "
            f"to JsonConverter, or declare tables.{table}.primary_key, {then}"
        )
    present = {caseless(c.name) for _, columns in incoming for c in columns} | {*map(caseless, names)}
    lacking = [k for k in key if caseless(rules.spelling(table).new_name(k)) not in present]
    if not lacking:
        return f"no event of the table holds a row image with columns, {then}"
    if table in rules.primary_keys:
        return (
            f"no event holds the column {', '.join(map(repr, lacking))} of the declared primary_key: correct "
            f"tables.{table}.primary_key, {then}"
        )
    return (
        f"no row image holds the column {', '.join(map(repr, lacking))} of the records' keys: declare a "
        f"tables.{table}.primary_key of columns that the images hold, {then}"
    )
