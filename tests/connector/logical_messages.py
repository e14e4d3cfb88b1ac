"""Reads what a logical replication slot sends, as `pgoutput` writes it."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

import psycopg

PUBLICATION = "published"
SLOT = "read_by_test"
_CHANGES = (
    "SELECT (lsn - '0/0')::bigint, data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, %s, %s, %s, %s, %s, %s)"
)


@dataclass
class Source:
    """A database with a publication of schema `shop` and a slot.

    `warnings`: what the server has warned of."""

    dsn: str
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.connection = self.connect()
        self.connection.add_notice_handler(lambda notice: self.warnings.append(notice.message_primary or ""))

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True)

    def run(self, *statements: str) -> list[dict[str, Any]]:
        """Runs statements, each on its own, and returns the contents of the messages since the last call."""
        for statement in statements:
            self.connection.execute(statement.encode())
        return [content for kind, _, content in self.changes() if kind == "M"]

    def changes(self) -> list[tuple[str, int, Any]]:
        """Returns kind, LSN and content (of messages) of all that the slot sends since the last call, in its order."""
        options = ("proto_version", "1", "publication_names", PUBLICATION, "messages", "true")
        found = self.connection.execute(_CHANGES, (SLOT, *options), binary=True).fetchall()
        kinds = [(chr(data[0]), int(lsn), data) for lsn, data in found]
        return [(kind, lsn, _content(data) if kind == "M" else None) for kind, lsn, data in kinds]


def _content(message: bytes) -> Any:
    is_transactional, _ = struct.unpack(">BQ", message[1:10])
    prefix, rest = message[10:].split(b"\0", 1)
    assert (is_transactional, prefix) == (1, b"ingest_ddl")
    return json.loads(rest[4:].decode())
