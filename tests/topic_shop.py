"""A table's topic on a real broker and its pipeline; records that are sent are merged at once."""

from __future__ import annotations

import json
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from ingest.archive import ObjectStore
from ingest.config import load
from ingest.lakehouse.quarantine import Quarantine
from ingest.names import Lakehouse
from ingest.pipeline.archiving import Archiving
from ingest.pipeline.composition import Run, bronze_of
from tests.changelogs import Record, Topic

TABLE = "public.orders"


class Shop:
    """The shop. Its pipeline has `restarts: ignore`, since its tests send late events."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self._spark = spark
        self.kafka: dict[str, Any] = {"bootstrap.servers": servers}
        self.log = Topic(f"gc-{uuid.uuid4().hex}")
        self.file = folder / "shop.yaml"
        source = f"source: {{kafka: {{bootstrap.servers: '{servers}'}}, topics: [{self.log.name}], restarts: ignore}}"
        self.file.write_text(f"{source}\nlakehouse: {folder}/lakehouse\n", encoding="utf-8")
        self.layout = Lakehouse(str(folder / "lakehouse"))

    def archive(self, store: ObjectStore) -> None:
        """Adds an archive to the pipeline file and archives all captured records."""
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"archive": {"uri": store.uri, "s3": dict(store.client_options)}})[1:-1] + "\n")
        assert Archiving(self._spark, bronze_of(self._spark, load(str(self.file))), store, "shop").step()

    def send(self, *records: Record) -> None:
        """Produces records to the topic and merges them."""
        self.produce(*records)
        self.run()

    def run(self, **source: str) -> None:
        """Merges all records of the topic. `source`: source settings for this run only."""
        pipeline = load(str(self.file))
        pipeline = pipeline.model_copy(update={"source": pipeline.source.model_copy(update=source)})
        Run(self._spark, pipeline).available_now(threading.Event(), lambda _: None)

    def produce(self, *records: Record) -> None:
        producer = Producer(self.kafka)
        for record in records:
            value = None if record["value"] is None else json.dumps(record["value"])
            producer.produce(self.log.name, value, json.dumps(record["key"]))
        assert producer.flush(60) == 0

    def expire(self, before: int) -> None:
        """Deletes records before the offset `before`, as retention does."""
        admin = AdminClient(self.kafka)
        for gone in admin.delete_records([TopicPartition(self.log.name, 0, before)]).values():
            gone.result(30)

    def recreate(self) -> None:
        """Deletes the topic and creates it again with one partition."""
        admin = AdminClient(self.kafka)
        for done in admin.delete_topics([self.log.name]).values():
            done.result(30)
        # Kafka deletes in the background: for a moment the name is still taken.
        deadline = time.monotonic() + 120
        while self.log.name in admin.list_topics(timeout=5).topics:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for done in admin.create_topics([NewTopic(self.log.name, 1)]).values():
            done.result(30)

    def rows(self) -> list[tuple[Any, ...]]:
        silver = self._spark.read.format("delta").load(self.layout.silver("shop", TABLE))
        return [tuple(r) for r in silver.select("id", "v").orderBy("id").collect()]

    def quarantined(self) -> list[tuple[int, str]]:
        kept = Quarantine(self._spark, self.layout.quarantine, "shop").rows()
        return [tuple(r) for r in kept.select("offset", "code").collect()]
