"""One embedded stack for all tests that need real services."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ingest.stack import Stack


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Postgres, Kafka and Kafka Connect. Tests share them: choose table, topic, slot and connector names."""
    with Stack() as running:
        yield running
