"""Debezium connectors: the recommended configuration, the risks of other ones, the source's triggers for DDL, and Kafka
Connect's REST interface."""

from ingest.connector.ddl_trigger import ddl_trigger
from ingest.connector.recipe import Placement, Setting, recipe
from ingest.connector.rest import Connectors, ConnectorStatus
from ingest.connector.risk import ReaderSettings, Risk
from ingest.connector.risks import risks, topic_risks, version_risks

__all__ = [
    "ConnectorStatus",
    "Connectors",
    "Placement",
    "ReaderSettings",
    "Risk",
    "Setting",
    "ddl_trigger",
    "recipe",
    "risks",
    "topic_risks",
    "version_risks",
]
