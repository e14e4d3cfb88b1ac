"""The address of the registry that holds the schemas of the source's records."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ingest.config.http_service import HttpService
from ingest.config.section import Text


class RegistrySettings(HttpService):
    """The schema registry of topics with Avro or JSON Schema. The lakehouse keeps each schema that was needed."""

    address = "the registry, such as http://registry:8081"

    url: Text = Field(
        description="The URL of the registry's interface: http://registry:8081, or "
        "http://registry:8080/apis/ccompat/v7 of Apicurio."
    )
    user: Text | None = Field(default=None, description="The user, if the registry requires authentication.")
    ca_file: Text | None = Field(
        default=None, description="PEM file of the authority that signed the registry's certificate."
    )
    prefix_ids: Literal["content", "global"] | None = Field(
        default=None,
        description="The kind of the IDs in front of records by Apicurio's converters, as their "
        "apicurio.registry.use-id has it. Default: IDs of four bytes are those of Confluent's interface, which are "
        "contents at Apicurio; those of eight bytes are global.",
    )
    unreadable: Literal["stop", "quarantine"] = Field(
        default="stop",
        description="What to do with a record whose schema the registry does not have, or whose schema can't be read. "
        "stop: fail with an error, before any of the batch is captured. quarantine: quarantine the record as it "
        "is.",
    )
