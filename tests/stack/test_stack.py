"""The embedded services are real, survive crashes, and end with their owner."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import requests
from confluent_kafka import Consumer
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from ingest.errors import ConfigError, PrerequisiteMissing, SourceRefused, StackFailed, Unreachable
from ingest.stack import Stack
from ingest.stack.kafka import Kafka
from ingest.stack.ports import HOST

pytestmark = pytest.mark.integration

EVENT_TIMEOUT_SECONDS = 300


def connector_config(stack: Stack, name: str) -> dict[str, str]:
    """Returns a Debezium connector for table `public.<name>`, with topics and slot named `<name>`."""
    return {
        **stack.postgres.connector(name),
        "table.include.list": f"public.{name}",
        "poll.interval.ms": "50",
        "slot.retry.delay.ms": "500",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }


def execute(stack: Stack, *statements: str) -> None:
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


@contextmanager
def table_with_connector(stack: Stack, name: str) -> Iterator[None]:
    """Yields a table `name (id, word)` with row 1 and a running connector; removes both at the end."""
    execute(
        stack,
        f"create table {name} (id int primary key, word text)",
        f"insert into {name} values (1, 'one')",
    )
    stack.connect.register(name, connector_config(stack, name))
    try:
        yield
    finally:
        stack.connect.delete(name)
        execute(
            stack,
            f"select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = '{name}' and active",
        )
        drop_slot(stack, name)
        execute(stack, f"drop publication {name}", f"drop table {name}")


@retry(
    retry=retry_if_exception_type(psycopg.errors.ObjectInUse),
    stop=stop_after_delay(120),
    wait=wait_fixed(0.1),
    reraise=True,
)
def drop_slot(stack: Stack, name: str) -> None:
    """Drops the slot, which is possible a moment after its reader has ended."""
    execute(stack, f"select pg_drop_replication_slot('{name}')")


@retry(retry=retry_if_exception_type(AssertionError), stop=stop_after_delay(120), wait=wait_fixed(0.1), reraise=True)
def await_offset_after_snapshot(stack: Stack, name: str) -> None:
    """Waits for the snapshot's offset: a worker killed before that takes the snapshot again."""
    offsets = stack.connect.connectors.offsets(name)
    assert offsets, "no offset stored"
    assert all("snapshot" not in offset for offset in offsets), offsets


