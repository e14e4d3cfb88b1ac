"""The configuration of how long old versions of tables stay readable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from ingest.config.section import Section

_DEFAULTS = "spark.databricks.delta.properties.defaults."
_SECONDS_AN_HOUR = 3600


class OldVersions(Section):
    """A stream lets older ones go while it runs; `ingest vacuum` does for who has none."""

    keep_hours: Annotated[int, Field(ge=1)] = Field(
        default=168,
        description="How old a version of a table may be and still be read. What only older ones need goes: their "
        "files, their part of the log. No query and no batch may take longer.",
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
