"""One risk of a connector's configuration, and what it is judged by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Risk:
    """A setting, what it does to the data, and what to set instead.

    `loses`: data are lost or changed without a trace. Otherwise the setting was chosen, or loses them only where
    something else happens as well.
    """

    setting: str
    value: str
    effect: str
    remedy: str
    loses: bool = True


@dataclass(frozen=True)
class Reader:
    """What a pipeline's file says of its connector."""

    topic_prefix: str | None = None
    placeholder: str = "__debezium_unavailable_value"
    heartbeat_prefix: str = "__debezium-heartbeat"
    snapshots: Literal["whole", "partial"] = "whole"


class Configuration(dict[str, str]):
    """A connector's properties, as text."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__({name: str(value) for name, value in properties.items()})

    @property
    def connector_class(self) -> str:
        """The connector's Java class."""
        return self.get("connector.class", "")