def events(stack: Stack, name: str, until_id: int) -> list[tuple[str, int | None]]:
    """Returns `(op, id after)` of the table's topic from its beginning to the event of `until_id`; a null tombstone is
    `("tombstone", None)`."""
    consumer = Consumer(
        {
            "bootstrap.servers": stack.kafka.bootstrap_servers,
            "group.id": f"{name}-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    consumer.subscribe([f"{name}.public.{name}"])
    seen: list[tuple[str, int | None]] = []
    deadline = time.monotonic() + EVENT_TIMEOUT_SECONDS
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None or message.error() is not None:  # a null tombstone is false as a bool
                continue
            value = message.value()
            seen.append(operation(None if value is None else json.loads(value)))
            if seen[-1][1] == until_id:
                return seen
    finally:
        consumer.close()
    raise AssertionError(f"no event of row {until_id} within {EVENT_TIMEOUT_SECONDS} s; seen: {seen}")


def operation(value: dict[str, Any] | None) -> tuple[str, int | None]:
    if value is None:
        return ("tombstone", None)
    return (value["op"], value["after"]["id"] if value["after"] else None)


def test_all_services_answer_at_their_addresses(stack: Stack) -> None:
    assert [(part.service, part.state, part.healthy) for part in stack.status()] == [
        ("postgres", "running", True),
        ("kafka", "running", True),
        ("connect", "running", True),
    ]
    with psycopg.connect(stack.postgres.dsn) as connection:
        assert connection.execute("show wal_level").fetchone() == ("logical",)
    assert requests.get(f"{stack.connect.url}/connector-plugins", timeout=10).ok


def test_postgres_asks_for_its_password(stack: Stack) -> None:
    wrong = psycopg.conninfo.make_conninfo(stack.postgres.dsn, password="wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_changes_of_a_row_arrive_as_debezium_events(stack: Stack) -> None:
    with table_with_connector(stack, "arrives"):
        execute(
            stack,
            "insert into arrives values (2, 'two')",
            "delete from arrives where id = 1",
            "insert into arrives values (3, 'three')",
        )
        assert events(stack, "arrives", until_id=3) == [
            ("r", 1),
            ("c", 2),
            ("d", None),
            ("tombstone", None),
            ("c", 3),
        ]


@pytest.mark.long
def test_killed_worker_continues_after_its_last_offset(stack: Stack) -> None:
    with table_with_connector(stack, "resumes"):
        execute(stack, "insert into resumes values (2, 'two')")
        events(stack, "resumes", until_id=2)
        await_offset_after_snapshot(stack, "resumes")
        address = stack.connect.url

        stack.connect.kill()
        with pytest.raises(Unreachable):
            stack.connect.check()
        execute(stack, "insert into resumes values (3, 'three')")
        stack.connect.start()

        assert stack.connect.url == address
        assert stack.connect.status_of("resumes").running
        seen = events(stack, "resumes", until_id=3)
        assert [op for op, _ in seen].count("r") == 1, "a second snapshot: the offset was lost"
        assert {row for _, row in seen} == {1, 2, 3}


@pytest.mark.long
def test_killed_broker_restarts_with_its_topics(stack: Stack) -> None:
    with table_with_connector(stack, "broker"):
        events(stack, "broker", until_id=1)
        stack.kafka.kill()
        stack.kafka.start()
        execute(stack, "insert into broker values (2, 'two')")
        assert events(stack, "broker", until_id=2)[0] == ("r", 1)


@pytest.mark.long
def test_killed_postgres_restarts_with_its_rows(stack: Stack) -> None:
    execute(stack, "create table survives (id int)", "insert into survives values (7)")
    stack.postgres.kill()
    stack.postgres.start()
    with psycopg.connect(stack.postgres.dsn) as connection:
        assert connection.execute("select id from survives").fetchone() == (7,)


def test_invalid_connector_configuration_is_refused_with_the_reason(stack: Stack) -> None:
    config = {**connector_config(stack, "refused"), "database.password": "not-the-password"}
    with pytest.raises(SourceRefused, match="password authentication failed") as refusal:
        stack.connect.register("refused", config)
    assert "not-the-password" not in str(refusal.value)
    assert stack.connect.connectors.names() == []


@pytest.mark.long
def test_kept_folder_keeps_data_and_ports(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    with Stack(folder, ("postgres",), keep=True) as first:
        execute(first, "create table kept (id int)")
        port = first.postgres.port
    with Stack(folder, ("postgres",), keep=True) as second:
        assert second.postgres.port == port
        execute(second, "insert into kept values (1)")


@pytest.mark.long
def test_temporary_folder_is_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    with Stack(folder, ("postgres",)):
        assert folder.exists()
    assert not folder.exists()


@pytest.mark.long
def test_postgres_runs_in_a_private_folder(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with Stack(closed / "stack", ("postgres",)) as stack:
        execute(stack, "select 1")
    assert closed.stat().st_mode & 0o777 == 0o700


def test_external_address_replaces_a_service(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_POSTGRES_DSN", stack.postgres.dsn)
    monkeypatch.setenv("INGEST_KAFKA_BOOTSTRAP_SERVERS", stack.kafka.bootstrap_servers)
    monkeypatch.setenv("INGEST_CONNECT_URL", stack.connect.url)
    with Stack(tmp_path / "external") as other:
        assert {part.state for part in other.status()} == {"external"}
        assert all(part.healthy and part.pid is None for part in other.status())
        assert other.postgres.port == stack.postgres.port
        with pytest.raises(ConfigError, match="external"):
            other.kafka.kill()
    assert all(part.healthy for part in stack.status()), "an external part was stopped"


@pytest.mark.long
def test_unreachable_external_address_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_POSTGRES_DSN", "host=127.0.0.1 port=1 user=nobody password=hush")
    with (
        pytest.raises(Unreachable, match=r"Postgres at 127\.0\.0\.1:1") as raised,
        Stack(tmp_path, ("postgres",)),
    ):
        pass
    assert "hush" not in str(raised.value)


@pytest.mark.long
def test_failed_start_names_the_log_and_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    with Stack(folder, ("postgres",), keep=True):
        pass
    (folder / "postgres" / "data" / "postgresql.conf").write_text("no_such_setting = 1\n")
    with (
        pytest.raises(StackFailed, match=r"postgres\.log") as failed,
        Stack(folder, ("postgres",), keep=True),
    ):
        pass
    assert "no_such_setting" in failed.value.problem
    assert services_below(folder) == []


@pytest.mark.long
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda end: end.name)
def test_no_service_outlives_its_owner(tmp_path: Path, end: signal.Signals) -> None:
    folder = tmp_path / "owned"
    program = (
        "import signal, sys, time; from pathlib import Path; from ingest.stack import Stack\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job starts with it ignored
        "with Stack(Path(sys.argv[1]), ('postgres', 'kafka'), keep=True):\n"
        "    print('up', flush=True); time.sleep(1800)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == b"up\n"
            services = services_below(folder)
            assert {process.name() for process in services} == {"java", "postgres"}
            owner.send_signal(end)
            owner.wait(timeout=300)
        finally:
            owner.kill()
    gone, alive = psutil.wait_procs(services, timeout=120)
    assert alive == [], f"{len(gone)} ended, these did not"


@pytest.mark.long
def test_up_status_and_down_work_across_commands(tmp_path: Path) -> None:
    folder = tmp_path / "background"
    try:
        up = command("up", "--folder", str(folder), "--part", "postgres", "--part", "kafka")
        assert up.returncode == 0, up.stderr
        found = command("status", "--json", "--folder", str(folder))
        assert found.returncode == 0, found.stderr
        services = {service["service"]: service for service in json.loads(found.stdout)}
        assert {name: service["state"] for name, service in services.items()} == {
            "postgres": "running",
            "kafka": "running",
        }
        again = command("up", "--folder", str(folder), "--part", "postgres", "--part", "kafka")
        assert again.returncode == 0, again.stderr
        assert psutil.pid_exists(services["kafka"]["pid"])

        os.kill(services["kafka"]["pid"], signal.SIGKILL)
        psutil.wait_procs([process for process in services_below(folder) if process.name() == "java"], timeout=120)
        assert command("status", "--folder", str(folder)).returncode == 1
    finally:
        down = command("down", "--purge", "--folder", str(folder))
    assert down.returncode == 0, down.stderr
    assert services_below(folder) == []
    assert not folder.exists()


@pytest.mark.long
def test_adding_a_service_keeps_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    try:
        assert command("up", "--folder", str(folder), "--part", "postgres").returncode == 0
        second = command("up", "--folder", str(folder), "--part", "s3")
        assert second.returncode == 0, second.stderr
        found = json.loads(command("status", "--json", "--folder", str(folder)).stdout)
        assert {service["service"]: service["state"] for service in found} == {"postgres": "running", "s3": "running"}
        postgres, s3 = found
        lines = [line.split(maxsplit=1)[-1].strip() for line in second.stdout.splitlines()]
        password = Path(postgres["access"]["password file"])
        assert postgres["access"]["user"] == "postgres"
        for text in (postgres["address"], str(password), postgres["log"], s3["address"], s3["access"]["user"]):
            assert any(line.endswith(text) for line in lines), f"{text} is cut, or not shown"
        assert password.read_text().strip() not in second.stdout
        assert Path(postgres["log"]).is_file()
        connecting = postgres["access"]["psql"].rsplit("psql ", 1)[1]
        with psycopg.connect(connecting, password=password.read_text().strip()) as connection:
            assert connection.execute("select 1").fetchone() == (1,)
        services = [psutil.Process(service["pid"]) for service in found]
    finally:
        down = command("down", "--folder", str(folder), INGEST_POSTGRES_DSN="host=127.0.0.1 port=1")
    assert down.returncode == 0, down.stderr
    assert psutil.wait_procs(services, timeout=20)[1] == []


def command(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    program = "from ingest.cli.stack import app; app()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "COLUMNS": "60", **variables},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def services_below(folder: Path) -> list[psutil.Process]:
    """Returns running services that have `folder` on their command line, and their children."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or [""]
        if Path(words[0]).name in {"java", "postgres"} and any(str(folder) in word for word in words):
            with suppress(psutil.NoSuchProcess):
                found += [process, *process.children(recursive=True)]
    return found


@pytest.mark.long
def test_new_stack_chooses_other_ports_if_a_process_takes_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, taken = Kafka.launch, list[int]()
    with socket.socket() as other:

        def launch_late(broker: Kafka) -> None:
            if not taken:
                taken.append(broker.ports["controller"])
                other.bind((HOST, taken[0]))
                other.listen()
            launch(broker)

        monkeypatch.setattr(Kafka, "launch", launch_late)
        with Stack(tmp_path / "stack", ("kafka",)) as stack:
            stack.kafka.check()
            assert stack.kafka.ports["controller"] not in taken


@pytest.mark.long
def test_stack_that_ran_before_keeps_its_ports(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "stack", ("s3",), keep=True)
    with stack:
        ports = stack.s3.ports
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the stopped server's connections
        other.bind((HOST, ports["s3"]))
        other.listen()
        with pytest.raises(PrerequisiteMissing, match=f"port {ports['s3']}, which this folder's s3 has, is in use"):
            stack.start()
    assert stack.s3.ports == ports
