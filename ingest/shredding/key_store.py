"""The key store: random data keys of subjects, wrapped by a master key, in a database outside the lakehouse.

A key's owner is stored as the keyed hash by which the ledger knows its subject. A destroyed key is deleted; a subject
that returns gets a new one."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import sqlalchemy as sa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy.dialects import postgresql, sqlite

from ingest.errors import ConfigError, Unreachable
from ingest.shredding.cipher import KEY_BYTES, NONCE_BYTES

_CHUNK = 500
_BUSY_SECONDS = 60
_LOCKED = ("SQLITE_BUSY", "SQLITE_LOCKED")
_INSERT: Mapping[str, Callable[[sa.Table], Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}

_STORE = sa.MetaData()
_KEYS = sa.Table(
    "data_keys",
    _STORE,
    sa.Column("pipeline", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("master", sa.Integer, nullable=False),
    sa.Column("wrapped", sa.LargeBinary, nullable=False),
    # SQLite doesn't use an index over the ids alone for a query that filters by pipeline too.
    sa.UniqueConstraint("pipeline", "key_id"),
)
_DATA_KEYS = sa.select(_KEYS.c.owner, _KEYS.c.key_id, _KEYS.c.master, _KEYS.c.wrapped)
_DESTROYED = sa.Table(
    "destroyed",
    _STORE,
    sa.Column("pipeline", sa.Text, primary_key=True),
    sa.Column("request", sa.Text, primary_key=True),
    sa.Column("key_count", sa.Integer, nullable=False),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False),
)
_HASHED_BY = sa.Table(
    "hashed_by",
    _STORE,
    sa.Column("pipeline", sa.Text, primary_key=True),
    sa.Column("check", sa.Text, nullable=False),
)


@dataclass(frozen=True)
class DataKey:
    """`owner`: keyed hash of the subject's key. `wrapped`: nonce, ciphertext and tag under master key `master` (its
    version), with the key id as additional data."""

    owner: str
    key_id: str
    master: int
    wrapped: bytes


class KeyStore:
    """The key store of one pipeline. Raises Unreachable if the database can't be reached."""

    def __init__(self, url: str, pipeline: str, masters: Mapping[int, bytes]) -> None:
        self._pipeline = pipeline
        self._masters = masters
        try:
            self._engine = sa.create_engine(url)
        except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError):
            # The exception shows the URL, which may contain a password.
            raise ConfigError(
                "privacy.shredding.key_store is no URL of a supported database",
                "write it as sqlite:////folder/file or postgresql+psycopg://user@host/database",
            ) from None
        if self._engine.dialect.name not in _INSERT:
            raise ConfigError(
                f"a key store in {self._engine.dialect.name} is not supported", f"take {' or '.join(_INSERT)}"
            )
        if self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "connect", _configure_sqlite)
            # A transaction that reads first and writes later would find the file locked.
            sa.event.listen(self._engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))

    def initialise(self, check: str) -> None:
        """Creates missing tables. `check`: of the secret by which owners are hashed.

        Raises ConfigError if the stored owners were hashed by another secret, because no key would be found again."""
        with self._transaction() as connection:
            _STORE.create_all(connection)
            row = {"pipeline": self._pipeline, "check": check}
            connection.execute(self._insert(_HASHED_BY).values(row).on_conflict_do_nothing())
            stored_check = sa.select(_HASHED_BY.c.check).where(_HASHED_BY.c.pipeline == self._pipeline)
            if connection.execute(stored_check).scalar_one() != check:
                raise ConfigError(
                    "the key store knows subjects by another secret than the newest in privacy.key_file",
                    "take the newer line out of it: a pipeline that shreds keeps the secret that it began with",
                )

    def ensure(self, owners: Iterable[str]) -> Iterator[DataKey]:
        """Yields the key of each owner and creates missing ones. Concurrent callers get the same key."""
        for chunk in _chunks(dict.fromkeys(owners)):
            with self._transaction() as connection:
                known = {key.owner: key for key in self._select(connection, _KEYS.c.owner, chunk)}
                if absent := [owner for owner in chunk if owner not in known]:
                    rows = [{"pipeline": self._pipeline, **vars(self._new_key(owner))} for owner in absent]
                    connection.execute(self._insert(_KEYS).on_conflict_do_nothing(), rows)
                    known |= {key.owner: key for key in self._select(connection, _KEYS.c.owner, absent)}
            yield from known.values()

    def by_id(self, key_ids: Iterable[str]) -> Iterator[DataKey]:
        """Yields the keys with these ids that are not destroyed."""
        for chunk in _chunks(dict.fromkeys(key_ids)):
            with self._transaction() as connection:
                found = self._select(connection, _KEYS.c.key_id, chunk)
            yield from found

    def has_destroyed(self, request: str) -> bool:
        """Returns True if the keys of this request have been destroyed."""
        query = sa.select(_DESTROYED.c.key_count).where(
            _of_pipeline(_DESTROYED, self._pipeline), _DESTROYED.c.request == request
        )
        with self._transaction() as connection:
            return connection.execute(query).first() is not None

    def destroy(self, request: str, owners: Iterable[str]) -> int:
        """Deletes the keys of these owners in one transaction and returns their number. Acts once per request: keys
        created afterwards belong to events after its cutoff."""
        if self.has_destroyed(request):
            return 0
        count = 0
        with self._transaction() as connection:
            for chunk in _chunks(owners):
                delete = sa.delete(_KEYS).where(_of_pipeline(_KEYS, self._pipeline), _KEYS.c.owner.in_(chunk))
                count += connection.execute(delete).rowcount
            row = {"pipeline": self._pipeline, "request": request, "key_count": count, "at": datetime.now(UTC)}
            connection.execute(sa.insert(_DESTROYED).values(row))
        self._vacuum()
        return count

    def rewrap(self) -> int:
        """Wraps keys of older master keys by the newest one and returns their number. Afterwards an older copy of the
        store is useless without the older master key."""
        newest, count = max(self._masters), 0
        older = _DATA_KEYS.where(_of_pipeline(_KEYS, self._pipeline), _KEYS.c.master < newest)
        while True:
            with self._transaction() as connection:
                chunk = [DataKey(*row) for row in connection.execute(older.limit(_CHUNK))]
                for key in chunk:
                    values = {"master": newest, "wrapped": self._wrap(key.key_id, self._unwrap(key))}
                    connection.execute(sa.update(_KEYS).where(_KEYS.c.key_id == key.key_id).values(values))
            if not chunk:
                break
            count += len(chunk)
        self._vacuum()
        return count

    def close(self) -> None:
        self._engine.dispose()

    def _new_key(self, owner: str) -> DataKey:
        key_id = secrets.token_hex(16)
        return DataKey(owner, key_id, max(self._masters), self._wrap(key_id, secrets.token_bytes(KEY_BYTES)))

    def _wrap(self, key_id: str, key: bytes) -> bytes:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + AESGCM(self._masters[max(self._masters)]).encrypt(nonce, key, key_id.encode())

    def _unwrap(self, key: DataKey) -> bytes:
        master = self._masters[key.master]
        return AESGCM(master).decrypt(key.wrapped[:NONCE_BYTES], key.wrapped[NONCE_BYTES:], key.key_id.encode())

    def _select(self, connection: sa.Connection, column: sa.Column[str], values: Sequence[str]) -> list[DataKey]:
        query = _DATA_KEYS.where(_of_pipeline(_KEYS, self._pipeline), column.in_(values))
        found = [DataKey(*row) for row in connection.execute(query)]
        if lacking := {key.master for key in found} - self._masters.keys():
            raise ConfigError(
                f"the master key file lacks version {min(lacking)}, which wraps keys of the key store",
                "put its line back",
            )
        return found

    def _insert(self, table: sa.Table) -> Any:
        return _INSERT[self._engine.dialect.name](table)

    def _vacuum(self) -> None:
        """Rewrites the table in Postgres, where a delete, and a plain VACUUM too, leaves the deleted bytes in place."""
        if self._engine.dialect.name == "postgresql":
            with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(sa.text("VACUUM FULL data_keys"))

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except sa.exc.OperationalError as error:
            if getattr(error.orig, "sqlite_errorname", _LOCKED[0]) not in _LOCKED:
                raise ConfigError(
                    f"the key store can't be opened or written ({error.orig.sqlite_errorname})",  # type: ignore[union-attr]
                    "see that privacy.shredding.key_store names a file that this user may write",
                ) from None
            raise Unreachable(
                f"the key store can't be reached: {type(error.orig).__name__}",
                "see that its database is there, and that privacy.shredding.key_store leads to it",
            ) from None


def _chunks(values: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(values)
    return iter(lambda: list(islice(rest, _CHUNK)), [])


def _of_pipeline(table: sa.Table, pipeline: str) -> sa.ColumnElement[bool]:
    return table.c.pipeline == pipeline


def _configure_sqlite(connection: Any, _: Any) -> None:
    """Makes SQLite overwrite deleted bytes, and wait for other writers."""
    connection.isolation_level = None
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
