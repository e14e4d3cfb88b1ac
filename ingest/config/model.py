"""The model of a pipeline file, checked and frozen. Properties of Kafka, Debezium and Spark keep their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from ingest.config.airflow import Airflow
from ingest.config.archive import Archive
from ingest.config.old_versions import OldVersions
from ingest.config.privacy import (
    Personal,
    Privacy,
    require_chains,
    require_data_keys,
    require_ledger_keys,
    require_sound,
)
from ingest.config.properties import Properties, PropertiesField
from ingest.config.retry import Retry
from ingest.config.section import Section, Table, Text
from ingest.config.source import Source
from ingest.names import Lakehouse


class TableSettings(Personal):
    """What the changelog doesn't say about a table."""

    primary_key: Annotated[tuple[Text, ...], Field(min_length=1)] | None = Field(
        default=None, description="Columns of the key, where the events have none."
    )
    columns: Mapping[Text, Text] = Field(
        default={},
        description='column: logical type such as "decimal(10,3)", where the events carry no schema.',
    )

    rename: Mapping[Text, Text] = Field(
        default={},
        description="column of the events: name in the table. For one of two columns whose names differ in case only, "
        "or a name that tables use themselves.",
    )

    sequence: Text | None = Field(
        default=None,
        description="A column of whole numbers that orders the changes, where the source gives no position. Every "
        "event has to hold it, deletes in the image before.",
    )
    append_only: bool = Field(
        default=False,
        description="Every image is a row of its own, nothing is taken away: for a table without a key whose updates "
        "and deletes don't bring the row before.",
    )

    history: bool = Field(
        default=False,
        description="All versions of its rows are kept, each with the time from which and before which it held, in a "
        "table of their own (an SCD of type 2). For a table with a key.",
    )

    @model_validator(mode="after")
    def _rows_of_their_own(self) -> Self:
        if self.append_only and self.primary_key is not None:
            raise ValueError("has a primary_key and is append_only: rows of their own have no key")
        if self.append_only and self.history:
            raise ValueError("has a history and is append_only: rows of their own never change")
        return self

    @model_validator(mode="after")
    def _names_apart(self) -> Self:
        names = [name.lower() for name in self.rename.values()]
        if len(set(names)) < len(names):
            raise ValueError("rename gives two columns one name: a Delta table knows no case")
        return self

    @model_validator(mode="after")
    def _key_columns_once(self) -> Self:
        if self.primary_key is not None and len(set(self.primary_key)) < len(self.primary_key):
            raise ValueError("primary_key names a column twice")
        return self

    @model_validator(mode="after")
    def _sound_about_people(self) -> Self:
        require_sound(self, self)
        return self


_MERGED_AT_ONCE = 5_000_000


class Batch(Section):
    max_events: Annotated[int, Field(ge=1)] = Field(default=500_000, description="Most events of one micro-batch.")
    merge_events: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="About so many events are merged at once where more wait than a micro-batch holds: the more, the "
        f"less an event costs. Without it as many as max_events says, or {_MERGED_AT_ONCE:,} where that isn't named.",
    )
    poll_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.2, description="Pause in seconds when there was nothing new."
    )

    @property
    def merged_at_once(self) -> int:
        """Returns about the number of events that are merged at once if more wait."""
        if self.merge_events is not None:
            return self.merge_events
        return self.max_events if "max_events" in self.model_fields_set else _MERGED_AT_ONCE


class TombstoneSettings(Section):
    """How long deleted keys are remembered, which `ingest gc` forgets."""

    keep_days: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Days since the delete was written to its topic. Without it: as long as the topics hold anything "
        "that is older.",
    )


class Pipeline(Section):
    """One changelog into one lakehouse."""

    name: Text = Field(description="Name of the source in the lakehouse. The file's name unless given.")
    source: Source
    lakehouse: Text = Field(description="A folder, or a URI such as s3a://bucket/prefix.")
    tables: Mapping[Table, TableSettings] = Field(default={}, description="Only what the changelog doesn't say.")
    batch: Batch = Field(default_factory=Batch)
    retry: Retry = Field(default_factory=Retry)
    tombstones: TombstoneSettings = Field(default_factory=TombstoneSettings)
    old_versions: OldVersions = Field(default_factory=OldVersions)
    archive: Archive | None = Field(default=None, description="Where the changelog is kept for ever.")
    privacy: Privacy | None = Field(default=None, description="Needed where tables lead to subjects.")
    airflow: Airflow = Field(default_factory=Airflow)
    spark: PropertiesField = Field(
        default_factory=Properties, description="Spark's own properties, passed through unchanged."
    )

    @property
    def layout(self) -> Lakehouse:
        """Returns the paths of the lakehouse's tables."""
        return Lakehouse(self.lakehouse)

    @property
    def session(self) -> Mapping[str, str]:
        """Returns the properties of a Spark session for this pipeline: the file's own, and the defaults for new
        tables."""
        return {**self.old_versions.of_new_tables, **self.spark}

    @property
    def writes_tombstones(self) -> bool:
        """Returns True if an erasure writes null tombstones into the source's compacted topics."""
        return self.privacy is not None and self.privacy.tombstones_in_topics

    @property
    def shreds(self) -> bool:
        """Returns True if any column is encrypted under keys of subjects."""
        return any(t.shred for t in self.tables.values())

    @model_validator(mode="after")
    def _no_credentials_in_uri(self) -> Self:
        if re.match(r"[a-z0-9]+://[^/]*:[^/]*@", self.lakehouse, re.IGNORECASE):
            raise ValueError("lakehouse holds credentials: give them to Spark as spark.hadoop.* properties")
        return self

    @model_validator(mode="after")
    def _subjects(self) -> Self:
        require_chains(self.tables)
        require_ledger_keys(self.tables, self.privacy, Path(self.lakehouse))
        return self

    @model_validator(mode="after")
    def _shredding(self) -> Self:
        if self.shreds:
            require_data_keys(self.tables, self.privacy, Path(self.lakehouse))
            if self.source.case_insensitive:
                raise ValueError(
                    "tables shred columns, which have to be told by their exact names: no case_insensitive"
                )
        return self

    @model_validator(mode="after")
    def _spark_properties(self) -> Self:
        for key in self.spark:
            if not key.startswith("spark."):
                raise ValueError(f"spark holds {key!r}, and Spark reads only names that begin with 'spark.'")
        return self
