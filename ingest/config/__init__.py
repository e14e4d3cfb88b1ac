"""A pipeline's configuration: `load` reads and checks its file and returns frozen data."""

from ingest.config.airflow import Airflow
from ingest.config.archive import Archive
from ingest.config.loading import find, load
from ingest.config.model import Batch, Pipeline, TableSettings
from ingest.config.old_versions import OldVersions
from ingest.config.privacy import Constant, Generalised
from ingest.config.properties import Properties
from ingest.config.schema import json_schema, json_schema_text
from ingest.config.source import Debezium, Source

__all__ = [
    "Airflow",
    "Archive",
    "Batch",
    "Constant",
    "Debezium",
    "Generalised",
    "OldVersions",
    "Pipeline",
    "Properties",
    "Source",
    "TableSettings",
    "find",
    "json_schema",
    "json_schema_text",
    "load",
]
