"""The model of a pipeline file, checked and frozen. Properties of Kafka, Debezium and Spark keep their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, PrivateAttr, model_validator

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
from ingest.config.schema_changes import Limits, SchemaSettings
from ingest.config.section import Section, Table, Text
from ingest.config.source import SourceSettings
from ingest.names import Lakehouse
from ingest.tuning import DEFAULT_TUNING, Tuning


def _last_names(steps: Mapping[str, str]) -> dict[str, str]:
    """Returns name → the name to which `steps`, name → next name, lead from it. Raises ValueError if they lead back."""
    found = {}
    for first in steps:
        name, passed = first, set[str]()
        while name in steps and name not in passed:
            passed.add(name)
            name = steps[name]
        if name in passed:
            raise ValueError("renames and rename lead from a column back to itself: keep the newest name only")
        found[first] = name
    return found


class TableSettings(Personal):
    """Facts about a table that the changelog doesn't carry."""

    primary_key: tuple[Text, ...] | None = Field(
        default=None, description="The key columns, for events without a key; [] for rows without a key."
    )
    columns: Mapping[Text, Text] = Field(
        default={},
        description='column: logical type, such as "decimal(10,3)", whatever the events carry.',
    )

    rename: Mapping[Text, Text] = Field(
        default={},
        description="column in the events: name in the table. For one of two columns whose names differ in case only, "
        "or for a name that ingest's own columns have.",
    )

    renames: Mapping[Text, Text] = Field(
        default={},
        description="column before: column after, of columns that the source has renamed or will. Events don't tell a "
        "rename from a drop and a new column. Both names are one column of the table, under the newest one.",
    )

    sequence: Text | None = Field(
        default=None,
        description="A column of whole numbers that orders the changes, if the source gives no position. Every event "
        "has to carry it, deletes in the image before.",
    )
    append_only: bool = Field(
        default=False,
        description="Every image becomes a row of its own, and no row is removed: for a table without a key whose "
        "updates and deletes don't carry the row before.",
    )

    history: bool = Field(
        default=False,
        description="Keep all versions of the table's rows in a second table (SCD type 2), each with the times from "
        "which and until which it was valid. For a table with a key.",
    )
    schema_settings: SchemaSettings | None = Field(
        default=None,
        alias="schema",
        description="What becomes of changes of the table, where it isn't as the pipeline's.",
    )

    @model_validator(mode="after")
    def _require_consistent_append_only(self) -> Self:
        if self.append_only and self.primary_key is not None:
            raise ValueError("has a primary_key and is append_only: such rows have no key")
        if self.append_only and self.history:
            raise ValueError("has a history and is append_only: such rows never change")
        return self

    @model_validator(mode="after")
    def _require_unique_names(self) -> Self:
        names = [name.lower() for name in self.rename.values()]
        if len(set(names)) < len(names):
            raise ValueError("rename gives two columns one name: a Delta table's column names are case-insensitive")
        return self

    @property
    def names(self) -> Mapping[str, str]:
        """Returns column in the events → its name in the table, where the two differ."""
        return _last_names({**self.renames, **self.rename})

    @model_validator(mode="after")
    def _require_renames_that_end(self) -> Self:
        _last_names({**self.renames, **self.rename})
        return self

    @model_validator(mode="after")
    def _require_new_names_of_personal_columns(self) -> Self:
        named = {name: {*names} for name, names in self.personal_columns.items()}
        for setting, names in named.items():
            left = sorted(old for old in names & {*self.renames} if self.renames[old] not in names)
            if left:
                old, new = left[0], self.renames[left[0]]
                raise ValueError(f"{setting} names {old!r}, which renames calls {new!r} since: name {new!r} there too")
        return self

    @model_validator(mode="after")
    def _require_unique_key_columns(self) -> Self:
        if self.primary_key is not None and len(set(self.primary_key)) < len(self.primary_key):
            raise ValueError("primary_key names a column twice")
        return self

    @model_validator(mode="after")
    def _require_sound_privacy(self) -> Self:
        require_sound(self, self)
        return self


_MERGED_AT_ONCE = 5_000_000


