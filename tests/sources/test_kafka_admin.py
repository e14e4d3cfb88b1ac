"""The admin client with a real broker: offsets, absent topics, an unreachable broker, one that refuses the user."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import psutil
import pyarrow as pa
import pytest
import typer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from deltalake import CommitProperties, write_deltalake
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed
from typer.testing import CliRunner

from ingest.cli.pipeline.check import check
from ingest.errors import EXIT_TRANSIENT, ConfigError, SourceRefused, Unreachable
from ingest.sources.kafka_admin import KafkaAdmin, lag
from ingest.stack import Stack
from ingest.stack.kafka import Kafka
from ingest.stack.ports import HOST

pytestmark = pytest.mark.integration
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PIPELINE = """\
source:
  kafka: {{bootstrap.servers: '{servers}'}}
  topics: [{topic}]
lakehouse: {lakehouse}
"""
app = typer.Typer()
app.command()(check)


class PasswordKafka(Kafka):
    """A broker with a second listener that requires a user name and a password."""

    port_names: ClassVar[tuple[str, ...]] = ("broker", "controller", "sasl")

    def _properties(self) -> dict[str, object]:
        settings = super()._properties()
        address = f"SASL://{HOST}:{self.ports['sasl']}"
        return {
            **settings,
            "listeners": f"{settings['listeners']},{address}",
            "advertised.listeners": f"{settings['advertised.listeners']},{address}",
            "listener.security.protocol.map": f"{settings['listener.security.protocol.map']},SASL:SASL_PLAINTEXT",
            "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": f'{MODULE} required user_reader="right";',
        }

    def login(self, password: str) -> dict[str, str]:
        """Returns properties of a client that logs in with `password`."""
        return {
            "bootstrap.servers": f"{HOST}:{self.ports['sasl']}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{MODULE} required username="reader" password="{password}";',
        }


@pytest.fixture(scope="module")
def servers(stack: Stack) -> str:
    return stack.kafka.bootstrap_servers


@pytest.fixture(scope="module")
def password_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PasswordKafka]:
    kafka = PasswordKafka(tmp_path_factory.mktemp("password"))
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.stop()


def create(servers: str, topic: str, partitions: int) -> None:
    # Keep a reference: a client that is garbage-collected drops its requests.
    client = AdminClient({"bootstrap.servers": servers})
    client.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    # The controller answers before the broker lists the topic.
    assert until_listed(client, topic)


@retry(retry=retry_if_result(lambda is_listed: not is_listed), stop=stop_after_delay(60), wait=wait_fixed(0.1))
def until_listed(client: AdminClient, topic: str) -> bool:
    return topic in client.list_topics(timeout=30).topics


def delete(servers: str, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": servers})
    client.delete_topics([topic])[topic].result()


def produce(servers: str, topic: str, partition: int, timestamps: list[datetime]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for moment in timestamps:
        producer.produce(
            topic, b'{"op": "c", "after": {"id": 1}}', partition=partition, timestamp=int(moment.timestamp() * 1000)
        )
    assert producer.flush(60) == 0


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Yields a port that refuses connections and that no other process can take meanwhile."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        yield int(bound.getsockname()[1])


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records each request for metadata: each waits for about a second, so that their number stands for a time."""
    made = list[float]()
    ask = AdminClient.list_topics

    def counted(client: AdminClient, *arguments: Any, timeout: float, **named: Any) -> Any:
        made.append(timeout)
        return ask(client, *arguments, timeout=timeout, **named)

    monkeypatch.setattr(AdminClient, "list_topics", counted)
    return made


def connections(servers: str) -> set[int]:
    """Returns the local ports of this process's connections to the broker."""
    port = int(servers.rpartition(":")[2])
    found = psutil.Process().net_connections("tcp")
    return {c.laddr.port for c in found if c.raddr and c.raddr.port == port and c.status == psutil.CONN_ESTABLISHED}


@pytest.fixture
def topic(servers: str) -> str:
    name = f"admin.public.t{uuid4().hex[:8]}"
    create(servers, name, 2)
    return name


@pytest.fixture
def admin(servers: str) -> KafkaAdmin:
    return KafkaAdmin({"bootstrap.servers": servers})


