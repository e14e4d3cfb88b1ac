"""The key store in a real Postgres: concurrent callers get one key, and a destroyed key is gone from the table's
file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import sqlalchemy as sa

from ingest.shredding.key_store import DataKey, KeyStore
from ingest.stack import Stack

pytestmark = pytest.mark.integration
OWNERS = [f"{n:064x}" for n in range(1200)]


def test_concurrent_callers_get_one_key_and_destroyed_keys_are_gone(stack: Stack) -> None:
    server = stack.postgres
    url = sa.URL.create("postgresql+psycopg", server.user, server.password, server.host, server.port, server.dbname)

    def opened() -> KeyStore:
        store = KeyStore(url.render_as_string(hide_password=False), "insured", {1: bytes(range(32))})
        store.initialise("check")
        return store

    def ensured_keys(_: int) -> dict[str, DataKey]:
        store = opened()
        found = {key.owner: key for key in store.ensure(OWNERS)}
        store.close()
        return found

    opened().close()
    try:
        with ThreadPoolExecutor(4) as pool:
            first, *others = pool.map(ensured_keys, range(4))
        assert first.keys() == set(OWNERS)
        assert all(other == first for other in others)
        store = opened()
        assert store.destroy("r1", iter(OWNERS[:700])) == 700
        assert store.destroy("r1", iter(OWNERS)) == 0
        assert {key.owner for key in store.by_id(key.key_id for key in first.values())} == set(OWNERS[700:])
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            row = connection.execute("SELECT pg_read_binary_file(pg_relation_filepath('data_keys'))").fetchone()
            assert row is not None
        assert [key.owner for key in first.values() if key.wrapped in row[0]] == OWNERS[700:]
        assert next(store.ensure(OWNERS[:1])).key_id != first[OWNERS[0]].key_id
        store.close()
    finally:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS data_keys, destroyed, hashed_by")
