"""A client of schema registries: Confluent's interface, and Apicurio's own.

Sources: Confluent's "Schema Registry API Reference"; Apicurio's "Registry Core REST API" v2 and v3. Apicurio serves
Confluent's interface below `/apis/ccompat`, where an ID is one of a content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import requests

from ingest.changelog.registry.frames import Lookup, SchemaId
from ingest.changelog.registry.registered_schema import Kind, RegisteredSchema, kind_of
from ingest.errors import SourceRefused, Unreachable

_TIMEOUT_SECONDS = (3.0, 20.0)
_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = 500
_APICURIO = re.compile(r"(?P<base>.*)/apis/(?P<api>ccompat|registry)/v(?P<version>\d+)")
_KINDS = {"AVRO": Kind.AVRO, "JSON": Kind.JSON_SCHEMA}
_PATHS = {Lookup.GLOBAL: "globalIds", Lookup.CONTENT: "contentIds"}


class SchemaRegistry:
    """The registry at `url`, either interface of Apicurio's.

    Args:
        login: user and password, for a registry with basic authentication.
        ca_file: the CA certificates that signed the server's certificate, if the system doesn't trust it.
    """

    def __init__(self, url: str, login: tuple[str, str] | None = None, ca_file: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._login = login
        self._verify = ca_file or True

    def schema(self, schema_id: SchemaId) -> RegisteredSchema | None:
        """Returns a schema with those that it refers to; None if the registry has none with this ID.

        Raises Unreachable while the registry doesn't answer, SourceRefused if it refuses."""
        if schema_id.lookup in _PATHS:
            return self._of_apicurio(schema_id)
        folder = "guids" if schema_id.lookup is Lookup.GUID else "ids"
        answer = self._get(f"{self._confluent}/schemas/{folder}/{quote(schema_id.value)}")
        if answer is None:
            return None
        found: dict[str, Any] = answer.json()
        kind = _KINDS.get(found.get("schemaType", "AVRO"))
        if kind is None:
            raise SourceRefused(
                f"the schema {schema_id} in the registry at {self.url} is of type {found['schemaType']}",
                "let the connector write Avro, JSON Schema or JSON",
            )
        return RegisteredSchema(kind, found["schema"], tuple(self._references(found).items()))

    def _references(self, schema: Mapping[str, Any]) -> dict[str, str]:
        """Returns name → text of the schemas that one refers to, those before that others need."""
        found: dict[str, str] = {}
        for one in schema.get("references") or ():
            subject, version = quote(one["subject"], safe=""), one["version"]
            answer = self._get(f"{self._confluent}/subjects/{subject}/versions/{version}")
            if answer is not None:
                found |= self._references(answer.json()) | {one["name"]: answer.json()["schema"]}
        return found

    def _of_apicurio(self, schema_id: SchemaId) -> RegisteredSchema | None:
        place = f"{self._core}/ids/{_PATHS[schema_id.lookup]}/{schema_id.value}"
        answer = self._get(place)
        if answer is None:
            return None
        text = answer.content.decode()
        return RegisteredSchema(kind_of(text), text, tuple(self._core_references(place).items()))

    def _core_references(self, place: str) -> dict[str, str]:
        found: dict[str, str] = {}
        answer = self._get(f"{place}/references")
        for one in [] if answer is None else answer.json():
            group, artifact = (quote(one.get(name) or "default", safe="") for name in ("groupId", "artifactId"))
            version = f"{self._core}/groups/{group}/artifacts/{artifact}/versions/{one['version']}"
            content = self._get(version if self._core.endswith("v2") else f"{version}/content")
            if content is not None:
                found |= self._core_references(version) | {one["name"]: content.content.decode()}
        return found

    @property
    def _confluent(self) -> str:
        known = _APICURIO.fullmatch(self.url)
        if known is None or known["api"] == "ccompat":
            return self.url
        return f"{known['base']}/apis/ccompat/v7"

    @property
    def _core(self) -> str:
        known = _APICURIO.fullmatch(self.url)
        if known is None:
            raise SourceRefused(
                f"records have IDs of an Apicurio registry, and {self.url} is no address of one",
                "set source.registry.url to its address, such as http://registry:8080/apis/ccompat/v7",
            )
        return self.url if known["api"] == "registry" else f"{known['base']}/apis/registry/v2"

    def _get(self, url: str) -> requests.Response | None:
        """Returns the answer; None if the registry says that it has no such thing."""
        try:
            answer = requests.get(url, timeout=_TIMEOUT_SECONDS, auth=self._login, verify=self._verify)
        except requests.RequestException as failure:
            raise Unreachable(
                f"the schema registry at {self.url} does not answer ({type(failure).__name__})",
                "see that it runs and can be reached from here: records wait until then, and none is lost",
            ) from failure
        if answer.ok:
            return answer
        if answer.status_code >= _SERVER_ERRORS or answer.status_code == _TOO_MANY_REQUESTS:
            raise Unreachable(
                f"the schema registry at {self.url} answered {answer.status_code}",
                "read its log: records wait until it answers, and none is lost",
            )
        if answer.status_code == requests.codes.not_found and _has_error_code(answer):
            return None
        if answer.status_code in (requests.codes.unauthorized, requests.codes.forbidden):
            raise SourceRefused(
                f"the schema registry at {self.url} refuses the user ({answer.status_code})",
                "correct user and password in source.registry, or let the user read schemas",
            )
        raise SourceRefused(
            f"the schema registry at {self.url} answered {answer.status_code}",
            "set source.registry.url to the registry's interface, such as http://registry:8081, or "
            "http://registry:8080/apis/ccompat/v7 of Apicurio",
        )


def _has_error_code(answer: requests.Response) -> bool:
    """Returns True for the answer of a registry, not of another server at this address."""
    try:
        return "error_code" in answer.json()
    except ValueError:
        return False
