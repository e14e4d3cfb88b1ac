"""The configuration of how long old versions of tables stay readable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from ingest.config.section import Section

_DEFAULTS = "spark.databricks.delta.properties.defaults."
_SECONDS_AN_HOUR = 3600


class OldVersions(Section):
    """How long old versions of tables are kept. A stream vacuums its tables while it runs; elsewhere `ingest vacuum`
    does."""

    keep_hours: Annotated[int, Field(ge=1)] = Field(
        default=168,
        description="Hours for which old versions of a table stay readable. Files and log entries that only older "
        "versions need are deleted. No query and no batch may take longer.",
    )

    @property
    def properties(self) -> Mapping[str, str]:
        """Returns the retention as Delta table properties."""
        kept = f"interval {round(self.keep_hours * _SECONDS_AN_HOUR)} seconds"
        return {"delta.logRetentionDuration": kept, "delta.deletedFileRetentionDuration": kept}

    @property
    def of_new_tables(self) -> Mapping[str, str]:
        """Returns session properties that give new tables this retention."""
        return {_DEFAULTS + name.removeprefix("delta."): kept for name, kept in self.properties.items()}
