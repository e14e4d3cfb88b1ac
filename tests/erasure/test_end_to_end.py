"""An erasure from the rows in a database to the certificate, with everything that could bring the data back."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from psycopg import sql
from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed
from typer.testing import CliRunner, Result

from ingest.backfill.proving import prove
from ingest.backfill.rebuilding import Rebuild
from ingest.cli import app
from ingest.cli.erasure import certificate, erase
from ingest.config import Pipeline, load
from ingest.errors import ProofFailed, SourceRefused
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.silver import Silver
from ingest.names import Lakehouse
from ingest.pipeline.archiving import archiving_of
from ingest.pipeline.composition import Run, bronze_of
from ingest.quality.accounting import audit
from ingest.sources.kafka_admin import KafkaAdmin
from ingest.stack import S3, Stack

pytestmark = pytest.mark.integration
ANNA, BEN = 48151623, 48151624
NAME, EMAIL, TEXT = "Änne Übelhör", "aenne@example.org", "broke her left wrist in Vaduz"
NEEDLES = {"name": NAME, "email": EMAIL, "text": TEXT, "member": {"value": ANNA, "columns": ["id", "member_id"]}}
TABLES = ("members", "claims", "photos")
DDL = """
    CREATE SCHEMA insured;
    CREATE TABLE insured.members (id bigint PRIMARY KEY, name text, email text);
    CREATE TABLE insured.claims (
        id bigint PRIMARY KEY, member_id bigint REFERENCES insured.members ON DELETE CASCADE, text text);
    CREATE TABLE insured.photos (
        id bigint PRIMARY KEY, claim_id bigint REFERENCES insured.claims ON DELETE CASCADE, text text);