class BatchSettings(Section):
    """The sizes of batches, and the pause between polls."""

    max_events: Annotated[int, Field(ge=1)] = Field(
        default=500_000, description="The maximum number of events of a micro-batch."
    )
    merge_events: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="About how many events are merged at once while more are waiting than a micro-batch holds: the "
        f"more, the less an event costs. Default: max_events if it is given, else {_MERGED_AT_ONCE:,}.",
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
    """How long tombstones of deleted keys are kept before `ingest gc` removes them."""

    keep_days: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Days since the delete was written to its topic. Default: as long as the topics hold any older "
        "event.",
    )


class Pipeline(Section):
    """One changelog and the lakehouse that it is merged into."""

    name: Text = Field(description="Name of the source in the lakehouse. Default: the file's name.")
    source: SourceSettings
    lakehouse: Text = Field(description="A folder, or a URI such as s3a://bucket/prefix.")
    tables: Mapping[Table, TableSettings] = Field(
        default={}, description="Settings of tables, only for what the changelog doesn't carry."
    )
    schema_settings: SchemaSettings = Field(
        default_factory=SchemaSettings, alias="schema", description="What becomes of changes of the source's tables."
    )
    limits: Limits = Field(default_factory=Limits)
    batch: BatchSettings = Field(default_factory=BatchSettings)
    retry: Retry = Field(default_factory=Retry)
    tombstones: TombstoneSettings = Field(default_factory=TombstoneSettings)
    old_versions: OldVersions = Field(default_factory=OldVersions)
    archive: Archive | None = Field(default=None, description="The archive of the changelog, if there is one.")
    privacy: Privacy | None = Field(default=None, description="Required if tables lead to subjects.")
    airflow: Airflow = Field(default_factory=Airflow)
    spark: PropertiesField = Field(
        default_factory=Properties, description="Spark's own properties, passed through unchanged."
    )
    _tuning: Tuning = PrivateAttr(default=DEFAULT_TUNING)

    @property
    def tuning(self) -> Tuning:
        """Returns the thresholds that no file sets."""
        return self._tuning

    def with_tuning(self, tuning: Tuning) -> Pipeline:
        """Returns the same pipeline with other thresholds."""
        copy = self.model_copy()
        copy._tuning = tuning
        return copy

    @property
    def layout(self) -> Lakehouse:
        """Returns the paths of the lakehouse's tables."""
        return Lakehouse(self.lakehouse)

    @property
    def session(self) -> Mapping[str, str]:
        """Returns the properties of a Spark session for this pipeline: the file's own, the defaults for new tables,
        and, if subjects can be erased, encryption of what Spark writes outside of tables."""
        encrypted = {} if self.privacy is None else {"spark.io.encryption.enabled": "true"}
        return {**self.old_versions.of_new_tables, **encrypted, **self.spark}

    @property
    def writes_tombstones(self) -> bool:
        """Returns True if an erasure writes null tombstones into the source's compacted topics."""
        return self.privacy is not None and self.privacy.tombstones_in_topics

    @property
    def shreds(self) -> bool:
        """Returns True if any column is encrypted under keys of subjects."""
        return any(t.shred for t in self.tables.values())

    @model_validator(mode="after")
    def _refuse_credentials_in_uri(self) -> Self:
        if re.match(r"[a-z0-9]+://[^/]*:[^/]*@", self.lakehouse, re.IGNORECASE):
            raise ValueError("lakehouse holds credentials: give them to Spark as spark.hadoop.* properties")
        return self

    @model_validator(mode="after")
    def _require_subject_chains(self) -> Self:
        require_chains(self.tables)
        require_ledger_keys(self.tables, self.privacy, Path(self.lakehouse))
        return self

    @model_validator(mode="after")
    def _require_shredding_keys(self) -> Self:
        if self.shreds:
            require_data_keys(self.tables, self.privacy, Path(self.lakehouse))
            if self.source.case_insensitive:
                raise ValueError(
                    "tables shred columns, which are matched by their exact names: remove case_insensitive"
                )
        return self

    @model_validator(mode="after")
    def _require_spark_prefix(self) -> Self:
        for key in self.spark:
            if not key.startswith("spark."):
                raise ValueError(f"spark holds {key!r}, and Spark reads only names that begin with 'spark.'")
        return self