def test_offsets_are_those_of_the_log(servers: str, topic: str, admin: KafkaAdmin) -> None:
    now = datetime.now(UTC)
    produce(servers, topic, 1, [now - timedelta(minutes=m) for m in (30, 20, 10)])
    assert admin.partitions([topic]) == {topic: (0, 1)}
    assert admin.beginning_offsets([topic]) == {topic: {0: 0, 1: 0}}
    assert admin.end_offsets([topic]) == {topic: {0: 0, 1: 3}}
    assert admin.offsets_at([topic], now - timedelta(minutes=20, seconds=1)) == {topic: {0: 0, 1: 1}}
    assert admin.offsets_at([topic], now) == {topic: {0: 0, 1: 3}}
    assert lag(admin.end_offsets([topic]), {topic: {1: 2}}) == {topic: {0: 0, 1: 1}}


def test_time_without_zone_is_refused(topic: str, admin: KafkaAdmin) -> None:
    with pytest.raises(ValueError, match="time zone"):
        admin.offsets_at([topic], datetime(2026, 1, 1))


def test_repeated_requests_reuse_the_connection(
    servers: str, topic: str, admin: KafkaAdmin, attempts: list[float]
) -> None:
    admin.end_offsets(admin.topics([topic]))
    before = connections(servers)
    assert before
    attempts.clear()
    for _ in range(50):
        admin.end_offsets(admin.topics([topic]))
    assert connections(servers) - before == set()
    assert len(attempts) == 50, "one request for topics and partitions each"


def test_topics_are_found_by_name_and_by_whole_name_pattern(servers: str, topic: str, admin: KafkaAdmin) -> None:
    assert admin.topics([topic]) == (topic,)
    assert admin.topics(pattern=topic.replace(".", r"\.")) == (topic,)
    with pytest.raises(SourceRefused):
        admin.topics(pattern=topic[:-1])
    later = f"{topic}.later"
    create(servers, later, 1)
    assert admin.topics(pattern=rf"{topic}.*") == (topic, later)
    assert "__consumer_offsets" not in admin.topics(pattern=".*")


def test_absent_topic_is_named_with_similar_ones(topic: str, admin: KafkaAdmin) -> None:
    with pytest.raises(SourceRefused) as caught:
        admin.topics([topic, f"{topic}x"])
    assert repr(f"{topic}x") in caught.value.problem
    assert f"did you mean {topic!r}" in caught.value.remedy
    with pytest.raises(SourceRefused):
        admin.end_offsets([f"{topic}x"])
    assert topic in admin.topics(pattern=".*")
    assert f"{topic}x" not in admin.topics(pattern=".*"), "asking for a topic must not create it"


def test_recreated_or_deleted_topic_is_detected(servers: str, topic: str, admin: KafkaAdmin) -> None:
    produce(servers, topic, 0, [datetime.now(UTC)] * 4)
    captured = admin.end_offsets([topic])
    delete(servers, topic)
    create_again(servers, topic)
    end = admin.end_offsets([topic])
    assert end == {topic: {0: 0}}
    assert lag(end, captured) == {topic: {0: -4}}
    delete(servers, topic)
    with pytest.raises(SourceRefused, match="no topic"):
        admin.topics([topic])


def create_again(servers: str, topic: str) -> None:
    """Creates the topic again. Kafka deletes in the background, so its name may still be in use for a moment."""
    deadline = time.monotonic() + 120
    while topic in AdminClient({"bootstrap.servers": servers}).list_topics(timeout=5).topics:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    create(servers, topic, 1)


def test_unreachable_broker_times_out(
    capfd: pytest.CaptureFixture[str], closed_port: int, attempts: list[float]
) -> None:
    with pytest.raises(Unreachable) as caught:
        KafkaAdmin({"bootstrap.servers": f"{HOST}:{closed_port}"}, timeout=2).topics(["any"])
    assert 1 <= len(attempts) <= 3, "attempts of a second each, until two seconds have passed"
    assert max(attempts) <= 1
    assert f"{HOST}:{closed_port}" in caught.value.problem
    assert "Connection refused" in caught.value.problem
    assert caught.value.retried
    assert capfd.readouterr().err == "", "librdkafka must not write to stderr"


