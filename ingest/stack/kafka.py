"""An embedded Kafka broker: one KRaft process that is broker and controller."""

from __future__ import annotations

import subprocess
import uuid
from base64 import urlsafe_b64encode
from typing import ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ingest.errors import Unreachable
from ingest.stack.java import java_command, properties_text
from ingest.stack.ports import HOST
from ingest.stack.service import Service

_FORMAT_TIMEOUT_SECONDS = 120
_MAX_MESSAGE_BYTES = 10_000_000


class Kafka(Service):
    """The broker. Clients need only `bootstrap_servers`: no encryption, no authentication, 127.0.0.1 only."""

    name = "kafka"
    port_names: ClassVar[tuple[str, ...]] = ("broker", "controller")

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, or the list of an external cluster."""
        return self.external or f"{HOST}:{self.ports['broker']}"

    @property
    def address(self) -> str:
        return self.bootstrap_servers

    def check(self) -> None:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.bootstrap_servers,
            "log_level": 0,
            "socket.timeout.ms": 3000,
        }
        try:
            brokers = AdminClient(settings).list_topics(timeout=3).brokers
        except KafkaException as failure:
            raise _unreachable(self.bootstrap_servers) from failure
        if not brokers:
            raise _unreachable(self.bootstrap_servers)

    def _prepare(self) -> None:
        properties_file = self.folder / "server.properties"
        properties_file.write_text(properties_text(self._properties()))
        if (self.data / "meta.properties").exists():
            return
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = java_command("kafka", 128, "kafka.tools.StorageTool")
        with self.log_file.open("ab") as log:
            done = subprocess.run(
                [*tool, "format", f"--cluster-id={cluster_id}", "-c", str(properties_file)],
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=_FORMAT_TIMEOUT_SECONDS,
                check=False,
            )
        if done.returncode != 0:
            raise self.failure("could not format its data folder")

    def _command(self) -> list[str]:
        return java_command("kafka", 320, "kafka.Kafka", str(self.folder / "server.properties"))

    def _properties(self) -> dict[str, object]:
        broker, controller = self.ports["broker"], self.ports["controller"]
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{broker}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.data,
            "auto.create.topics.enable": "true",
            "num.partitions": 1,
            "default.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "message.max.bytes": _MAX_MESSAGE_BYTES,
            "log.segment.bytes": 16_777_216,
            "log.index.size.max.bytes": 1_048_576,
            # The cleaner's default buffer, 128 MB, is a third of this heap.
            "log.cleaner.dedupe.buffer.size": 8_388_608,
        }


def _unreachable(bootstrap_servers: str) -> Unreachable:
    return Unreachable(
        f"no Kafka broker answers at {bootstrap_servers}",
        "see that it runs and can be reached from here, then try again",
    )
