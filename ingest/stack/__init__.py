"""Embedded services for the demo, for tests and for a laptop: Postgres, Kafka, Kafka Connect with Debezium, and S3.

from ingest.stack import Stack

with Stack() as stack:
    stack.postgres.dsn, stack.kafka.bootstrap_servers, stack.connect.url
    stack.connect.register("shop", {"connector.class": "io.debezium…PostgresConnector", …})
"""

from ingest.connector import Connectors, ConnectorStatus
from ingest.stack.connect import ConnectWorker
from ingest.stack.kafka import Kafka
from ingest.stack.postgres import Postgres
from ingest.stack.s3 import S3
from ingest.stack.service import Service, ServiceStatus
from ingest.stack.stack import CHANGELOG_PARTS, EXTERNAL_VARIABLES, PARTS, Stack

__all__ = [
    "CHANGELOG_PARTS",
    "EXTERNAL_VARIABLES",
    "PARTS",
    "S3",
    "ConnectWorker",
    "ConnectorStatus",
    "Connectors",
    "Kafka",
    "Postgres",
    "Service",
    "ServiceStatus",
    "Stack",
]
