"""The address of an HTTP service and the login for it."""

from __future__ import annotations

import re
from typing import ClassVar, Self

from pydantic import Field, SecretStr, model_validator

from ingest.config.section import Section, Text


class HttpService(Section):
    """A service at a URL, with basic authentication if it has a user. `address`: what the URL should be, for errors."""

    address: ClassVar[str]

    url: Text
    user: Text | None = Field(default=None, description="The user, if the interface requires authentication.")
    password: SecretStr | None = Field(default=None, description="The user's password, from the environment: ${NAME}.")

    @property
    def login(self) -> tuple[str, str] | None:
        """Returns user and password; None without a user."""
        if self.user is None:
            return None
        return self.user, self.password.get_secret_value() if self.password is not None else ""

    @model_validator(mode="after")
    def _require_url_and_user(self) -> Self:
        if re.match(r"https?://[^/]*@", self.url, re.IGNORECASE):
            raise ValueError("url holds credentials: give them as user and password")
        if not re.match(r"https?://[^/\s]+", self.url, re.IGNORECASE):
            raise ValueError(f"url should be the address of {self.address}")
        if self.password is not None and self.user is None:
            raise ValueError("has a password and no user")
        return self
