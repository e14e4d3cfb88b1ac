"""The values that rules work on: a risk, a connector's properties, and the pipeline file's settings for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Risk:
    """A risky setting, its effect on the data, and the remedy.

    `loses`: True if data are lost or changed silently; False if the setting was a choice, or loses data only together
    with another event.
    """

    setting: str
    value: str
    effect: str
    remedy: str
    loses: bool = True


@dataclass(frozen=True)
class ReaderSettings:
    """The pipeline file's settings for its connector."""

    topic_prefix: str | None = None
    placeholder: str = "__debezium_unavailable_value"
    heartbeat_prefix: str = "__debezium-heartbeat"
    snapshots: Literal["whole", "partial"] = "whole"
    brokers: str | None = None
    has_registry: bool = False
    """The pipeline reads Avro and JSON Schema by a registry."""
    notification_topic: str | None = None
    """For `ingest resync`; None: not checked."""


class Configuration(dict[str, str]):
    """A connector's properties as strings."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__({name: str(value) for name, value in properties.items()})

    @property
    def connector_class(self) -> str:
        """The connector's Java class."""
        return self.get("connector.class", "")
