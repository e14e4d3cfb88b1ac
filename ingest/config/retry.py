"""The configuration of retries."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from ingest.config.section import Section

_DURATION = r"^([0-9]+[dhms] ?)+$"
_PART = re.compile(r"([0-9]+)([dhms])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def _duration(text: Any) -> str:
    if not isinstance(text, str) or re.match(_DURATION, text) is None:
        raise ValueError("should be numbers with a unit each (d, h, m, s), such as 90s, 30m, 1h or 1h 30m")
    return text


Duration = Annotated[str, BeforeValidator(_duration), Field(json_schema_extra={"pattern": _DURATION})]


class Retry(Section):
    """Retries with growing pauses while Kafka, the object store or a database is away, another writer commits to the
    same tables, or Spark lacks memory or time."""

    give_up_after: Duration = Field(
        default="1h",
        description="For how long to retry after the first failure; a successful batch restarts the count. Then the "
        "run ends with exit code 75. 0s: no retries.",
    )

    @property
    def limit(self) -> timedelta:
        """Returns `give_up_after` as a duration."""
        parts = {_UNITS[unit]: 0 for unit in _UNITS}
        for number, unit in _PART.findall(self.give_up_after):
            parts[_UNITS[unit]] += int(number)
        return timedelta(**parts)
