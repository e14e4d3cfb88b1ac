"""Data keys: one per owner for concurrent callers, removed from the file once destroyed, and never reused for a new
life."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag

from ingest.errors import ConfigError, Unreachable
from ingest.shredding.data_keys import read_master_keys
from ingest.shredding.key_store import DataKey, KeyStore

MASTERS = {1: bytes(range(32))}
OWNERS = [f"{n:064x}" for n in range(1200)]


def opened(folder: Path, pipeline: str = "insured", masters: dict[int, bytes] | None = None) -> KeyStore:
    store = KeyStore(f"sqlite:///{folder}/keys.db", pipeline, masters or MASTERS)
    store.initialise("check")
    return store


def by_owner(store: KeyStore, owners: list[str]) -> dict[str, DataKey]:
    return {key.owner: key for key in store.ensure(owners)}


def test_owner_has_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: by_owner(opened(tmp_path), OWNERS), range(4)))
    assert found[0].keys() == set(OWNERS)
    assert all(one == found[0] for one in found)
    assert len({key.key_id for key in found[0].values()}) == len(OWNERS)
    assert by_owner(opened(tmp_path, "another"), OWNERS[:1])[OWNERS[0]] != found[0][OWNERS[0]]


def test_destroyed_key_is_gone_from_the_file(tmp_path: Path) -> None:
    store, file = opened(tmp_path), tmp_path / "keys.db"
    old = by_owner(store, OWNERS[:600])
    assert old[OWNERS[0]].wrapped in file.read_bytes()
    assert store.destroy("r1", iter(OWNERS[:550])) == 550
    assert [key for key in old.values() if key.wrapped in file.read_bytes()] == [old[o] for o in OWNERS[550:600]]
    assert list(store.by_id([old[OWNERS[0]].key_id])) == []
    new = by_owner(store, OWNERS[:1])[OWNERS[0]]
    assert new.key_id != old[OWNERS[0]].key_id
    # After a crash the same request continues.
    assert store.destroy("r1", OWNERS[:550]) == 0
    assert {key.owner: key for key in store.by_id([new.key_id, old[OWNERS[599]].key_id])} == {
        OWNERS[0]: new,
        OWNERS[599]: old[OWNERS[599]],
    }


def test_interrupted_destruction_destroys_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    old = by_owner(store, OWNERS[:1000])

    def dying() -> object:
        yield from OWNERS[:700]
        raise RuntimeError("died")

    with pytest.raises(RuntimeError, match="died"):
        store.destroy("r1", dying())  # type: ignore[arg-type]
    assert not store.has_destroyed("r1")
    assert by_owner(store, OWNERS[:1000]) == old


def test_keys_are_wrapped_again_by_a_newer_master_key(tmp_path: Path) -> None:
    old = by_owner(opened(tmp_path), OWNERS[:600])
    both = MASTERS | {2: bytes(reversed(range(32)))}
    store = opened(tmp_path, masters=both)
    assert store.rewrap() == 600
    assert store.rewrap() == 0
    newer = opened(tmp_path, masters={2: both[2]})
    new = by_owner(newer, OWNERS[:600])
    assert {o: k.key_id for o, k in new.items()} == {o: k.key_id for o, k in old.items()}
    assert all(newer._unwrap(new[o]) == store._unwrap(old[o]) for o in OWNERS[:600])
    with pytest.raises(InvalidTag):
        opened(tmp_path, masters={2: MASTERS[1]})._unwrap(new[OWNERS[0]])
    with pytest.raises(ConfigError, match="lacks version 2"):
        by_owner(opened(tmp_path), OWNERS[:1])


def test_owners_hashed_by_another_secret_are_refused(tmp_path: Path) -> None:
    opened(tmp_path)
    other = KeyStore(f"sqlite:///{tmp_path}/keys.db", "insured", MASTERS)
    with pytest.raises(ConfigError, match="another secret"):
        other.initialise("another check")


def test_invalid_key_store_is_reported_without_its_password(tmp_path: Path) -> None:
    for url in ("no url", "nothing://user:geheim@host/db", "mysql://user:geheim@host/db"):
        with pytest.raises(ConfigError) as caught:
            KeyStore(url, "insured", MASTERS)
        assert "geheim" not in str(caught.value)
    with pytest.raises(Unreachable) as away:
        KeyStore("postgresql+psycopg://user:geheim@127.0.0.1:9/db", "insured", MASTERS).initialise("check")
    assert "geheim" not in str(away.value)
    with pytest.raises(ConfigError, match="SQLITE_CANTOPEN"):
        KeyStore(f"sqlite:///{tmp_path}/no/such/folder/keys.db", "insured", MASTERS).initialise("check")


def test_master_key_has_32_bytes(tmp_path: Path) -> None:
    file = tmp_path / "master.key"
    file.write_text("1 " + "5a" * 33, encoding="ascii")
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="32 bytes"):
        read_master_keys(str(file))