"""
SETTINGS = {
    "insured.members": {
        "subject": {"of": "member", "key": "id"}, "personal": ["id", "name", "email"], "history": True,
    },
    "insured.claims": {"subject": {"through": {"member_id": "insured.members"}}, "personal": ["text"]},
    "insured.photos": {"subject": {"through": {"claim_id": "insured.claims"}}},
}  # fmt: skip


class Insurance:
    """The database, its changelog, and the pipeline that reads it."""

    def __init__(self, stack: Stack, s3: S3, spark: SparkSession, folder: Path) -> None:
        self._stack = stack
        self._s3 = s3
        self._spark = spark
        self._folder = folder
        bucket = "insurance"
        boto3.client("s3", **s3.client_options).create_bucket(Bucket=bucket)
        (folder / "ledger.key").touch(0o600)
        (folder / "ledger.key").write_text("1 " + "5a" * 32, encoding="ascii")
        written = {
            "name": "insured",
            "source": {
                "kafka": {"bootstrap.servers": stack.kafka.bootstrap_servers},
                "topic_pattern": r"insured\.insured\..*",
            },
            "lakehouse": str(folder / "lakehouse"),
            "archive": {"uri": f"s3://{bucket}/changelogs", "s3": dict(s3.client_options)},
            "privacy": {"key_file": str(folder / "ledger.key"), "keep_old_files_hours": 0},
            "tables": SETTINGS,
        }
        self.file = folder / "insured.yaml"
        self.file.write_text(json.dumps(written), encoding="utf-8")
        (folder / "needles.json").write_text(json.dumps(NEEDLES), encoding="utf-8")
        self.pipeline: Pipeline = load(str(self.file))

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self._stack.postgres.dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def take_in(self, member: int, name: str, email: str, text: str) -> None:
        self.execute(
            f"INSERT INTO insured.members VALUES ({member}, '{name}', '{email}')",
            f"INSERT INTO insured.claims VALUES ({10 * member}, {member}, '{text}')",
            f"INSERT INTO insured.photos VALUES ({100 * member}, {10 * member}, '{text}')",
        )

    def follow(self, slot: str) -> None:
        """Registers a new connector that takes a snapshot into the same topics."""
        properties = {"schema.include.list": "insured", "slot.name": slot}
        self._stack.connect.register(slot, self._stack.postgres.connector("insured") | properties)

    def follow_again(self) -> None:
        self._stack.connect.delete("insured")
        for attempt in Retrying(stop=stop_after_delay(120), wait=wait_fixed(0.5), reraise=True):
            with attempt:
                self.execute("SELECT pg_drop_replication_slot('insured')")
        self.follow("insured_again")

    def merged(self, until: Callable[[], bool]) -> None:
        """Merges and archives all records of the topics."""
        source = self.pipeline.source
        there = retry_if_exception_type(SourceRefused)
        Retrying(retry=there, stop=stop_after_delay(300), wait=wait_fixed(0.5), reraise=True)(
            KafkaAdmin(source.kafka).topics, None, source.topic_pattern
        )
        run, deadline = Run(self._spark, self.pipeline), time.monotonic() + 600
        while not (run.step().idle and until()):
            assert time.monotonic() < deadline, self.rows()
        archiving = archiving_of(self._spark, self.pipeline)
        while archiving.step() is not None:
            pass

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        found = {}
        for table in TABLES:
            silver = Silver(self._spark, self.pipeline.layout.silver("insured", f"insured.{table}"))
            there = silver.rows().drop("_position", "_source_ts", "_column_positions") if silver.exists() else None
            found[table] = sorted(tuple(r) for r in there.collect()) if there is not None else []
        return found

    def stored(self) -> dict[str, list[tuple[Any, ...]]]:
        """Returns the rows of the database."""
        with psycopg.connect(self._stack.postgres.dsn) as connection:
            return {
                t: sorted(connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier("insured", t))))
                for t in TABLES
            }

    def is_current(self) -> bool:
        return self.rows() == self.stored()

    def run_command(self, *command: str) -> Result:
        return CliRunner().invoke(app, [*command], catch_exceptions=True)

    def erased(self, *more: str) -> dict[str, Any]:
        summary = self.run_command("erase", str(self.file), *more, "--json")
        assert summary.exit_code == 0, summary.output
        found: dict[str, Any] = json.loads(summary.stdout)
        assert found.get("old_files_remain_until") is None
        return found

    def residues(self) -> set[str]:
        """Returns the parts of the lakehouse and of the archive that hold values of the subject."""
        summary = self.run_command(
            "scan", str(self.file), "--needle-file", str(self._folder / "needles.json"), "--json"
        )
        report = json.loads(summary.stdout)
        assert not any(s["missed"] for s in report["canaries"])
        return {f["place"].split("/")[-1] + "/" + f["file"].split("/")[0] for f in report["findings"]}

    @contextmanager
    def archived_elsewhere(self, value: str) -> Iterator[None]:
        """Writes an object into the archive that no manifest names."""
        bucket, client = "insurance", boto3.client("s3", **self._s3.client_options)
        client.put_object(Bucket=bucket, Key="changelogs/insured/kept.jsonl.gz", Body=gzip.compress(value.encode()))
        yield
        client.delete_object(Bucket=bucket, Key="changelogs/insured/kept.jsonl.gz")

    def certified(self, request: str, *more: str) -> Path:
        """Issues a certificate. Raises the command's error."""
        needles, key = self._folder / "needles.json", self._folder / "erasure.pem"
        summary = self.run_command(
            *("certificate", "issue", str(self.file), request, "--needle-file", str(needles)),
            *("--key", str(key), "--out", str(self._folder / "certificates"), *more),
        )
        if summary.exception is not None and summary.exit_code:
            raise summary.exception
        return Path(summary.stdout.split()[0])

    def adds_up(self) -> None:
        bronze = bronze_of(self._spark, self.pipeline)
        accounts = Accounts(self._spark, self.pipeline.layout.accounts, "insured").rows()
        assert audit(bronze.rows(), accounts).problems == []
        scratch = Lakehouse(str(self._folder / f"beside-{time.monotonic_ns()}"))
        assert [p.table for p in prove(self._spark, self.pipeline, scratch) if not p.equal] == []


@pytest.fixture
def insurance(
    stack: Stack, s3: S3, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Insurance]:
    @contextmanager
    def this_session(*_: object) -> Iterator[SparkSession]:
        yield spark

    for command in (erase, certificate):
        monkeypatch.setattr(command, "running", this_session)
    made = Insurance(stack, s3, spark, tmp_path)
    made.execute(DDL)
    yield made
    for name in ("insured", "insured_again"):
        stack.connect.delete(name)


