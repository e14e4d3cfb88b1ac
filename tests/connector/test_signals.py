"""Signals to Debezium and its notifications, as 3.7.0.Final sends them."""

from __future__ import annotations

import json

import pytest

from ingest.connector import Placement, recipe
from ingest.connector.risk import ReaderSettings
from ingest.connector.risks import risks
from ingest.connector.signals import (
    SnapshotNotice,
    execute_snapshot,
    missing_properties,
    signal_table_of,
    snapshot_notice,
)


def notice(**payload: object) -> bytes:
    return json.dumps({"schema": {}, "payload": {"aggregate_type": "Incremental Snapshot"} | payload}).encode()


def test_signal_escapes_the_name_as_a_regular_expression() -> None:
    signal = execute_snapshot("1", "public", "Odd-näme(x)$", "id < 3")
    name = r"public\.Odd\-näme\(x\)\$"
    assert signal["data"]["data-collections"] == [name]
    assert signal["data"]["additional-conditions"] == [{"data-collection": name, "filter": "id < 3"}]
    assert "additional-conditions" not in execute_snapshot("1", "public", "orders")["data"]


def test_chunks_and_the_end_are_read() -> None:
    chunk = notice(
        id="a",
        type="IN_PROGRESS",
        additional_data={"chunk_index": "2", "total_chunks": "3", "total_rows": "25", "last_processed_key": "20"},
    )
    assert snapshot_notice(chunk) == SnapshotNotice("a", "IN_PROGRESS", chunk=2, chunks=3, rows=25)
    end = notice(
        id="a",
        type="TABLE_SCAN_COMPLETED",
        additional_data={
            "scanned_collection": "public.orders",
            "total_rows_scanned": "24",
            "total_rows": "25",
            "data_collections": "public.orders",
            "status": "SUCCEEDED",
        },
    )
    expected = SnapshotNotice("a", "TABLE_SCAN_COMPLETED", "public.orders", "public.orders", "SUCCEEDED", rows=24)
    assert snapshot_notice(end) == expected


@pytest.mark.parametrize(
    "value", [None, b"", b"no JSON", b"[1]", b'"text"', notice(aggregate_type="Initial Snapshot", id="a")]
)
def test_other_records_are_no_notices(value: bytes | None) -> None:
    assert snapshot_notice(value) is None


def test_recipe_lacks_nothing() -> None:
    placement = Placement("shop", kafka={"bootstrap.servers": "broker:9092"})
    config = {setting.name: setting.value for setting in recipe(placement)}
    assert missing_properties(config, "broker:9092", "shop-notifications") == {}


def test_missing_properties_keep_other_channels() -> None:
    config = {"signal.enabled.channels": "source, file", "signal.data.collection": "public.signals"}
    assert missing_properties(config, "broker:9092", "shop-notifications") == {
        "signal.enabled.channels": "source,file,kafka",
        "signal.kafka.bootstrap.servers": "broker:9092",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": "shop-notifications",
    }


def test_check_names_the_properties() -> None:
    placement = Placement("shop", kafka={"bootstrap.servers": "broker:9092"})
    config = {setting.name: setting.value for setting in recipe(placement)}
    reader = ReaderSettings(brokers="broker:9092", notification_topic="shop-notifications")
    assert not any("resync" in risk.effect for risk in risks(config, reader))
    del config["read.only"]
    (found,) = (risk for risk in risks(config, reader) if "resync" in risk.effect)
    assert (found.setting, found.remedy, found.loses) == ("read.only", "read.only=true", False)


def test_secured_brokers_get_no_secret_into_the_recipe() -> None:
    kafka = {
        "bootstrap.servers": "broker:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "password",
    }
    config = {setting.name: setting.value for setting in recipe(Placement("shop", kafka=kafka))}
    assert config["signal.consumer.security.protocol"] == "SASL_SSL"
    assert "password" not in config.values()


def test_table_of_signals_is_that_of_the_source_channel() -> None:
    named = {"signal.data.collection": "public.signals"}
    assert signal_table_of(named) == "public.signals"
    assert signal_table_of(named | {"signal.enabled.channels": "kafka, source"}) == "public.signals"
    assert signal_table_of(named | {"signal.enabled.channels": "kafka"}) is None
    assert signal_table_of({"signal.data.collection": "a.signals,b.signals"}) is None
    assert signal_table_of({}) is None
