"""The error of a registered schema that can't be read."""

from __future__ import annotations

from ingest.errors import ChangelogUnusable


def unreadable(reason: str) -> ChangelogUnusable:
    """Returns the error of a schema. `reason`: what follows "the schema"."""
    return ChangelogUnusable(
        f"the schema {reason}", "let the connector write one of Debezium's events, by AvroConverter or JsonConverter"
    )