def backup(servers: str, topics: list[str]) -> list[Message]:
    """Returns all records of the topics."""
    ends = KafkaAdmin({"bootstrap.servers": servers}).end_offsets(topics)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "backup", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
    kept: list[Message] = []
    while len(kept) < sum(partitions[0] for partitions in ends.values()):
        kept += consumer.consume(500, timeout=1)
    consumer.close()
    return kept


def restore(servers: str, kept: list[Message]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for record in kept:
        topic, key, value = record.topic(), record.key(), record.value()
        assert topic is not None
        producer.produce(topic, value, key, headers=record.headers() or [])
    assert producer.flush(60) == 0


@pytest.mark.long
def test_erased_person_is_gone_and_stays_gone(insurance: Insurance, stack: Stack, spark: SparkSession) -> None:
    insurance.take_in(BEN, "Ben", "ben@example.org", "hail")
    insurance.take_in(ANNA, NAME, EMAIL, TEXT)
    insurance.follow("insured")
    insurance.merged(insurance.is_current)
    insurance.execute(f"UPDATE insured.members SET name = 'Anne' WHERE id = {ANNA}")
    insurance.merged(insurance.is_current)
    topics = [f"insured.insured.{table}" for table in TABLES]
    kept = backup(stack.kafka.bootstrap_servers, topics)
    assert len(kept) == 7
    insurance.execute(f"DELETE FROM insured.members WHERE id = {ANNA}")
    insurance.merged(insurance.is_current)
    everywhere = insurance.residues()
    assert {"lakehouse/bronze", "lakehouse/silver", "lakehouse/history", "changelogs/insured"} <= everywhere
    assert insurance.run_command("certificate", "key", str(insurance.file.parent / "erasure.pem")).exit_code == 0

    summary = insurance.erased("--subject", f"member:{ANNA}", "--reason", "a letter", "--ask-only")
    (request,) = summary["requests"]
    with pytest.raises(ProofFailed, match="is not done"):
        insurance.certified(request)
    insurance.erased()
    assert insurance.residues() == set()
    with insurance.archived_elsewhere(json.dumps({"after": {"email": EMAIL}})):
        assert insurance.residues() == {"changelogs/insured"}
        with pytest.raises(ProofFailed, match="residues"):
            insurance.certified(request)
    with pytest.raises(ProofFailed, match="residues"):
        # The broker keeps what it was sent until its retention has passed.
        insurance.certified(request, "--folder", str(stack.kafka.data))
    paper = insurance.certified(request)
    content = json.loads(paper.read_text())
    assert "collected from the subject's events" in content["searched"]
    assert {c["column"]: c["values"] for c in content["collected"]}["insured.members.name"] == 2
    assert not [*insurance.file.parent.glob("ledger.key.needles/*/*")], "they are destroyed with the certificate"
    public = insurance.file.parent / "erasure.pem.pub"
    verified = insurance.run_command("certificate", "verify", str(paper), "--public-key", str(public), "--json")
    assert json.loads(verified.stdout)["genuine"], verified.output
    assert insurance.is_current()

    # A backup of the topics is restored: of her records, nothing but their places is captured.
    restored = bronze_of(spark, insurance.pipeline).rows().count() + len(kept)
    restore(stack.kafka.bootstrap_servers, kept)
    insurance.merged(lambda: bronze_of(spark, insurance.pipeline).rows().count() == restored)
    assert insurance.is_current()
    assert insurance.residues() == set()
    insurance.erased()
    assert insurance.residues() == set()
    assert insurance.certified(request).exists()

    # A new connector reads the whole database; the tables are rebuilt.
    insurance.follow_again()
    insurance.execute(f"UPDATE insured.members SET name = 'Ben II' WHERE id = {BEN}")
    insurance.merged(insurance.is_current)
    Rebuild(spark, insurance.pipeline).run()
    assert insurance.is_current()
    assert [row[0] for row in insurance.rows()["members"]] == [BEN]
    assert insurance.residues() == set()

    # The subject becomes a customer again.
    insurance.take_in(ANNA, "Anna Meier", "anna.meier@example.org", "a stolen bicycle")
    insurance.merged(insurance.is_current)
    assert len(insurance.rows()["photos"]) == 2
    insurance.adds_up()
