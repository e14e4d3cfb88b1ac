"""A pipeline's configuration: `load` reads and checks its file and returns frozen data."""

from ingest.config.airflow import Airflow
from ingest.config.archive import Archive
from ingest.config.loading import find, load
from ingest.config.model import BatchSettings, Pipeline, TableSettings
from ingest.config.old_versions import OldVersions
from ingest.config.privacy import Constant, Generalised
from ingest.config.properties import Properties
from ingest.config.schema import json_schema, json_schema_text
from ingest.config.source import Debezium, SourceSettings

__all__ = [
    "Airflow",
    "Archive",
    "BatchSettings",
    "Constant",
    "Debezium",
    "Generalised",
    "OldVersions",
    "Pipeline",
    "Properties",
    "SourceSettings",
    "TableSettings",
    "find",
    "json_schema",
    "json_schema_text",
    "load",
]
