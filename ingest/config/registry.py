"""The address of the registry that holds the schemas of the source's records."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from ingest.config.section import Section, Text


class RegistrySettings(Section):
    """The schema registry of topics with Avro or JSON Schema. The lakehouse keeps each schema that was needed."""

    url: Text = Field(
        description="The URL of the registry's interface: http://registry:8081, or "
        "http://registry:8080/apis/ccompat/v7 of Apicurio."
    )
    user: Text | None = Field(default=None, description="The user, if the registry requires authentication.")
    password: SecretStr | None = Field(default=None, description="The user's password, from the environment: ${NAME}.")
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

    @property
    def login(self) -> tuple[str, str] | None:
        """Returns user and password; None without a user."""
        if self.user is None:
            return None
        return self.user, self.password.get_secret_value() if self.password is not None else ""

    @model_validator(mode="after")
    def _require_url(self) -> Self:
        if re.match(r"https?://[^/]*@", self.url, re.IGNORECASE):
            raise ValueError("url holds credentials: give them as user and password")
        if not re.match(r"https?://[^/\s]+", self.url, re.IGNORECASE):
            raise ValueError("url should be the address of the registry, such as http://registry:8081")
        if self.password is not None and self.user is None:
            raise ValueError("has a password and no user")
        return self
