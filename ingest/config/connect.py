"""The address of the source's connector, whose configuration `ingest check --live` reads."""

from __future__ import annotations

from pydantic import Field

from ingest.config.http_service import HttpService
from ingest.config.section import Text


class ConnectSettings(HttpService):
    """The connector that writes the changelog, and the Kafka Connect worker that runs it."""

    address = "Connect's REST interface, such as http://connect:8083"

    url: Text = Field(description="The URL of Kafka Connect's REST interface, such as http://connect:8083.")
    connector: Text = Field(description="The connector's name there.")
    ca_file: Text | None = Field(
        default=None, description="PEM file of the authority that signed the interface's certificate."
    )
    accept: tuple[Text, ...] = Field(
        default=(),
        description="Properties of the connector that lose data on purpose, such as column.exclude.list: `ingest "
        "check --live` shows them and does not fail.",
    )
