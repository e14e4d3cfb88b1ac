"""Real Postgres, Kafka and Kafka Connect with Debezium, embedded: for the demo, for tests, for a laptop.

from ingest.stack import Stack

with Stack() as stack:
    stack.postgres.dsn, stack.kafka.bootstrap_servers, stack.connect.url
    stack.connect.register("shop", {"connector.class": "io.debezium…PostgresConnector", …})
"""

from ingest.stack.connect import Connect
from ingest.stack.connectors import Connectors, ConnectorStatus
from ingest.stack.kafka import Kafka
from ingest.stack.postgres import Postgres
from ingest.stack.service import Service, ServiceStatus
from ingest.stack.stack import EXTERNAL_VARIABLES, PARTS, Stack

__all__ = [
    "EXTERNAL_VARIABLES",
    "PARTS",
    "Connect",
    "ConnectorStatus",
    "Connectors",
    "Kafka",
    "Postgres",
    "Service",
    "ServiceStatus",
    "Stack",
]
