"""An embedded Kafka Connect worker with Debezium's Postgres connector as its one plugin, in a stack with a schema
registry together with Apicurio's converters.

It is a standalone worker. It stores source offsets in the file `data/offsets`, at most `OFFSET_FLUSH_MILLISECONDS`
late, so after a kill it sends some events again (at least once). A standalone worker doesn't store its connectors, so
they are kept in `connectors/*.json` and registered again at each start.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from ingest.connector import Connectors, ConnectorStatus
from ingest.connector.recipe import JSON_CONVERTER
from ingest.errors import ConfigError, StackFailed
from ingest.jvm.jars import jars, jars_folder
from ingest.stack.java import java_command, properties_text
from ingest.stack.ports import HOST
from ingest.stack.service import Service

OFFSET_FLUSH_MILLISECONDS = 500
_BROKER_TIMEOUT_MILLISECONDS = 20_000
_MAX_REQUEST_BYTES = 10_000_000
_CONVERTERS = ("AvroConverter", "ExtJsonConverter")
"""Apicurio's converters, in `io.apicurio.registry.utils.converter`."""
_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


class ConnectWorker(Service):
    """The worker at `url`. Its default converters write JSON; a connector's configuration may override them."""

    name = "connect"
    port_names = ("rest",)

    def __init__(
        self,
        stack_folder: Path,
        external: str | None = None,
        *,
        bootstrap_servers: Callable[[], str],
        variables: Callable[[], dict[str, str]] = dict,
        has_registry: bool = False,
        tethered: bool = True,
    ) -> None:
        """
        Args:
            bootstrap_servers: returns the broker's address at each start of an embedded worker.
            variables: returns the values of `${env:NAME}` references in the configurations of connectors.
            has_registry: connectors may use Apicurio's converters.
        """
        super().__init__(stack_folder, external, tethered=tethered)
        self._bootstrap_servers = bootstrap_servers
        self._variables = variables
        self._has_registry = has_registry
        self._connectors_folder = self.folder / "connectors"

    @property
    def url(self) -> str:
        """The URL of the REST interface, without a trailing slash."""
        return (self.external or f"http://{HOST}:{self.ports['rest']}").rstrip("/")

    @property
    def address(self) -> str:
        return self.url

    @property
    def access(self) -> dict[str, str]:
        if self.external:
            return {}
        return {"connectors": f"{self.url}/connectors", "worker's file": str(self.folder / "worker.properties")}

    @property
    def variables(self) -> dict[str, str]:
        return self._variables()

    @property
    def connectors(self) -> Connectors:
        """A client of the worker's REST interface."""
        return Connectors(self.url)

    def check(self) -> None:
        self.connectors.check()

    def register(self, name: str, config: Mapping[str, str]) -> None:
        """Creates or reconfigures a connector, and waits until it and its tasks run.

        Args:
            name: letters, digits, dot, dash, underscore.
            config: the connector's properties, including `connector.class` and `database.password`.

        Raises:
            ConfigError: an unsafe name.
            SourceRefused: the configuration is wrong, or the database refuses it.
            StackFailed: the connector or a task fails, or does not run in time.
        """
        if not _SAFE_NAME.fullmatch(name):
            raise ConfigError(
                f"connector name {name!r} can't be used", "use letters, digits, dots, dashes and underscores"
            )
        self.connectors.put(name, config)
        if not self.external:
            self._remember(name, config)
        self.connectors.await_running(name)

    def status_of(self, name: str) -> ConnectorStatus:
        """Returns the connector's status."""
        return self.connectors.status(name)

    def restart(self, name: str) -> None:
        """Restarts the connector and its tasks, and waits until they run."""
        self.connectors.restart(name)

    def delete(self, name: str) -> None:
        """Removes the connector; its offsets and its replication slot stay."""
        self.connectors.delete(name)
        (self._connectors_folder / f"{name}.json").unlink(missing_ok=True)

    def _remember(self, name: str, config: Mapping[str, str]) -> None:
        self._connectors_folder.mkdir(mode=0o700, exist_ok=True)  # the configurations hold passwords
        partial = self._connectors_folder / f"{name}.partial"
        partial.touch(mode=0o600)
        partial.write_text(json.dumps(dict(config), indent=1))
        partial.replace(partial.with_suffix(".json"))

    def await_healthy(self) -> None:
        """Waits until the worker answers. Launches it once more if it has ended, since it gives up on a broker that
        accepts connections before it can serve requests."""
        try:
            super().await_healthy()
        except StackFailed:
            if self.external or self.running is not None:
                raise
            self.launch()
            super().await_healthy()

    def _after_start(self) -> None:
        stored = {file.stem: json.loads(file.read_text()) for file in self._connectors_folder.glob("*.json")}
        present = self.connectors.names()
        for name in stored.keys() - present:
            self.connectors.put(name, stored[name])
        for name in stored:
            self.connectors.await_running(name)

    def _prepare(self) -> None:
        plugins = self.folder / "plugins"
        plugins.mkdir(exist_ok=True)
        plugin = plugins / "debezium-postgres"
        plugin.unlink(missing_ok=True)
        plugin.symlink_to(jars_folder("debezium"), target_is_directory=True)
        if self._has_registry:
            _link_converters(plugins / "apicurio-converters")
        (self.folder / "worker.properties").write_text(properties_text(self._properties(plugins)))

    def _command(self) -> list[str]:
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        return java_command("connect", 384, main, str(self.folder / "worker.properties"))

    def _properties(self, plugins: Path) -> dict[str, object]:
        return {
            "bootstrap.servers": self._bootstrap_servers(),
            "listeners": self.url,
            "plugin.path": plugins,
            "plugin.discovery": "service_load",  # the others open every class of every jar
            "key.converter": JSON_CONVERTER,
            "key.converter.replace.null.with.default": "false",
            "value.converter": JSON_CONVERTER,
            "value.converter.replace.null.with.default": "false",
            "config.providers": "env",
            "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
            "config.providers.env.param.allowlist.pattern": "POSTGRES_[A-Z]+",
            "offset.storage.file.filename": self.data / "offsets",
            "offset.flush.interval.ms": OFFSET_FLUSH_MILLISECONDS,
            "default.api.timeout.ms": _BROKER_TIMEOUT_MILLISECONDS,
            "request.timeout.ms": _BROKER_TIMEOUT_MILLISECONDS,
            "producer.linger.ms": 0,
            "producer.max.request.size": _MAX_REQUEST_BYTES,
        }


def _link_converters(plugin: Path) -> None:
    """Makes a plugin of Apicurio's jars, whose converters no manifest of theirs names."""
    shutil.rmtree(plugin, ignore_errors=True)
    plugin.mkdir()
    for jar in jars("converters"):
        (plugin / jar.name).symlink_to(jar)
    with zipfile.ZipFile(plugin / "manifest.jar", "w") as manifest:
        names = "".join(f"io.apicurio.registry.utils.converter.{name}\n" for name in _CONVERTERS)
        manifest.writestr("META-INF/services/org.apache.kafka.connect.storage.Converter", names)
