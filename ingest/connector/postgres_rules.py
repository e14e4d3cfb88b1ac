"""Rules for properties that only Debezium's Postgres connector has. Source: its reference, 3.7."""

from __future__ import annotations

import re

from ingest.changelog.ddl_message import DDL_MESSAGE
from ingest.connector.recipe import NUMERIC_TYPES
from ingest.connector.risk import Configuration, ReaderSettings, Risk
from ingest.connector.rules import Rule, unless
from ingest.connector.signals import missing_properties


def _publication(config: Configuration, _: ReaderSettings) -> Risk | None:
    name = "publication.autocreate.mode"
    mode = config.get(name, "all_tables").lower()
    text = ""
    if mode in ("disabled", "no_tables"):
        text = "a table that is not added to the publication sends nothing, without an error"
    elif mode == "filtered" and not _lists_tables(config):
        text = "a table that is created later sends nothing until the connector is restarted"
    remedy = "restart the connector before a new table is written to, or CREATE PUBLICATION … FOR TABLES IN SCHEMA"
    return Risk(name, mode, text, remedy, loses=False) if text else None


def _lists_tables(config: Configuration) -> bool:
    """Returns True if tables are listed by name, so that a new table needs a new configuration and thus a restart."""
    listed = re.sub(r"\\.", "", config.get("table.include.list", ""))
    return bool(config.get("table.include.list")) and not re.search(r"[*+?|(\[]", listed)


def _ddl_messages(config: Configuration, _: ReaderSettings) -> Risk | None:
    included, excluded = (f"message.prefix.{kind}.list" for kind in ("include", "exclude"))
    name = excluded if _matches(config.get(excluded, "")) else included
    if name == included and (not config.get(included) or _matches(config[included])):
        return None
    text = "messages about changed definitions of tables are not sent, if the source has the triggers for them"
    return Risk(name, config[name], text, f"let messages with the prefix {DDL_MESSAGE} pass", loses=False)


def _matches(expressions: str) -> bool:
    """Returns True if one of Debezium's regular expressions, separated by commas, matches the prefix of messages about
    definitions."""
    return any(re.fullmatch(one.strip(), DDL_MESSAGE, re.IGNORECASE) for one in expressions.split(",") if one.strip())


def _numbers(config: Configuration, _: ReaderSettings) -> Risk | None:
    name, types = "decimal.handling.mode", ("datatype.propagate.source.type", "column.propagate.source.type")
    if config.get(name, "").lower() != "string" or any(config.get(other) for other in types):
        return None
    text = "numbers arrive as text, without their precision: columns of silver are text"
    return Risk(name, "string", text, f"{types[0]}={NUMERIC_TYPES} as well, before the tables are read", loses=False)


def _resync(config: Configuration, reader: ReaderSettings) -> Risk | None:
    if reader.brokers is None or reader.notification_topic is None:
        return None
    missing = missing_properties(config, reader.brokers, reader.notification_topic)
    if not missing:
        return None
    first = next(iter(missing))
    text = "`ingest resync` can't have a table read again, which heals a row that differs from the source"
    remedy = ", ".join(f"{name}={value}" for name, value in missing.items())
    return Risk(first, config.get(first, "not set"), text, remedy, loses=False)


POSTGRES_RULES: tuple[Rule, ...] = (
    unless(
        "interval.handling.mode",
        ("string",),
        "numeric",
        "a month becomes 30.4 days, a year 365.25",
        "interval.handling.mode=string",
    ),
    unless(
        "include.unknown.datatypes",
        ("true",),
        "false",
        "columns of types that Debezium doesn't know are left out",
        "include.unknown.datatypes=true",
    ),
    unless(
        "slot.drop.on.stop",
        ("false",),
        "false",
        "what changes while the connector is away is lost",
        "slot.drop.on.stop=false",
    ),
    unless(
        "flush.lsn.source",
        ("true",),
        "true",
        "the slot never moves on, so the server's log grows until the disk is full",
        "flush.lsn.source=true",
        loses=False,
    ),
    unless(
        "schema.refresh.mode",
        ("columns_diff",),
        "columns_diff",
        "a change of the table may be overlooked while TOASTed columns are unchanged",
        "schema.refresh.mode=columns_diff",
        loses=False,
    ),
    _publication,
    _ddl_messages,
    _numbers,
    _resync,
)
