"""The data keys of subjects: random, wrapped by a master key, in a database outside the lakehouse.

Whose key it is stands there as the keyed hash by which the ledger knows its subject. A key that was destroyed is
deleted, and a subject that comes back gets a new one.
"""

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

_AT_ONCE = 500
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
    # Of an index over the ids alone SQLite makes no use, once the pipeline is asked for as well.
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
    """`owner`: the keyed hash of whose it is. `wrapped`: nonce, ciphertext and tag, by the master key of the version
    `master`, with the id as additional data."""

    owner: str
    key_id: str
    master: int
    wrapped: bytes


class KeyStore:
    """Of one pipeline. Raises Unreachable where the database can't be asked."""

    def __init__(self, url: str, pipeline: str, masters: Mapping[int, bytes]) -> None:
        self._pipeline = pipeline
        self._masters = masters
        try:
            self._engine = sa.create_engine(url)
        except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError):
            # The exception would show the URL, and a password in it.
            raise ConfigError(
                "privacy.shredding.key_store is no URL of a database that is known here",
                "write it as sqlite:////folder/file or postgresql+psycopg://user@host/database",
            ) from None
        if self._engine.dialect.name not in _INSERT:
            raise ConfigError(
                f"a key store in {self._engine.dialect.name} is not supported", f"take {' or '.join(_INSERT)}"
            )
        if self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "connect", _overwriting)
            # Who reads first and writes then would find the file locked.
            sa.event.listen(self._engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))

    def begin(self, check: str) -> None:
        """Makes the tables where there are none. `check`: of the secret by which owners are hashed.

        Raises ConfigError where owners were hashed by another one: nobody's key would be found again."""
        with self._transaction() as connection:
            _STORE.create_all(connection)
            row = {"pipeline": self._pipeline, "check": check}
            connection.execute(self._insert(_HASHED_BY).values(row).on_conflict_do_nothing())
            told = sa.select(_HASHED_BY.c.check).where(_HASHED_BY.c.pipeline == self._pipeline)
            if connection.execute(told).scalar_one() != check:
                raise ConfigError(
                    "the key store knows subjects by another secret than the newest in privacy.key_file",
                    "take the newer line out of it: a pipeline that shreds keeps the secret that it began with",
                )

    def ensured(self, owners: Iterable[str]) -> Iterator[DataKey]:
        """The key of each owner; who has none gets one. Two that ask at once are told the same."""
        for some in _some(dict.fromkeys(owners)):
            with self._transaction() as connection:
                known = {key.owner: key for key in self._held(connection, _KEYS.c.owner, some)}
                if absent := [owner for owner in some if owner not in known]:
                    rows = [{"pipeline": self._pipeline, **vars(self._new(owner))} for owner in absent]
                    connection.execute(self._insert(_KEYS).on_conflict_do_nothing(), rows)
                    known |= {key.owner: key for key in self._held(connection, _KEYS.c.owner, absent)}
            yield from known.values()

    def by_id(self, key_ids: Iterable[str]) -> Iterator[DataKey]:
        """Of these the ones that are not destroyed."""
        for some in _some(dict.fromkeys(key_ids)):
            with self._transaction() as connection:
                held = self._held(connection, _KEYS.c.key_id, some)
            yield from held

    def is_done(self, request: str) -> bool:
        """Whether the keys that a request concerns were destroyed."""
        mine = sa.select(_DESTROYED.c.key_count).where(_of(_DESTROYED, self._pipeline), _DESTROYED.c.request == request)
        with self._transaction() as connection:
            return connection.execute(mine).first() is not None

    def destroy(self, request: str, owners: Iterable[str]) -> int:
        """Deletes the keys of these owners, all or none, once for a request: a key that was made since is of a new
        life. How many there were."""
        if self.is_done(request):
            return 0
        count = 0
        with self._transaction() as connection:
            for some in _some(owners):
                gone = sa.delete(_KEYS).where(_of(_KEYS, self._pipeline), _KEYS.c.owner.in_(some))
                count += connection.execute(gone).rowcount
            row = {"pipeline": self._pipeline, "request": request, "key_count": count, "at": datetime.now(UTC)}
            connection.execute(sa.insert(_DESTROYED).values(row))
        self._forget()
        return count

    def rewrap(self) -> int:
        """Wraps by the newest master key what an older one has wrapped: a copy of the store from before is worth
        nothing without that one. How many keys."""
        newest, count = max(self._masters), 0
        older = _DATA_KEYS.where(_of(_KEYS, self._pipeline), _KEYS.c.master < newest)
        while True:
            with self._transaction() as connection:
                some = [DataKey(*row) for row in connection.execute(older.limit(_AT_ONCE))]
                for key in some:
                    told = {"master": newest, "wrapped": self._wrapped(key.key_id, self._opened(key))}
                    connection.execute(sa.update(_KEYS).where(_KEYS.c.key_id == key.key_id).values(told))
            if not some:
                break
            count += len(some)
        self._forget()
        return count

    def close(self) -> None:
        self._engine.dispose()

    def _new(self, owner: str) -> DataKey:
        key_id = secrets.token_hex(16)
        return DataKey(owner, key_id, max(self._masters), self._wrapped(key_id, secrets.token_bytes(KEY_BYTES)))

    def _wrapped(self, key_id: str, key: bytes) -> bytes:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + AESGCM(self._masters[max(self._masters)]).encrypt(nonce, key, key_id.encode())

    def _opened(self, key: DataKey) -> bytes:
        master = self._masters[key.master]
        return AESGCM(master).decrypt(key.wrapped[:NONCE_BYTES], key.wrapped[NONCE_BYTES:], key.key_id.encode())

    def _held(self, connection: sa.Connection, column: sa.Column[str], values: Sequence[str]) -> list[DataKey]:
        mine = _DATA_KEYS.where(_of(_KEYS, self._pipeline), column.in_(values))
        found = [DataKey(*row) for row in connection.execute(mine)]
        if lacking := {key.master for key in found} - self._masters.keys():
            raise ConfigError(
                f"the master key file lacks version {min(lacking)}, which wraps keys of the key store",
                "put its line back",
            )
        return found

    def _insert(self, table: sa.Table) -> Any:
        return _INSERT[self._engine.dialect.name](table)

    def _forget(self) -> None:
        """Postgres leaves the bytes of what was deleted where they are, a plain vacuum too."""
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
                f"the key store can't be asked: {type(error.orig).__name__}",
                "see that its database is there, and that privacy.shredding.key_store leads to it",
            ) from None


def _some(values: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(values)
    return iter(lambda: list(islice(rest, _AT_ONCE)), [])


def _of(table: sa.Table, pipeline: str) -> sa.ColumnElement[bool]:
    return table.c.pipeline == pipeline


def _overwriting(connection: Any, _: Any) -> None:
    """What SQLite deletes is gone from the file, and another process that writes is waited for."""
    connection.isolation_level = None
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
