"""An embedded schema registry: Apicurio Registry as one process that holds its schemas in memory."""

from __future__ import annotations

import zipfile
from pathlib import Path

import requests

from ingest.errors import Unreachable
from ingest.jvm.jars import jars_folder, require_java
from ingest.stack.ports import HOST
from ingest.stack.service import Service

_PROGRAM = "app"
_PROBE_SECONDS = 3.0


class Registry(Service):
    """The registry at `url`, by Confluent's interface. A stop forgets its schemas."""

    name = "registry"
    port_names = ("http",)

    @property
    def url(self) -> str:
        """The URL of Confluent's interface, for `source.registry`."""
        return self.external or f"{self._base}/apis/ccompat/v7"

    @property
    def core_url(self) -> str:
        """The URL of Apicurio's own interface, for its converters."""
        return f"{self._base}/apis/registry/v2"

    @property
    def _base(self) -> str:
        return self.external.partition("/apis/")[0] if self.external else f"http://{HOST}:{self.ports['http']}"

    @property
    def address(self) -> str:
        return self.url

    def check(self) -> None:
        try:
            requests.get(f"{self.url}/subjects", timeout=_PROBE_SECONDS).raise_for_status()
        except requests.RequestException as failure:
            raise Unreachable(
                f"no schema registry answers at {self.url}", "see that it runs and can be reached from here"
            ) from failure

    def _prepare(self) -> None:
        program = self.folder / _PROGRAM
        if program.exists():
            return
        (archive,) = jars_folder("registry").glob("*.zip")
        partial = self.folder / f"{_PROGRAM}.partial"
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(partial)
        partial.rename(program)

    def _command(self) -> list[str]:
        return [
            str(require_java()),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dquarkus.http.host={HOST}",
            f"-Dquarkus.http.port={self.ports['http']}",
            "-jar",
            str(_runner(self.folder / _PROGRAM)),
        ]


def _runner(program: Path) -> Path:
    (found,) = program.glob("*-runner.jar")
    return found