@pytest.mark.long
def test_client_reconnects_to_a_restarted_broker(password_kafka: PasswordKafka) -> None:
    admin = KafkaAdmin({"bootstrap.servers": password_kafka.bootstrap_servers}, timeout=2)
    assert admin.brokers() == (password_kafka.bootstrap_servers,)
    password_kafka.stop()
    with pytest.raises(Unreachable):
        admin.brokers()
    password_kafka.start()
    patient = time.monotonic() + 120
    while time.monotonic() < patient:
        try:
            assert admin.brokers() == (password_kafka.bootstrap_servers,)
        except Unreachable:
            continue
        return
    pytest.fail("the client did not find the broker again")


@pytest.mark.long
def test_wrong_password_is_refused_at_once_and_not_shown(password_kafka: PasswordKafka, attempts: list[float]) -> None:
    create(password_kafka.bootstrap_servers, "orders", 1)
    assert KafkaAdmin(password_kafka.login("right")).topics(["orders"]) == ("orders",)
    attempts.clear()
    with pytest.raises(SourceRefused) as caught:
        KafkaAdmin(password_kafka.login("hunter2"), timeout=300).topics(["orders"])
    assert len(attempts) < 30, "long before it gives up"
    assert "Invalid username or password" in caught.value.problem
    assert "wrong password" in caught.value.remedy
    assert "hunter2" not in str(caught.value)


@pytest.mark.long
def test_unsupported_mechanism_is_refused(password_kafka: PasswordKafka) -> None:
    with pytest.raises(SourceRefused, match="SCRAM-SHA-256"):
        KafkaAdmin(password_kafka.login("right") | {"sasl.mechanism": "SCRAM-SHA-256"}).brokers()


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"security.protocol": "FOO"}, "security.protocol"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER"),
        ({"ssl.truststore.location": "/x.jks"}, "ssl.truststore.location"),
        ({"ssl.keystore.location": "/x.jks"}, "ssl.keystore.type"),
    ],
)
def test_properties_that_cannot_be_used_are_refused_before_connecting(properties: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        KafkaAdmin({"bootstrap.servers": "nowhere:9092", **properties})
    assert named in caught.value.problem


def test_consumer_properties_are_ignored(servers: str) -> None:
    reading = {"max.partition.fetch.bytes": "1000000", "group.id": "g", "request.timeout.ms": "30000"}
    assert KafkaAdmin({"bootstrap.servers": servers, **reading}).brokers()


def test_check_live_shows_topics_offsets_and_lag(servers: str, topic: str, tmp_path: Path) -> None:
    produce(servers, topic, 0, [datetime.now(UTC)] * 5)
    path = tmp_path / "shop.yaml"
    path.write_text(PIPELINE.format(servers=servers, topic=topic, lakehouse=tmp_path / "lake"))

    def live(*options: str) -> str:
        result = CliRunner().invoke(app, [str(path), "--live", *options], catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    found = json.loads(live("--json"))["live"]
    assert found["end"] == {topic: {"0": 5, "1": 0}}
    assert (found["bronze"], found["lag"]) == ("absent", None)
    assert (found["connector"], found["problems"]) == (None, [])

    said = json.dumps({"batch": 1, "offsets": {topic: {"0": 3}}})
    write_deltalake(
        f"{tmp_path}/lake/bronze/shop",
        pa.table({"value": [1]}),
        commit_properties=CommitProperties(custom_metadata={"userMetadata": said}),
    )
    found = json.loads(live("--json"))["live"]
    assert found["captured"] == {topic: {"0": 3}}
    assert found["lag"] == {topic: {"0": 2, "1": 0}}
    assert servers in live()


@pytest.mark.long
def test_check_live_without_a_broker_is_transient(tmp_path: Path, closed_port: int) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(PIPELINE.format(servers=f"{HOST}:{closed_port}", topic="orders", lakehouse=tmp_path))
    with pytest.raises(Unreachable) as caught:
        CliRunner().invoke(app, [str(path), "--live"], catch_exceptions=False)
    assert caught.value.exit_code == EXIT_TRANSIENT
