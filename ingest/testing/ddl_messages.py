"""The message that the source's triggers write into its log for a change of a table's definition, as
`ingest.connector.ddl_trigger` describes it: the whole definition after the change, so that any message alone suffices.
"""

from __future__ import annotations

import json
import re
from datetime import date
from decimal import Decimal
from typing import Any

from ingest.testing.oracle import Event
from ingest.testing.source_table import UNKNOWN, SourceColumn, SourceTable, TableChange
from ingest.testing.tables import TableStory

_KINDS = {"mood": "e", "composite": "c"}
_LABELS = {"mood": [[16401, "on"], [16402, "off"], [16403, "it's"]]}
COMMANDS = {"create.table": "CREATE TABLE", "drop.table": "DROP TABLE"}
"""Kind of a change → the command, if it is not ALTER TABLE."""
_NUMBER = "\0number:"


def message_content(story: TableStory, event: Event) -> str:
    """Returns the content of the message for an event with `ddl`."""
    change, table = event.ddl, event.carried or SourceTable()
    assert change is not None, f"the event {event.op} at {event.lsn} is no change of the definition"
    schema, name = story.name.split(".", 1)
    content = {
        "v": 1,
        "tag": COMMANDS.get(change.kind, "ALTER TABLE"),
        "oid": table.oid,
        "schema": schema,
        "table": name,
        "root": None,
        "columns": [_column(name, column) for name, column in table.columns.items()],
        "key": {
            "from": "primary" if table.key else "full" if table.keyless else "nothing",
            "columns": [table.columns[name].number for name in table.key or ()],
            "replica_identity": "f" if table.keyless else "d",
        },
        "rewrite": {"type": change.kind == "alter.column.type", "default": _writes_default(change)},
        "using": change.using,
        "computed": [table.columns[change.column].number] if change.using else [],
        "zone": "UTC",
    }
    # Decimals stay exact: they are written as text, and then lose its quotes.
    return re.sub(r'"\\u0000number:([^"]+)"', r"\1", json.dumps(content))


def rewrites(change: TableChange) -> bool:
    """Returns True if a change rewrites the table."""
    return change.kind == "alter.column.type" or _writes_default(change)


def _writes_default(change: TableChange) -> bool:
    return change.kind == "add.column" and change.to is not None and change.to.default is UNKNOWN


def _column(name: str, column: SourceColumn) -> dict[str, Any]:
    base = re.sub(r"\([\d,]+\)", "", column.type)
    return {
        "n": column.number,
        "name": name,
        "type": column.type,
        "base": base,
        "kind": _KINDS.get(column.type, "b"),
        "notnull": not column.optional,
        "default": _default(column),
        "missing": None if column.missing is None else [_catalog_json(column.missing)],
        "generated": "",
        "identity": "",
        "sent": True,
        "labels": _LABELS.get(column.type, []),
    }


def _default(column: SourceColumn) -> str | None:
    if column.default is None:
        return None
    if column.default is UNKNOWN:
        return "volatile()"
    text = str(_catalog_json(column.default)).removeprefix(_NUMBER).replace("'", "''")
    return f"'{text}'::{column.type}"


def _catalog_json(value: Any) -> Any:
    """Returns a value as Postgres' `to_json` writes it."""
    if isinstance(value, Decimal):
        return f"{_NUMBER}{value:f}"
    return value.isoformat() if isinstance(value, date) else value
