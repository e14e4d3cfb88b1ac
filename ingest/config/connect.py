"""The address of the source's connector, whose configuration `ingest check --live` reads."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field, SecretStr, model_validator

from ingest.config.section import Section, Text


class ConnectSettings(Section):
    """The connector that writes the changelog, and the Kafka Connect worker that runs it."""

    url: Text = Field(description="The URL of Kafka Connect's REST interface, such as http://connect:8083.")
    connector: Text = Field(description="The connector's name there.")
    user: Text | None = Field(default=None, description="The user, if the interface requires authentication.")
    password: SecretStr | None = Field(default=None, description="The user's password, from the environment: ${NAME}.")
    ca_file: Text | None = Field(
        default=None, description="PEM file of the authority that signed the interface's certificate."
    )
    accept: tuple[Text, ...] = Field(
        default=(),
        description="Properties of the connector that lose data on purpose, such as column.exclude.list: `ingest "
        "check --live` shows them and does not fail.",
    )

    @property
    def login(self) -> tuple[str, str] | None:
        """Returns user and password; None without a user."""
        if self.user is None:
            return None
        return self.user, self.password.get_secret_value() if self.password is not None else ""

    @model_validator(mode="after")
    def _require_rest_url(self) -> Self:
        if re.match(r"https?://[^/]*@", self.url, re.IGNORECASE):
            raise ValueError("url holds credentials: give them as user and password")
        if not re.match(r"https?://[^/\s]+", self.url, re.IGNORECASE):
            raise ValueError("url should be the address of Connect's REST interface, such as http://connect:8083")
        if self.password is not None and self.user is None:
            raise ValueError("has a password and no user")
        return self
